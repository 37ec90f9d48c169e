// Which shards a rank reads, and between which of its positions, in the order in which it comes to
// them: what a cache needs to know to have them there in time. Made from the windows of the order;
// no I/O. docs/design/prefetch.md says how it is used.
//
// Positions here run on over epochs: position p of epoch e is e * EpochPositions(plan) + p.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "headrace/loader/plan/batch_plan.h"
#include "headrace/loader/plan/order.h"

namespace headrace::loader {

// Positions of an epoch as runs count them: all that its global batches take, those of the last
// one's padding included.
uint64_t EpochPositions(const BatchPlan& plan);

// True when the rank keeps to the lane: with W ranks and K lanes it takes the lanes that are equal
// to it modulo gcd(K, W); so, where W divides K, to lanes that no other rank has. (Once the
// shortest lane has ended ranks meet some samples of other lanes too; those are not planned.)
bool OwnsLane(const Order& order, const BatchPlan& plan, uint32_t lane);
// True for a position at which the rank meets a lane that it does not own.
bool IsForeign(const Order& order, const BatchPlan& plan, uint64_t position);
// The shards of the rank's lanes that have samples, in the order of their numbers.
std::vector<uint32_t> OwnShards(const Order& order, const BatchPlan& plan);

// Those that it reads in one epoch from a position on, in the order in which it comes to them.
std::vector<uint32_t> ShardsReadIn(const Order& order, const BatchPlan& plan, uint64_t epoch,
                                   uint64_t position);

// The most bytes of shards that the rank is inside of at once: of each of its lanes the largest
// window there can be. `shard_bytes` has one number a shard.
uint64_t LargestWindowsBytes(const Order& order, const BatchPlan& plan,
                             std::span<const uint64_t> shard_bytes);

struct ShardRead {
  static constexpr uint64_t kUnknown = std::numeric_limits<uint64_t>::max();
  uint32_t shard = 0;
  uint64_t first_use = 0, last_use = 0;  // of the lane's window that holds the shard
  uint64_t next_use = kUnknown;          // when that of the next epoch begins
  // The rank itself reads the window from its begin to its end: nearly all samples (49 of 50) are
  // its own, and it does not start in the middle.
  bool is_whole = true;
};

// Goes through the shards that a rank reads from a position on, over all epochs to come. A shard
// comes once an epoch, when its lane enters its window, or at the start where it is inside already;
// not in an epoch whose last batches leave its window out. One thread. O(shards) memory; O(shards
// log shards) time an epoch.
class ShardReads {
 public:
  // `position` is one of `epoch`, at most EpochPositions(plan).
  ShardReads(Order order, const BatchPlan& plan, uint64_t epoch, uint64_t position);
  // False when the rank's lanes have no samples: then there is never anything.
  bool Next(ShardRead* read);

 private:
  // The windows of one epoch, as ranges of its positions.
  std::vector<ShardRead> ReadsOf(uint64_t epoch) const;
  void Load(uint64_t epoch, uint64_t position);

  const Order order_;
  const BatchPlan plan_;
  uint64_t epoch_ = 0;
  size_t next_ = 0;
  std::vector<ShardRead> reads_;      // of epoch_, by first_use
  std::vector<ShardRead> following_;  // of the epoch after it
};

}  // namespace headrace::loader
