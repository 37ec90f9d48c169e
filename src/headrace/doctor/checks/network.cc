// The network is full: what comes over it sets the pace, and nothing of it is kept on the node.
#include "headrace/doctor/checks/checks.h"

namespace headrace::doctor {
namespace {

constexpr Threshold kUse{
    "network bandwidth in use", 0.8, "%",
    "headers, acknowledgements and uneven arrival keep a full link at 85 to 95 % of its rate"};
constexpr Threshold kThresholds[] = {kInputStall, kUse};

std::optional<Finding> CheckNetwork(const Case& c) {
  const RankView& view = c.typical();
  const double use = view.model.network_use();
  if (view.stall() < kInputStall.value || use < kUse.value) return std::nullopt;
  if (CacheIsTooSmall(*view.run)) return std::nullopt;  // told by its own check
  const bool has_cache = view.run->job.has_cache;
  Finding finding;
  finding.symptom = "the GPU waits while the network of its node is full";
  finding.cause = has_cache ? "the node's cache does not hold this data yet"
                            : "every epoch brings the same bytes over the network again";
  finding.evidence = {Measured(kInputStall, view.stall()), Measured(kUse, use)};
  finding.evidence.push_back({"received from the origin",
                              static_cast<double>(view.total.origin_bytes) / view.total.seconds,
                              "B/s", std::nullopt});
  finding.confidence = Confidence(finding.evidence, view.run->windows.size());
  finding.cure = has_cache
                     ? "warm the cache before the job starts; later epochs read from it anyway"
                     : "keep the data on a local NVMe disk: from the second epoch on the network "
                       "is not needed";
  finding.command = has_cache ? "headrace cache warm DATASET --cache-dir /nvme/cache"
                              : "export HEADRACE_CACHE_DIR=/nvme/cache HEADRACE_CACHE_BYTES=1TiB";
  finding.gain = GainOver(view, view.model.FromLocalDisk());
  finding.disproof = "an epoch read from the local disk that is no faster";
  return finding;
}

}  // namespace

bool CacheIsTooSmall(const RankRun& rank) {
  // Some per cent of a cache are always on their way in or out.
  constexpr double kOnTheWay = 0.95;
  return rank.job.has_cache && rank.job.cache_limit_bytes > 0 && rank.job.epoch_bytes > 0 &&
         static_cast<double>(rank.job.cache_limit_bytes) <
             kOnTheWay * static_cast<double>(rank.job.epoch_bytes);
}

const CheckEntry kNetworkCheck{"network-full", "The network is full", kThresholds, CheckNetwork};

}  // namespace headrace::doctor
