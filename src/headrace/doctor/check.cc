#include "headrace/doctor/check.h"

#include <algorithm>
#include <numeric>

namespace headrace::doctor {
namespace {

// What a sample costs the consumers when none waits for another: in a step of several ranks only
// the last one to come waits for nobody.
double ComputeSeconds(const std::vector<Window>& totals) {
  double least = -1;
  for (const Window& total : totals) {
    if (total.samples == 0) continue;
    const double each = total.step_s / static_cast<double>(total.samples);
    if (least < 0 || each < least) least = each;
  }
  return least;
}

Window TotalWithoutSaves(const std::vector<Window>& steady, const Window& whole) {
  constexpr size_t kTooFew = 4;
  Window total;
  size_t count = 0;
  for (const Window& window : steady) {
    if (window.saving_s > 0 || window.save_stall_s > 0) continue;
    total.Add(window);
    ++count;
  }
  // A save tells its time when it ends, so that in a job that always saves these may be windows in
  // which nothing came.
  return count < kTooFew || total.samples == 0 ? whole : total;
}

}  // namespace

Case::Case(const JobRun& run) : run_(&run) {
  std::vector<Window> totals, wholes;
  for (const RankRun& rank : run.ranks) {
    wholes.push_back(SteadyTotal(rank.windows));
    totals.push_back(TotalWithoutSaves(SteadyWindows(rank.windows), wholes.back()));
  }
  const double compute_s = ComputeSeconds(totals);
  for (size_t i = 0; i < totals.size(); ++i) {
    if (totals[i].samples == 0 || totals[i].seconds <= 0) continue;
    ranks_.push_back({&run.ranks[i], totals[i], wholes[i],
                      StageModel(totals[i], run.ranks[i].machine, compute_s)});
  }
  if (ranks_.empty()) return;
  std::vector<size_t> by_stall(ranks_.size());
  std::iota(by_stall.begin(), by_stall.end(), size_t{0});
  std::stable_sort(by_stall.begin(), by_stall.end(),
                   [this](size_t a, size_t b) { return ranks_[a].stall() < ranks_[b].stall(); });
  typical_ = by_stall[by_stall.size() / 2];
  worst_ = by_stall.back();
  // Of two ranks the lesser is the typical one: what holds only one back is told by its own check.
  if (by_stall.size() == 2) typical_ = by_stall.front();
}

double Confidence(const std::vector<Evidence>& evidence, size_t windows,
                  const std::vector<std::string_view>& low) {
  constexpr double kAtBorder = 0.5, kMost = 0.95;
  constexpr size_t kEnoughWindows = 10;
  double weakest = 1;
  for (const Evidence& one : evidence) {
    if (!one.threshold || *one.threshold <= 0) continue;
    const bool less = std::find(low.begin(), low.end(), one.what) != low.end();
    double over = less ? *one.threshold / std::max(one.value, *one.threshold * 1e-6)
                       : one.value / *one.threshold;
    // A share cannot pass 1: there half of the way from the border to 1 is far enough.
    if (!less && one.unit == "%" && *one.threshold > 0.5)
      over = 1 + 2 * (one.value - *one.threshold) / (1 - *one.threshold);
    weakest = std::min(weakest, std::clamp(over - 1, 0.0, 1.0));
  }
  const double known =
      static_cast<double>(std::min(windows, kEnoughWindows)) / static_cast<double>(kEnoughWindows);
  return kAtBorder * (0.6 + 0.4 * known) + (kMost - kAtBorder) * weakest * known;
}

Evidence Measured(const Threshold& threshold, double value) {
  return {std::string(threshold.what), value, std::string(threshold.unit), threshold.value};
}

double GainOver(const RankView& view, double predicted) {
  const double now = view.model.observed();
  return now > 0 ? std::max(0.0, predicted / now - 1) : 0;
}

}  // namespace headrace::doctor
