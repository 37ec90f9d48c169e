// Fewer shards than ranks: several ranks read each shard, so its bytes travel several times, and
// each node's cache holds the same ones.
#include <fmt/core.h>

#include <algorithm>

#include "headrace/doctor/checks/checks.h"

namespace headrace::doctor {
namespace {

constexpr Threshold kShards{"shards for each rank", 1, "",
                            "with one or more every rank reads shards of its own"};
constexpr Threshold kThresholds[] = {kShards};

std::optional<Finding> CheckFewShards(const Case& c) {
  const DatasetFacts& data = c.run().dataset;
  const RankView& view = c.typical();
  const double ranks = view.run->job.world_size;
  // Of files that are samples themselves there are always enough.
  const bool of_shards = data.kind == "tar" || data.kind == "tfrecord" || data.kind == "mds";
  if (!of_shards || data.num_shards == 0 || ranks <= static_cast<double>(data.num_shards))
    return std::nullopt;
  const double each = static_cast<double>(data.num_shards) / ranks;
  Finding finding;
  const bool loses = view.stall() >= kInputStall.value;
  finding.severity = loses ? Severity::kProblem : Severity::kWarning;
  finding.symptom =
      fmt::format("{} ranks share {} shards", view.run->job.world_size, data.num_shards);
  finding.cause = "a shard is read by several ranks, and each of them needs only a part of it";
  finding.evidence = {Measured(kShards, each)};
  finding.evidence.push_back({"input stall", view.stall(), "%", std::nullopt});
  // A count needs no statistics.
  finding.confidence = 0.95;
  finding.cure = "pack into at least four shards for each rank";
  const uint64_t wanted = static_cast<uint64_t>(ranks) * 4;
  const uint64_t size = std::max<uint64_t>(data.bytes / std::max<uint64_t>(wanted, 1), 1 << 20);
  finding.command = fmt::format("headrace pack DATASET PACKED --shard-size {}MiB",
                                std::max<uint64_t>(size >> 20, 1));
  finding.disproof = "bytes from the origin in an epoch that are no more than the data set's";
  return finding;
}

}  // namespace

const CheckEntry kFewShardsCheck{"few-shards", "Fewer shards than ranks", kThresholds,
                                 CheckFewShards};

}  // namespace headrace::doctor
