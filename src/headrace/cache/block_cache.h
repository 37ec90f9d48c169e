// Reads of immutable objects, block by block, from the nearest place that has them: memory, the
// node's disk, the origin. What is missing is fetched once: threads that want the same block share
// one fetch, other processes of the node are waited for, and neighbours are fetched in one request.
// Whatever the disk does, a reader gets the right bytes or the origin's error.
//
// Without a directory there is memory alone. What a plan expects has room there until it is
// released, however early it comes: plans expect no more than they were lent. A block that none
// expects is fetched for kKeepIfRoom only beside those. docs/decisions/0053-memory-by-plan.md.
//
// Thread-safe. All stores of a process share one. Not for use in a child forked after it was made:
// make another one there (ProcessCache). docs/design/threads.md has its threads.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "headrace/base/counter.h"
#include "headrace/base/mutex.h"
#include "headrace/cache/buffer_pool.h"
#include "headrace/cache/cached_object.h"
#include "headrace/cache/disk_tier.h"
#include "headrace/cache/memory_tier.h"
#include "headrace/cache/policy/latency_quantile.h"
#include "headrace/cache/ranges_ahead.h"
#include "headrace/cache/work_queue.h"

namespace headrace::cache {

struct BlockCacheOptions {
  FileSystem* fs = nullptr;               // null: the operating system's
  NodeCacheOptions node;                  // as DiskTier::Open; no directory: no tier on disk
  uint64_t memory_bytes = 256 << 20;      // of the memory tier; 0: none
  int threads = 4;                        // read the disk, write it, copy to readers
  uint64_t max_request_bytes = 16 << 20;  // missing neighbours are fetched together up to this
  uint64_t max_fetch_bytes = 256 << 20;   // being fetched and written at once; more waits
  // Another process that fetches a block is waited for so long; then the origin is read without it.
  uint64_t patience_ms = 30000;
  uint64_t max_ahead_bytes = 64 << 20;  // of ranges that wait for their readers: WillRead
  bool hedge = true;  // asks a second time when an answer is later than nearly all others were
  // Readers of a dataset keep seek points that its index lacks beside the blocks (side_file.h).
  bool keep_seek_points = true;
};

// Counts since the cache was made.
struct CacheCounters {
  // Of blocks that a read touched, each in one of them.
  Counter memory_hits, disk_hits, misses;
  Counter memory_bytes, disk_bytes;       // given to readers from there
  Counter origin_bytes, origin_requests;  // fetched, whoever wanted them
  Counter streamed_bytes;                 // of these: went to a reader without being cached
  Counter waits;                          // blocks that another process was fetching
  Counter hedges, hedge_bytes;            // second requests; their bytes are in origin_bytes too
  Counter prefetched_bytes;               // fetched ahead of a reader
  Counter unused_bytes;                   // of these: given up before any reader came
  NodeCacheCounters node;

  CacheCounters& operator+=(const CacheCounters& other);
};

class BlockCache {
 public:
  using ReadDone = std::function<void(Status)>;

  // As DiskTier::Open; kResourceExhausted when threads are refused.
  static Result<std::unique_ptr<BlockCache>> Create(BlockCacheOptions options);
  // Ends fetches with kCancelled and waits for all calls.
  ~BlockCache();

  // Fills `out` from `offset`, all inside the object. `done` is called once on a thread of the
  // cache or of the origin; it must not block. Failures are those of ObjectStore::SubmitGets.
  void Read(std::shared_ptr<const CachedObject> object, uint64_t offset, MutableBytes out,
            const Context& ctx, ReadDone done);

  // Fills `out` from the tier in memory, on the caller's thread and without waiting. False, with
  // nothing counted and `out` unspecified, when not all of it is there: Read brings it then.
  bool ReadFromMemory(const CachedObject& object, uint64_t offset, MutableBytes out)
      HR_EXCLUDES(mu_);

  // Says that this range, or parts of it, will be read soon. What of it is not here, and the cache
  // would not keep, is brought into memory, so that readers need not wait for it. A hint: returns
  // at once, and does nothing when too many bytes wait for their readers.
  void WillRead(std::shared_ptr<const CachedObject> object, uint64_t offset, uint64_t length,
                Caching caching);

