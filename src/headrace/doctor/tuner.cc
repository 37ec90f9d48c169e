#include "headrace/doctor/tuner.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "headrace/base/text.h"
#include "headrace/doctor/stage_model.h"

namespace headrace::doctor {
namespace {

// With less the training loop never waits, and no value of any setting makes it faster.
constexpr double kStall = 0.02;
// A speed that differs by so much, and so often in a row, is another one.
constexpr double kAnotherSpeed = 0.1;
constexpr int kTimesOff = 2;
// A search goes no finer than this part of a value.
constexpr uint64_t kFinest = 8;

// A loop that uses so little is not waited for any longer.
constexpr double kLongestUseS = 600;

uint64_t Fineness(uint64_t value) { return std::max<uint64_t>(value / kFinest, 1); }

uint64_t BytesUsed(const Window& window) {
  return window.stage(Stage::kRead).bytes + window.stage(Stage::kCache).bytes +
         window.stage(Stage::kFetch).bytes;
}

}  // namespace

Tuner::Tuner(const Options& options, uint64_t value)
    : options_(options), value_(value), gauge_(options.gauge) {
  Restart(value);
}

void Tuner::Restart(uint64_t value) {
  hold_s_ = options_.first_hold_s;
  SearchFrom(value);
}

void Tuner::SearchFrom(uint64_t value) {
  value_ = value;
  phase_ = Phase::kFirst;
  gauge_.Clear();
  BeginToSettle();
}

void Tuner::BeginToSettle() {
  settling_batches_ = options_.settle_batches;
  settling_bytes_ = options_.settle_bytes;
  settling_s_ = options_.gauge.stretch_s;
}

// False while what comes is still the work of the value before.
bool Tuner::Settle(const Window& window) {
  if (settling_batches_ == 0 && settling_bytes_ == 0 && settling_s_ <= 0) return true;
  settling_batches_ -= std::min(settling_batches_, window.batches);
  settling_bytes_ -= std::min(settling_bytes_, BytesUsed(window));
  settling_s_ -= LoopSeconds(window);
  if (settling_s_ + kLongestUseS <= 0) settling_bytes_ = 0;
  // A loop with long steps would wait for ever.
  if (settling_s_ + options_.gauge.longest_s <= 0) settling_batches_ = 0;
  return false;
}

std::optional<Tuner::Move> Tuner::Add(const Window& window) {
  now_s_ += window.seconds;
  if (options_.least >= options_.most || !Settle(window)) return std::nullopt;
  gauge_.Add(window);
  const Speed speed = gauge_.speed();
  if (speed.stretches < options_.least_stretches || !(speed.samples_per_s > 0)) return std::nullopt;
  if (speed.error > options_.better / 3 && speed.stretches < options_.most_stretches)
    return std::nullopt;
  const Point seen{value_, speed, gauge_.total()};
  gauge_.Clear();
  Decide(seen);
  if (value_ == seen.value) return std::nullopt;
  BeginToSettle();
  return Move{value_, why_};
}

void Tuner::Decide(const Point& seen) {
  switch (phase_) {
    case Phase::kFirst:
      return Search(seen);
    case Phase::kClimb:
      return Climbed(seen);
    case Phase::kDescend:
      return Descended(seen);
    case Phase::kHold:
      return Watch(seen);
  }
}

void Tuner::Search(const Point& from) {
  here_ = from;
  best_ = from.speed;
  began_at_ = from.value;
  above_ = options_.most + 1;
  below_ = options_.least - 1;
  TryMore();
}

void Tuner::Climbed(const Point& seen) {
  const double gain = GainOf(best_, seen.speed);
  if (gain > options_.better + NoiseOf(best_, seen.speed)) {
    here_ = seen;
    best_ = seen.speed;
  } else {
    above_ = seen.value;
    if (gain > 0) best_ = seen.speed;
  }
  TryMore();
}

void Tuner::Descended(const Point& seen) {
  // What is not sure counts as slower.
  const double gain = GainOf(best_, seen.speed) - seen.speed.error;
  if (gain >= -options_.within) {
    here_ = seen;
    if (seen.speed.samples_per_s > best_.samples_per_s) best_ = seen.speed;
  } else {
    below_ = seen.value;
  }
  TryLess();
}

// Half as much more as long as that is faster; then between what is faster and what is not.
void Tuner::TryMore() {
  const uint64_t gap = above_ - here_.value;
  const bool bounded = above_ <= options_.most;
  if (gap <= 1 || (bounded && gap <= Fineness(here_.value)) || !MoreMayHelp()) return TryLess();
  phase_ = Phase::kClimb;
  const uint64_t step = bounded ? gap / 2 : std::max<uint64_t>(here_.value / 2, 1);
  Ask(std::clamp(here_.value + step, options_.least, options_.most),
      fmt::format("{:.0f} samples/s with {}: is more faster", here_.speed.samples_per_s,
                  Shown(here_.value)));
}

// A quarter less as long as that is as fast; then between what is and what is not.
void Tuner::TryLess() {
  const uint64_t gap = here_.value - below_;
  const bool bounded = below_ >= options_.least;
  if (gap <= 1 || (bounded && gap <= Fineness(here_.value))) return Hold();
  if (options_.of_fetches && !MoreMayHelp()) return Hold();
  const uint64_t step = bounded ? gap / 2 : std::max<uint64_t>(here_.value / 4, 1);
  uint64_t less = std::max(here_.value - std::min(step, here_.value), options_.least);
  while (less < here_.value && !MayTry(less)) ++less;
  if (less >= here_.value) return Hold();
  phase_ = Phase::kDescend;
  Ask(less, fmt::format("{:.0f} samples/s with {}: is less as fast", here_.speed.samples_per_s,
                        Shown(here_.value)));
}

void Tuner::Hold() {
  const bool found = here_.value != began_at_;
  hold_s_ = found ? options_.first_hold_s : std::min(2 * hold_s_, options_.longest_hold_s);
  until_s_ = now_s_ + hold_s_;
  soonest_s_ = now_s_ + options_.rest_s;
  times_off_ = 0;
  phase_ = Phase::kHold;
  ++num_searches_;
  Ask(here_.value, fmt::format("the least that is within {:.0f} % of the fastest that was seen",
                               options_.within * 100));
}

// The search found its value some time ago. Searches again when it is time, or when the speed is
// another one.
void Tuner::Watch(const Point& seen) {
  const double border = kAnotherSpeed + NoiseOf(here_.speed, seen.speed);
  times_off_ = std::abs(GainOf(here_.speed, seen.speed)) > border ? times_off_ + 1 : 0;
  const bool changed = times_off_ >= kTimesOff && now_s_ >= soonest_s_;
  if (!changed && now_s_ < until_s_) return;
  if (changed) hold_s_ = options_.first_hold_s;
  Search(seen);
}

void Tuner::Ask(uint64_t value, std::string why) {
  value_ = value;
  why_ = std::move(why);
}

bool Tuner::HasStall() const {
  const double seconds = LoopSeconds(here_.total);
  return seconds > 0 && here_.total.input_wait_s / seconds >= kStall;
}

// Where the loop never waits, or nothing is fetched, no bound of the fetches changes the speed.
bool Tuner::MoreMayHelp() const {
  return HasStall() && (!options_.of_fetches || here_.total.origin_bytes > 0);
}

std::string Tuner::Shown(uint64_t value) const {
  return options_.unit == "bytes" ? FormatSize(value) : std::to_string(value);
}

// Where the loop waits for its input fewer may be as fast, or faster: they may be in each other's
// way. Where it does not, the stage model knows what the workers have to spare, sooner than it
// would show: batches that are ready hide for a while that too few come.
bool Tuner::MayTry(uint64_t less) const {
  if (HasStall()) return true;
  const StageModel model(here_.total, MachineFacts());
  return !model.usable() ||
         model.WithThreads(static_cast<double>(less)) >= model.observed() * (1 - options_.within);
}

}  // namespace headrace::doctor
