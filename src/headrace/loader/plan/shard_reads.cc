#include "headrace/loader/plan/shard_reads.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

namespace headrace::loader {
namespace {

uint32_t CommonDivisor(const Order& order, const BatchPlan& plan) {
  return std::gcd(order.num_lanes(), plan.world_size());
}

// The samples of a lane that come before a position up to which all lanes take turns.
uint64_t LaneSamplesBefore(const Order& order, uint32_t lane, uint64_t position) {
  const uint64_t lanes = order.num_lanes();
  return position / lanes + (position % lanes > lane ? 1 : 0);
}

// ShardRead::is_whole of a window that the rank does not start in. Once the shortest lane has ended
// the ranks share what is left of all lanes; and a rank may share its lanes in any case.
bool ReadsWholeWindow(const Order& order, const BatchPlan& plan, uint32_t lane,
                      const EpochOrder::Span& span) {
  constexpr uint64_t kOf = 50, kAtLeast = 49;
  if (order.num_lanes() % plan.world_size() != 0) return false;
  const uint64_t even = order.EvenPositions(), end = EpochPositions(plan);
  uint64_t own = 0;
  if (plan.world_size() == 1 && end > even) {
    const uint64_t all = order.num_samples(), dropped = all - std::min(all, end);
    own = span.last < end ? span.samples : span.samples - std::min(span.samples, dropped);
  } else if (span.first < even) {
    const uint64_t begin = span.first / order.num_lanes();
    const uint64_t last = LaneSamplesBefore(order, lane, std::min(even, end));
    own = std::min(begin + span.samples, std::max(begin, last)) - begin;
  }
  return own * kOf >= span.samples * kAtLeast;
}

}  // namespace

uint64_t EpochPositions(const BatchPlan& plan) {
  return plan.num_global_batches() * plan.global_batch();
}

bool OwnsLane(const Order& order, const BatchPlan& plan, uint32_t lane) {
  const uint32_t divisor = CommonDivisor(order, plan);
  return lane % divisor == plan.rank() % divisor;
}

bool IsForeign(const Order& order, const BatchPlan& plan, uint64_t position) {
  return position >= order.EvenPositions() && !OwnsLane(order, plan, order.LaneAt(position));
}

std::vector<uint32_t> OwnShards(const Order& order, const BatchPlan& plan) {
  std::vector<uint32_t> own;
  for (uint32_t lane = 0; lane < order.num_lanes(); ++lane) {
    if (!OwnsLane(order, plan, lane)) continue;
    for (uint32_t shard : order.LaneShards(lane))
      if (order.ShardSamples(shard) > 0) own.push_back(shard);
  }
  std::sort(own.begin(), own.end());
  return own;
}

std::vector<uint32_t> ShardsReadIn(const Order& order, const BatchPlan& plan, uint64_t epoch,
                                   uint64_t position) {
  std::vector<uint32_t> shards;
  ShardReads reads(order, plan, epoch, position);
  ShardRead read;
  while (reads.Next(&read) && read.first_use < (epoch + 1) * EpochPositions(plan))
    shards.push_back(read.shard);
  return shards;
}

uint64_t LargestWindowsBytes(const Order& order, const BatchPlan& plan,
                             std::span<const uint64_t> shard_bytes) {
  uint64_t bytes = 0;
  std::vector<uint64_t> of_lane;
  for (uint32_t lane = 0; lane < order.num_lanes(); ++lane) {
    if (!OwnsLane(order, plan, lane)) continue;
    of_lane.clear();
    for (uint32_t shard : order.LaneShards(lane)) of_lane.push_back(shard_bytes[shard]);
    const size_t together = std::min<size_t>(order.options().window_shards, of_lane.size());
    std::partial_sort(of_lane.begin(), of_lane.begin() + static_cast<ptrdiff_t>(together),
                      of_lane.end(), std::greater<>());
    bytes =
        std::accumulate(of_lane.begin(), of_lane.begin() + static_cast<ptrdiff_t>(together), bytes);
  }
  return bytes;
}

ShardReads::ShardReads(Order order, const BatchPlan& plan, uint64_t epoch, uint64_t position)
    : order_(std::move(order)), plan_(plan) {
  following_ = ReadsOf(epoch);
  Load(epoch, position);
}

std::vector<ShardRead> ShardReads::ReadsOf(uint64_t epoch) const {
  const EpochOrder order = order_.ForEpoch(epoch);
  const uint64_t end = EpochPositions(plan_), base = epoch * end;
  std::vector<ShardRead> reads;
  for (uint32_t lane = 0; lane < order_.num_lanes(); ++lane) {
    if (!OwnsLane(order_, plan_, lane)) continue;
    for (uint32_t window = 0; window < order.NumWindows(lane); ++window) {
      const EpochOrder::Span span = order.WindowSpan(lane, window);
      if (span.samples == 0 || span.first >= end) continue;
      const bool is_whole = ReadsWholeWindow(order_, plan_, lane, span);
      for (uint32_t shard : order.WindowShards(lane, window)) {
        if (order_.ShardSamples(shard) == 0) continue;
        reads.push_back({shard, base + span.first, base + std::min(span.last, end - 1),
                         ShardRead::kUnknown, is_whole});
      }
    }
  }
  std::stable_sort(reads.begin(), reads.end(), [](const ShardRead& a, const ShardRead& b) {
    return a.first_use < b.first_use;
  });
  return reads;
}

// Makes `epoch`, whose reads are in following_, the one that is gone through.
void ShardReads::Load(uint64_t epoch, uint64_t position) {
  epoch_ = epoch;
  next_ = 0;
  reads_ = std::exchange(following_, ReadsOf(epoch + 1));
  const uint64_t now = epoch * EpochPositions(plan_) + position;
  std::erase_if(reads_, [now](const ShardRead& read) { return read.last_use < now; });
  std::vector<uint64_t> next_use(order_.num_shards(), ShardRead::kUnknown);
  for (const ShardRead& read : following_) next_use[read.shard] = read.first_use;
  for (ShardRead& read : reads_) {
    read.is_whole &= read.first_use >= now;
    read.first_use = std::max(read.first_use, now);
    read.next_use = next_use[read.shard];
  }
}

bool ShardReads::Next(ShardRead* read) {
  // Of an epoch that is begun late nothing may be left; a whole one has something.
  for (int epochs = 0; next_ == reads_.size() && epochs < 2; ++epochs) Load(epoch_ + 1, 0);
  if (next_ == reads_.size()) return false;
  *read = reads_[next_++];
  return true;
}

}  // namespace headrace::loader
