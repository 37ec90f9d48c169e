// The reads of a rank as a cache wants to know them: ShardReads, and where each shard lies. One
// thread at a time.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "headrace/cache/prefetch.h"
#include "headrace/dataset/dataset.h"
#include "headrace/loader/plan/held_shards.h"

namespace headrace::loader {

// The shards' objects in one store that has a cache.
struct ShardObjects {
  std::shared_ptr<cache::CachingStore> store;
  std::vector<std::string> keys;  // one a shard; empty: not in this store, so not planned
  std::vector<uint64_t> bytes;    // one a shard
  // One a shard: the object is the shard compressed, which is read at once and then held unpacked.
  std::vector<bool> is_packed;
};
// Null when the shards are not read through a cache: they are files of this machine, or their
// samples are files of their own, which are too many to plan.
std::shared_ptr<const ShardObjects> FindShardObjects(const dataset::Dataset& dataset);

// Whole shards: where in its window a sample is read only the mixing knows, so that all of the
// window's blocks are needed as long as the rank is inside.
std::unique_ptr<cache::PlanSource> MakeReadPlan(const Order& order, const BatchPlan& plan,
                                                uint64_t epoch, uint64_t position,
                                                std::shared_ptr<const ShardObjects> objects);

// Those shards alone that memory holds, for a cache without a disk. `held.shard_bytes` is what
// their blocks take.
std::unique_ptr<cache::PlanSource> MakeHeldPlan(const Order& order, const BatchPlan& plan,
                                                const HeldShardsOptions& held, uint64_t epoch,
                                                uint64_t position,
                                                std::shared_ptr<const ShardObjects> objects);
// What the blocks of each shard take in memory; 0 of those that are not to be held there: packed
// ones, those of another store, and those that take more than `limit_bytes`.
std::vector<uint64_t> MemoryOfShards(const ShardObjects& objects, uint64_t limit_bytes);
// What the rank has of a cache of `limit_bytes` that `node_ranks` ranks of this node share: those
// with lanes of their own share the room, those that take the same lanes share what is in it.
uint64_t ShareOfCache(const Order& order, const BatchPlan& plan, uint64_t limit_bytes,
                      uint32_t node_ranks);
// What the plan may take the place of in a cache of `limit_bytes` that `node_ranks` ranks of this
// node share. kFarther where all shards fit, or where those that the rank is inside of at once are
// so few that holding them costs less than a hundredth of the hits; else kUnclaimed.
cache::Displace DisplaceFor(const Order& order, const BatchPlan& plan, const ShardObjects& objects,
                            uint64_t limit_bytes, uint32_t node_ranks);

}  // namespace headrace::loader
