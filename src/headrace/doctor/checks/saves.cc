// Periodic stutter: saving a checkpoint blocks the step, or takes bandwidth away from the input.
#include <algorithm>

#include "headrace/doctor/checks/checks.h"

namespace headrace::doctor {
namespace {

constexpr Threshold kSaveStall{"time blocked by saves", 0.02, "%",
                               "an asynchronous save blocks for a copy in memory, well below 1 %"};
constexpr Threshold kSlower{
    "slower while a save is written", 0.2, "%",
    "windows differ by some per cent anyway; a fifth is felt and is no chance"};
constexpr Threshold kSaves{"windows with a save", 2, "", "one may be chance"};
constexpr Threshold kThresholds[] = {kSaveStall, kSlower, kSaves};

struct Rates {
  double with = 0, without = 0;  // samples per second that was not blocked by a save
  double windows_with = 0;
};

Rates CompareWindows(const RankView& view) {
  // A window counts as one with a save when half of it is.
  constexpr double kHalf = 0.5;
  double samples[2] = {0, 0}, seconds[2] = {0, 0};
  Rates rates;
  for (const Window& window : SteadyWindows(view.run->windows)) {
    const bool saving = window.saving_s >= kHalf * window.seconds;
    if (window.saving_s > 0 && !saving) continue;
    samples[saving] += static_cast<double>(window.samples);
    seconds[saving] += window.seconds - window.save_stall_s;
    rates.windows_with += saving;
  }
  if (seconds[1] > 0) rates.with = samples[1] / seconds[1];
  if (seconds[0] > 0) rates.without = samples[0] / seconds[0];
  return rates;
}

double CountSaveWindows(const RankView& view) {
  double count = 0;
  for (const Window& window : SteadyWindows(view.run->windows))
    count += window.save_stall_s > 0 || window.saving_s > 0;
  return count;
}

std::optional<Finding> CheckSaves(const Case& c) {
  const RankView& view = c.typical();
  const double blocked = view.whole.save_stall_s / view.whole.seconds;
  const double saves = CountSaveWindows(view);
  const Rates rates = CompareWindows(view);
  const double slower =
      rates.without > 0 && rates.windows_with >= kSaves.value ? 1 - rates.with / rates.without : 0;
  if (saves < kSaves.value || (blocked < kSaveStall.value && slower < kSlower.value))
    return std::nullopt;
  Finding finding;
  finding.symptom = "the job stutters each time it saves";
  finding.cause = blocked >= kSaveStall.value ? "the step waits until the checkpoint is written"
                                              : "the save and the input share a disk or a network";
  if (blocked >= kSaveStall.value) finding.evidence.push_back(Measured(kSaveStall, blocked));
  if (slower >= kSlower.value) finding.evidence.push_back(Measured(kSlower, slower));
  finding.evidence.push_back(Measured(kSaves, saves));
  finding.confidence = Confidence(finding.evidence, view.run->windows.size());
  finding.cure =
      "save in the background to the local disk and let ranks write at different times; "
      "save less often where the time between faults allows it";
  finding.command = "Checkpointer(...).save(step, state, wait=False)";
  const StageModel whole(view.whole, view.run->machine, view.model.compute_s());
  const double better = blocked >= kSaveStall.value ? whole.Without(Part::kSaves) : rates.without;
  if (whole.observed() > 0) finding.gain = std::max(0.0, better / whole.observed() - 1);
  finding.disproof = "a run without saves that stutters as well";
  return finding;
}

}  // namespace

const CheckEntry kSavesCheck{"save-stutter", "Saving makes the job stutter", kThresholds,
                             CheckSaves};

}  // namespace headrace::doctor
