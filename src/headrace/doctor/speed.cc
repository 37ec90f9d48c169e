#include "headrace/doctor/speed.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace headrace::doctor {
namespace {

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

double SpeedOf(const Window& stretch) {
  return static_cast<double>(stretch.samples) / LoopSeconds(stretch);
}

}  // namespace

double GainOf(const Speed& before, const Speed& after) {
  return before.samples_per_s > 0 ? after.samples_per_s / before.samples_per_s - 1 : 0;
}

double NoiseOf(const Speed& a, const Speed& b) { return 2 * std::hypot(a.error, b.error); }

double LoopSeconds(const Window& window) {
  return window.input_wait_s + window.step_s + window.python_s + window.save_stall_s;
}

void SpeedGauge::Add(const Window& window) {
  if (window.saving_s > 0 || window.save_stall_s > 0) return;
  stretch_.Add(window);
  const double seconds = LoopSeconds(stretch_);
  const bool whole = seconds >= options_.stretch_s && stretch_.batches >= options_.stretch_batches;
  if (!whole && (seconds < options_.longest_s || stretch_.batches == 0)) return;
  stretches_.push_back(std::exchange(stretch_, Window()));
}

void SpeedGauge::Clear() {
  stretch_ = Window();
  stretches_.clear();
}

// Those that are no outliers, as an evaluation between two batches makes them: not further from the
// median than four times the spread of most of them, and what a batch more or less at an end makes.
std::vector<const Window*> SpeedGauge::Kept() const {
  constexpr double kDeviations = 4, kDeviation = 1.4826;  // that of a normal distribution
  constexpr double kAtTheEnds = 1.5;                      // batches
  std::vector<double> speeds, distances;
  for (const Window& one : stretches_) speeds.push_back(SpeedOf(one));
  const double median = Median(std::move(speeds));
  for (const Window& one : stretches_) distances.push_back(std::abs(SpeedOf(one) - median));
  const double spread = kDeviations * kDeviation * Median(std::move(distances));
  std::vector<const Window*> kept;
  for (const Window& one : stretches_) {
    const double of_a_batch = SpeedOf(one) / static_cast<double>(one.batches);
    const double distance = std::abs(SpeedOf(one) - median);
    if (distance <= spread + kAtTheEnds * of_a_batch) kept.push_back(&one);
  }
  return kept;
}

Window SpeedGauge::total() const {
  Window total;
  for (const Window* one : Kept()) total.Add(*one);
  return total;
}

Speed SpeedGauge::speed() const {
  constexpr size_t kFew = 3;
  Speed speed;
  speed.stretches = stretches_.size();
  const std::vector<const Window*> kept = Kept();
  double samples = 0, seconds = 0, squares = 0;
  for (const Window* one : kept) {
    samples += static_cast<double>(one->samples);
    seconds += LoopSeconds(*one);
  }
  if (seconds > 0) speed.samples_per_s = samples / seconds;
  if (kept.size() < kFew || !(samples > 0)) return speed;
  for (const Window* one : kept) squares += std::pow(SpeedOf(*one) - speed.samples_per_s, 2);
  const auto count = static_cast<double>(kept.size());
  speed.error = std::sqrt(squares / (count - 1) / count) / speed.samples_per_s;
  return speed;
}

Speed SpeedOfRun(const JobRun& run, const SpeedGauge::Options& options) {
  Speed all;
  all.error = run.ranks.empty() ? 1 : 0;
  for (const RankRun& rank : run.ranks) {
    SpeedGauge gauge(options);
    for (const Window& window : SteadyWindows(rank.windows)) gauge.Add(window);
    const Speed one = gauge.speed();
    all.samples_per_s += one.samples_per_s;
    // Ranks step together, so that their errors do not make up for each other.
    all.error = std::max(all.error, one.error);
    all.stretches = all.stretches == 0 ? one.stretches : std::min(all.stretches, one.stretches);
  }
  return all;
}

}  // namespace headrace::doctor
