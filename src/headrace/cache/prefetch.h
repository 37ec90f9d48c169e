// Brings blocks to the node's disk before they are read, since the order of reads is known: by
// deadline, each block once per node, neighbours in one request, never more ahead than allowed. It
// also tells the cache when each block is needed next, so that what is evicted is what is needed
// last. Without a disk it brings them to memory: as much as fits, until their last use.
//
// A prefetcher that fails, or is not there, costs time and nothing else: what it has not brought is
// fetched when it is read.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>

#include "headrace/cache/caching_store.h"

namespace headrace::cache {

// A range that will be read. Positions count what the reader consumes, in any unit (samples, say),
// on over all epochs.
struct PlannedRead {
  static constexpr uint64_t kUnknown = std::numeric_limits<uint64_t>::max();
  std::string key;
  uint64_t offset = 0, length = 0;
  uint64_t first_use = 0;        // position that needs it first: the deadline
  uint64_t last_use = 0;         // from the position after this one on it is not needed
  uint64_t next_use = kUnknown;  // then it is needed again here, in the next epoch
};

// The plan, in order of first_use. Called by one thread at a time, under no lock.
class PlanSource {
 public:
  virtual ~PlanSource() = default;
  // Returns false at the end of the plan. Should go on into the next epoch.
  virtual bool Next(PlannedRead* read) = 0;
};

// The bounds of a prefetcher. They may be changed while it runs.
struct PrefetchLimits {
  // Planned bytes that are brought before the reader needs them: at most this, and at most 1/256 of
  // the cache (but 4 blocks), since their room is taken from what the next epoch would find.
  uint64_t ahead_bytes = uint64_t{1} << 30;
  uint64_t in_flight_bytes = 128 << 20;  // of fetches under way, but for the last one begun
  uint32_t max_requests = 32;            // at once: fewer where the store does not bear them
};

struct PrefetchOptions {
  PrefetchLimits limits = {};
  uint32_t first_requests = 8;  // at once, to begin with
  // Where next_use is unknown: how many positions an epoch has. 0: unknown too; LRU then.
  uint64_t positions_per_epoch = 0;
  // kFarther: what is needed next takes the place of what is needed last. For ranges that are read
  // within a short time, and are then not needed until the next epoch.
  // kUnclaimed: what is once here stays, and ranges for which there is no room are not brought: the
  // reader reads of them what it needs. For ranges that are all needed, a bit at a time, over much
  // of an epoch, so that bringing one would cost as many bytes as it saves.
  Displace displace = Displace::kFarther;
  // Without a disk: what the blocks of planned ranges take at once (BufferPool::CapacityFor each),
  // those ahead included; the cache must have lent it. The plan goes on when the reader is past
  // enough of them. A range that is larger is not brought.
  uint64_t memory_bytes = 0;
};

struct PrefetchCounters {
  uint64_t planned_blocks = 0;
  uint64_t present_blocks = 0;  // were on the disk already
  uint64_t fetched_blocks = 0;
  uint64_t refused_blocks = 0;  // the cache had no room or did not work
  uint64_t late_blocks = 0;     // the reader was past them before they were asked for
  uint64_t failed_blocks = 0;   // the origin's errors; the reader will meet them, or not
  uint64_t overloads = 0;       // how often the number of requests was halved
  uint32_t request_limit = 0;   // now
};

class Prefetcher {
 public:
  // Takes a thread. kResourceExhausted when it is refused; kUnavailable when the store has no cache
  // in this process, or neither a disk nor memory to bring blocks to.
  static Result<std::unique_ptr<Prefetcher>> Start(std::shared_ptr<CachingStore> store,
                                                   std::unique_ptr<PlanSource> plan,
                                                   const PrefetchOptions& options);
  // Begins nothing more; what is being fetched goes on to the disk.
  virtual ~Prefetcher() = default;

  // The reader will soon read, or reads, what is before `position`: so far at least the cache is
  // told what it reads. Any thread; cheap.
  virtual void Reach(uint64_t position) = 0;
  // The reader has consumed everything before `position`. Any thread; cheap.
  virtual void Advance(uint64_t position) = 0;
  // Says that a block, if it is on the disk, is needed at `position`, which the plan has not come
  // to: what was there before the plan began is kept. Any thread.
  virtual void Keep(const BlockId& id, uint64_t position) = 0;
  // That was all. With kUnclaimed nothing is displaced before this.
  virtual void EndKeep() = 0;
  // Keeps to these from now on; what is asked for already goes on. Any thread.
  virtual void SetLimits(const PrefetchLimits& limits) = 0;
  virtual PrefetchCounters counters() const = 0;
  // Empty, or the latest failure of the origin.
  virtual Status last_failure() const = 0;
};

}  // namespace headrace::cache
