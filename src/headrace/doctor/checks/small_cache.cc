// The node's cache is smaller than what the node reads in an epoch: the rest comes from the origin
// in every epoch.
#include <algorithm>

#include "headrace/doctor/checks/checks.h"

namespace headrace::doctor {
namespace {

constexpr Threshold kFetchShare{
    "workers' time in fetches", 0.3, "%",
    "with less the misses cost little, since the workers do other things most of the time"};
constexpr Threshold kCached{"part of the epoch's bytes that fits", 0.95, "%",
                            "some per cent of a cache are always on their way in or out"};
constexpr Threshold kThresholds[] = {kInputStall, kFetchShare, kCached};

std::optional<Finding> CheckSmallCache(const Case& c) {
  const RankView& view = c.typical();
  const JobFacts& job = view.run->job;
  const double fetch = view.model.part_s(Part::kNetwork) - view.model.part_s(Part::kBackOff);
  const double share = view.model.worker_s() > 0 ? fetch / view.model.worker_s() : 0;
  if (!CacheIsTooSmall(*view.run) || view.stall() < kInputStall.value || share < kFetchShare.value)
    return std::nullopt;
  const double fits =
      static_cast<double>(job.cache_limit_bytes) / static_cast<double>(job.epoch_bytes);
  Finding finding;
  finding.symptom = "the GPU waits for fetches although the node has a cache";
  finding.cause =
      "the cache holds only a part of what this node reads in an epoch, and with one "
      "pass an epoch no way of choosing makes the hits more than that part";
  finding.evidence = {Measured(kInputStall, view.stall()), Measured(kFetchShare, share),
                      Measured(kCached, fits)};
  const double read = static_cast<double>(view.total.cache_hit_bytes) +
                      static_cast<double>(view.total.origin_bytes);
  if (read > 0)
    finding.evidence.push_back({"bytes that came from the cache",
                                static_cast<double>(view.total.cache_hit_bytes) / read, "%",
                                std::nullopt});
  finding.confidence = Confidence(finding.evidence, view.run->windows.size(), {kCached.what});
  finding.cure =
      "give the cache room for all that the node reads, on one disk or several; or read "
      "less on each node: more nodes share the shards among them";
  finding.command =
      "export HEADRACE_CACHE_BYTES=" + std::to_string(job.epoch_bytes + job.epoch_bytes / 20);
  finding.gain = GainOver(view, view.model.FromLocalDisk());
  finding.disproof = "hits above the part that fits: then something else reads the origin";
  return finding;
}

}  // namespace

const CheckEntry kSmallCacheCheck{"small-cache", "The cache is smaller than the working set",
                                  kThresholds, CheckSmallCache};

}  // namespace headrace::doctor
