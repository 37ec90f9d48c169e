// Which of the shards that a rank reads a memory of so many bytes can hold whole, each as long as
// the rank is inside its window: so that a shard is brought in large parts, once, and every sample
// of it is then there. Of the others the rank reads each sample by itself. Decided in the order in
// which the rank comes to them, and by nothing else, so that all who ask get the same answer
// without talking to each other. Pure; one thread. docs/design/prefetch.md says how it is used.
//
// Positions run on over epochs, as those of ShardReads.
#pragma once

#include <cstdint>
#include <functional>
#include <queue>
#include <unordered_map>
#include <utility>
#include <vector>

#include "headrace/loader/plan/shard_reads.h"

namespace headrace::loader {

struct HeldShardsOptions {
  std::vector<uint64_t> shard_bytes;  // what each takes; 0: it cannot be held
  uint64_t limit_bytes = 0;
  // So many positions before its window begins a shard must have its room: readers are ahead of
  // what was delivered, and rooms are free again when all of them was.
  uint64_t lead = 0;
};

class HeldShards {
 public:
  // Arguments as those of ShardReads.
  HeldShards(const Order& order, const BatchPlan& plan, HeldShardsOptions options, uint64_t epoch,
             uint64_t position);

  // The next shard that the rank comes to, as ShardReads::Next, and whether it is held. One that
  // the rank reads a part of only is not: the rest would be fetched for nothing.
  bool Next(ShardRead* read, bool* is_held);
  // Taken by what is held at the place of the last Next.
  uint64_t held_bytes() const { return held_bytes_; }

 private:
  bool Hold(const ShardRead& read);
  void LetGo(uint64_t position);

  const HeldShardsOptions options_;
  ShardReads reads_;
  uint64_t held_bytes_ = 0;
  std::unordered_map<uint32_t, uint64_t> until_;  // last use, of each shard that is held
  using End = std::pair<uint64_t, uint32_t>;      // last use, shard; some are not the latest word
  std::priority_queue<End, std::vector<End>, std::greater<>> ends_;
};

// The most that would be held from a place on if there were no limit, with an eighth more for what
// other epochs put together.
uint64_t MemoryWanted(const Order& order, const BatchPlan& plan, HeldShardsOptions options,
                      uint64_t epoch, uint64_t position);

// The same for those who ask for shards by their numbers, of an epoch or one soon after it.
class HeldShardTable {
 public:
  HeldShardTable(const Order& order, const BatchPlan& plan, const HeldShardsOptions& options,
                 uint64_t epoch, uint64_t position);
  // False too of epochs before the first, of those that are long over, and of those far ahead.
  bool IsHeld(uint64_t epoch, uint32_t shard);

 private:
  // More than a loader may be in at once.
  static constexpr uint64_t kEpochs = 32, kMostAhead = 16;
  void Load(uint64_t epoch);

  const uint64_t epoch_length_;
  HeldShards shards_;
  uint64_t next_epoch_;                  // to be loaded
  std::vector<std::vector<bool>> held_;  // of the epochs before it, by epoch modulo kEpochs
  bool has_pending_ = false, pending_is_held_ = false;
  ShardRead pending_;  // of next_epoch_, or of one after it
};

}  // namespace headrace::loader