  // A block that will be read.
  struct Wanted {
    std::shared_ptr<const CachedObject> object;
    uint64_t number = 0;
    ExpectedUse use;
    Displace displace = Displace::kFarther;
    uint64_t last_use = 0;  // as of Expect
  };
  enum class Fetched : uint8_t { kWasHere, kFetched, kRefused, kFailed };
  // Brings blocks to the disk; those that there is no room for are not fetched. Without a disk
  // brings those that are expected to memory. `done` is called once for each, with its place in
  // `wanted` and, for kFailed, the origin's error. Neighbours that are wanted together are fetched
  // together.
  using FetchDone = std::function<void(size_t, Fetched, const Status&)>;
  void Prefetch(std::vector<Wanted> wanted, FetchDone done);
  // Readers will come for this block, until `last_use`: whoever brings it meanwhile keeps it for
  // then. In memory the block whose last use is soonest stays. Until Release.
  void Expect(const BlockId& id, const ExpectedUse& use, Displace displace, uint64_t last_use);
  // No reader will come for this block soon. Counts it as unused when it was fetched ahead and
  // never read.
  void Release(const BlockId& id, const ExpectedUse& next);
  // Says when the block is needed, if it is on the disk and not expected.
  void SetUse(const BlockId& id, const ExpectedUse& use);

  // A reader found the block's bytes to be wrong, as they came: the next read fetches it anew.
  // Waits while it is being written.
  void Forget(const BlockId& id);

  // Memory for what a plan expects: up to `wanted` bytes of what no other plan has been lent, until
  // they are given back. When no plan has any more, what they have left behind goes.
  uint64_t Lend(uint64_t wanted) HR_EXCLUDES(mu_);
  void GiveBack(uint64_t bytes) HR_EXCLUDES(mu_);
  // True when each block of the range is expected by a plan, or being fetched.
  bool Holds(const CachedObject& object, uint64_t offset, uint64_t length) HR_EXCLUDES(mu_);
  // Counts a read that goes to the origin without this cache, for the cache that it goes past: what
  // it returns is to be called in place of `done`, once, before this cache can end.
  object::ObjectStore::GetDone CountPast(uint64_t blocks, uint64_t bytes,
                                         object::ObjectStore::GetDone done);

  DiskTier* node() { return node_.get(); }  // null without a directory
  uint64_t memory_limit_bytes() const { return memory_.limit_bytes(); }
  // What the blocks in memory take now; and what those take that are expected or being fetched,
  // each counted once.
  uint64_t memory_bytes() { return memory_.bytes(); }
  uint64_t held_bytes() HR_EXCLUDES(mu_);
  CacheCounters counters() const;
  // Waits until nothing is under way: what was fetched has come to the disk, or was refused. For
  // processes that read a little and end. False when `timeout` passed first.
  bool WaitUntilIdle(std::chrono::nanoseconds timeout) HR_EXCLUDES(mu_);

 private:
  struct Request;
  struct Part;
  struct Prefetching;
  struct Flight;
  struct Missed;
  struct Run;
  using FlightPtr = std::shared_ptr<Flight>;
  using RunPtr = std::shared_ptr<Run>;

  explicit BlockCache(BlockCacheOptions options);

  // Readers: block_cache.cc.
  void ReadBlocks(std::shared_ptr<const CachedObject> object, uint64_t offset, MutableBytes out,
                  const Context& ctx, ReadDone done);
  bool ReadAhead(const std::shared_ptr<const CachedObject>& object, uint64_t offset,
                 MutableBytes out, const Context& ctx, ReadDone& done);
  bool IsHere(const CachedObject& object, uint64_t offset, uint64_t length) HR_EXCLUDES(mu_);
  void Serve(std::vector<Part> parts);
  bool ServeFromMemory(const Part& part);
  Status ServeFromDisk(const Part& part);
  bool SettleUnlessMissing(const Part& part, Status status);
  void Join(std::vector<Part> misses);
  bool JoinOne(Part& part, Missed* missed) HR_EXCLUDES(mu_);
  void PrefetchOne(const Wanted& one, const Prefetching& teller, std::vector<FlightPtr>* fresh)
      HR_EXCLUDES(mu_);
  void PrefetchToMemory(const Wanted& one, const Prefetching& teller, std::vector<FlightPtr>* fresh)
      HR_EXCLUDES(mu_);
  FlightPtr BeginFlight(const std::shared_ptr<const CachedObject>& object, const BlockId& id)
      HR_REQUIRES(mu_);
  void Copy(const Part& part, Bytes block) const;
  void CountMemoryHit(const BlockId& id, uint64_t bytes) HR_EXCLUDES(mu_);
  void Settle(const Part& part, Status status);
  void NoteRead(const BlockId& id) HR_EXCLUDES(mu_);
  bool HasRoomFor(const Part& part, uint64_t booked);
  uint64_t BookedBytes() HR_EXCLUDES(mu_);
  void ServeAgain(std::vector<Part> parts);

  // Plans: block_expect.cc.
  void Hold(const BlockId& id) HR_REQUIRES(mu_);
  void LetGo(const BlockId& id) HR_REQUIRES(mu_);
  std::optional<ExpectedUse> ExpectedUseOf(const BlockId& id) HR_EXCLUDES(mu_);
  void ChangeUse(const BlockId& id, const ExpectedUse& use) HR_EXCLUDES(mu_);

