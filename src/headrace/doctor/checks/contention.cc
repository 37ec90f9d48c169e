// More workers make it slower: threads fight for processors, memory or a disk.
#include <algorithm>
#include <map>

#include "headrace/doctor/checks/checks.h"

namespace headrace::doctor {
namespace {

constexpr Threshold kRunDelay{
    "waiting for a processor beside running", 0.25, "%",
    "a thread to each processor waits some per cent; a quarter needs more threads than processors"};
constexpr Threshold kThreads{"threads for each processor", 1.25, "",
                             "loaders use some more threads than processors while they wait for "
                             "reads; a quarter more does no harm"};
constexpr Threshold kSlower{
    "faster with fewer threads", 0.05, "%",
    "the speed of one window varies by some per cent; medians of several by less than 5 %"};
constexpr Threshold kThresholds[] = {kInputStall, kRunDelay, kThreads, kSlower};
// Windows with a thread count before its speed is believed.
constexpr size_t kWindowsEach = 3;

struct Best {
  uint32_t threads = 0;
  double gain = 0;  // over the count now
};

// Where the job ran with several thread counts: the best of those below what it has now.
Best FewerThreads(const RankView& view) {
  std::map<uint32_t, std::vector<double>> speeds;
  const std::vector<Window> steady = SteadyWindows(view.run->windows);
  for (const Window& window : steady) speeds[window.threads].push_back(window.samples_per_s());
  std::map<uint32_t, double> medians;
  for (auto& [threads, speed] : speeds) {
    if (speed.size() < kWindowsEach) continue;
    std::sort(speed.begin(), speed.end());
    medians[threads] = speed[speed.size() / 2];
  }
  Best best;
  auto now = medians.find(steady.empty() ? 0 : steady.back().threads);
  if (now == medians.end() || now->second <= 0) return best;
  for (auto it = medians.begin(); it != now; ++it)
    if (it->second / now->second - 1 > best.gain) best = {it->first, it->second / now->second - 1};
  return best;
}

double RunDelayShare(const Window& total) {
  const double all = total.run_delay_s + total.cpu_s;
  return all > 0 ? total.run_delay_s / all : 0;
}

double ThreadsPerCpu(const RankView& view) {
  const double cpus = view.run->machine.cpus;
  return cpus > 0 ? view.total.threads * view.run->job.node_ranks / cpus : 0;
}

std::optional<Finding> CheckContention(const Case& c) {
  const RankView& view = c.typical();
  if (view.stall() < kInputStall.value) return std::nullopt;
  const Best best = FewerThreads(view);
  const bool crowded = IsOversubscribed(view);
  if (best.gain < kSlower.value && !crowded) return std::nullopt;
  Finding finding;
  finding.symptom = "the GPU waits, and the loader has more threads than do it good";
  finding.cause =
      "threads take turns on the processors and push each other's data out of the "
      "caches, or wait for the same disk";
  finding.evidence = {Measured(kInputStall, view.stall())};
  if (best.gain >= kSlower.value) {
    finding.evidence.push_back(Measured(kSlower, best.gain));
    AdviseSetting("threads", best.threads, &finding);
    finding.gain = best.gain;
  } else {
    const double each = view.run->machine.cpus / std::max(1u, view.run->job.node_ranks);
    AdviseSetting("threads", static_cast<uint64_t>(std::max(1.0, each)), &finding);
  }
  if (crowded) {
    finding.evidence.push_back(Measured(kRunDelay, RunDelayShare(view.total)));
    finding.evidence.push_back(Measured(kThreads, ThreadsPerCpu(view)));
  }
  if (view.total.throttled_s > 0)
    finding.evidence.push_back({"stopped by the quota of the control group",
                                view.total.throttled_s / view.total.seconds, "s a second",
                                std::nullopt});
  finding.confidence = Confidence(finding.evidence, view.run->windows.size());
  finding.cure =
      "limit the threads to what the processors can run, and measure again: another "
      "stage may then be the slowest";
  finding.disproof = "fewer threads that are no faster";
  return finding;
}

}  // namespace

bool IsOversubscribed(const RankView& view) {
  return RunDelayShare(view.total) >= kRunDelay.value && ThreadsPerCpu(view) >= kThreads.value;
}

const CheckEntry kContentionCheck{"too-many-threads", "More workers make it slower", kThresholds,
                                  CheckContention};

}  // namespace headrace::doctor