  // Fetches: block_fetch.cc.
  void Launch(std::vector<FlightPtr> flights) HR_EXCLUDES(mu_);
  bool ClaimFlight(const FlightPtr& flight, std::vector<Part>* stream) HR_EXCLUDES(mu_);
  bool ClaimInMemory(const FlightPtr& flight, std::vector<Part>* stream) HR_EXCLUDES(mu_);
  void FetchTogether(std::vector<FlightPtr> flights) HR_EXCLUDES(mu_);
  void SubmitOrQueue(RunPtr run) HR_EXCLUDES(mu_);
  void SubmitRun(const RunPtr& run, bool hedge);
  void RunDone(const RunPtr& run, bool hedge, const Result<object::ObjectInfo>& result);
  void Deliver(const RunPtr& run);
  void DeliverFlight(const RunPtr& run, const FlightPtr& flight);
  void KeepInMemory(const FlightPtr& flight, std::shared_ptr<const BlockBytes> block,
                    std::optional<uint64_t> needed_until) HR_EXCLUDES(mu_);
  void NotePrefetched(const FlightPtr& flight) HR_REQUIRES(mu_);
  void AdmitFlight(const FlightPtr& flight);
  void EndRun(const RunPtr& run) HR_EXCLUDES(mu_);
  void FailFlight(const FlightPtr& flight, const Status& status) HR_EXCLUDES(mu_);
  std::vector<Part> Remove(const FlightPtr& flight) HR_EXCLUDES(mu_);
  void Erase(const FlightPtr& flight) HR_REQUIRES(mu_);
  void Stream(std::vector<Part> parts);
  void StreamTogether(std::vector<Part> parts);
  void Streamed(const std::vector<Part>& parts, uint64_t bytes,
                const Result<object::ObjectInfo>& result);
  void EndFlight(const FlightPtr& flight, std::vector<Part>* stream);
  void TellPrefetchers(const FlightPtr& flight, Fetched how, const Status& status);

  // The watcher's thread: block_watch.cc.
  void Watch();
  size_t AskAgain() HR_EXCLUDES(mu_);
  void EndExpired() HR_EXCLUDES(mu_);
  void HedgeLate() HR_EXCLUDES(mu_);

  void Begin(uint64_t calls = 1) HR_EXCLUDES(mu_);
  void End() HR_EXCLUDES(mu_);
  void Post(WorkQueue::Urgency urgency, std::function<void()> task) HR_EXCLUDES(mu_);

  const BlockCacheOptions options_;
  BufferPool buffers_;
  MemoryTier memory_;
  RangesAhead ahead_;
  std::unique_ptr<DiskTier> node_;
  std::atomic<bool> stopping_{false};  // the cancel flag of fetches

  Mutex mu_;  // order: none is taken under it; no I/O, no call-back
  CondVar idle_cv_, watch_cv_, flight_cv_;
  uint64_t under_way_ HR_GUARDED_BY(mu_) = 0;  // calls and tasks that must end before this does
  std::unordered_map<BlockId, FlightPtr, BlockIdHash> flights_ HR_GUARDED_BY(mu_);
  std::vector<FlightPtr> waiting_ HR_GUARDED_BY(mu_);  // for another process
  std::vector<RunPtr> running_ HR_GUARDED_BY(mu_), queued_ HR_GUARDED_BY(mu_);
  uint64_t fetch_bytes_ HR_GUARDED_BY(mu_) = 0;
  uint64_t booked_bytes_ HR_GUARDED_BY(mu_) = 0;  // what the flights will take of the disk
  LatencyQuantile latency_ HR_GUARDED_BY(mu_);
  bool watch_ends_ HR_GUARDED_BY(mu_) = false;
  std::unordered_map<BlockId, uint32_t, BlockIdHash> unread_ HR_GUARDED_BY(mu_);  // prefetched
  struct Expected {
    ExpectedUse use;
    Displace displace = Displace::kFarther;
    uint64_t last_use = 0;
  };
  std::unordered_map<BlockId, Expected, BlockIdHash> expected_ HR_GUARDED_BY(mu_);
  uint64_t held_bytes_ HR_GUARDED_BY(mu_) = 0;  // of blocks in expected_ or flights_
  uint64_t lent_bytes_ HR_GUARDED_BY(mu_) = 0;
  std::atomic<uint64_t> num_unread_{0};

  CacheCounters counts_;  // without those of the disks

  std::unique_ptr<WorkQueue> work_;
  std::unique_ptr<Thread> watcher_;  // last: joined first
};

}  // namespace headrace::cache
