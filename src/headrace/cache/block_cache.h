// Reads of immutable objects, block by block, from the nearest place that has them: memory, the
// node's disk, the origin. What is missing is fetched once: threads that want the same block share
// one fetch, other processes of the node are waited for, and neighbours are fetched in one request.
// Whatever the disk does, a reader gets the right bytes or the origin's error.
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

#include "headrace/base/mutex.h"
#include "headrace/cache/cached_object.h"
#include "headrace/cache/memory_tier.h"
#include "headrace/cache/node_cache.h"
#include "headrace/cache/policy/latency_quantile.h"
#include "headrace/cache/work_queue.h"

namespace headrace::cache {

struct BlockCacheOptions {
  FileSystem* fs = nullptr;               // null: the operating system's
  NodeCacheOptions node;                  // without a directory there is no tier on disk
  uint64_t memory_bytes = 256 << 20;      // of the memory tier; 0: none
  int threads = 4;                        // read the disk, write it, copy to readers
  uint64_t max_request_bytes = 16 << 20;  // missing neighbours are fetched together up to this
  uint64_t max_fetch_bytes = 256 << 20;   // being fetched and written at once; more waits
  // Another process that fetches a block is waited for so long; then the origin is read without it.
  uint64_t patience_ms = 30000;
  bool hedge = true;  // asks a second time when an answer is later than nearly all others were
};

// Counts since the cache was made.
struct CacheCounters {
  uint64_t memory_hits = 0, disk_hits = 0, misses = 0;  // of blocks that a read touched
  uint64_t memory_bytes = 0, disk_bytes = 0;            // given to readers from there
  uint64_t origin_bytes = 0, origin_requests = 0;       // fetched, whoever wanted them
  uint64_t streamed_bytes = 0;           // of these: went to a reader without being cached
  uint64_t waits = 0;                    // blocks that another process was fetching
  uint64_t hedges = 0, hedge_bytes = 0;  // second requests; their bytes are in origin_bytes too
  uint64_t prefetched_bytes = 0;         // fetched ahead of a reader
  uint64_t unused_bytes = 0;             // of these: given up before any reader came
  NodeCacheCounters node;
};

class BlockCache {
 public:
  using ReadDone = std::function<void(Status)>;

  // As NodeCache::Open; kResourceExhausted when threads are refused.
  static Result<std::unique_ptr<BlockCache>> Create(BlockCacheOptions options);
  // Ends fetches with kCancelled and waits for all calls.
  ~BlockCache();

  // Fills `out` from `offset`, all inside the object. `done` is called once on a thread of the
  // cache or of the origin; it must not block. Failures are those of ObjectStore::SubmitGets.
  void Read(std::shared_ptr<const CachedObject> object, uint64_t offset, MutableBytes out,
            const Context& ctx, ReadDone done);

  // A block that will be read.
  struct Wanted {
    std::shared_ptr<const CachedObject> object;
    uint64_t number = 0;
    ExpectedUse use;
  };
  enum class Fetched : uint8_t { kWasHere, kFetched, kRefused, kFailed };
  // Brings blocks to the disk. `done` is called once for each, with its place in `wanted` and, for
  // kFailed, the origin's error. Neighbours that are wanted together are fetched together.
  using FetchDone = std::function<void(size_t, Fetched, const Status&)>;
  void Prefetch(std::vector<Wanted> wanted, FetchDone done);
  // No reader will come for this block soon. Counts it as unused when it was fetched ahead and
  // never read.
  void Release(const BlockId& id, const ExpectedUse& next);
  // Says when the block is needed, if it is on the disk.
  void SetUse(const BlockId& id, const ExpectedUse& use);

  NodeCache* node() { return node_.get(); }  // null without a directory
  CacheCounters counters() const;

 private:
  struct Request;
  struct Part;
  struct Flight;
  struct Run;
  using FlightPtr = std::shared_ptr<Flight>;
  using RunPtr = std::shared_ptr<Run>;

  explicit BlockCache(BlockCacheOptions options);

  // Readers: block_cache.cc.
  void Serve(std::vector<Part> parts);
  bool ServeFromMemory(const Part& part);
  Status ServeFromDisk(const Part& part);
  void Join(std::vector<Part> misses);
  void Copy(const Part& part, Bytes block) const;
  void Settle(const Part& part, Status status);
  void NoteRead(const BlockId& id) HR_EXCLUDES(mu_);
  void ServeAgain(std::vector<Part> parts);

  // Fetches: block_fetch.cc.
  void Launch(std::vector<FlightPtr> flights) HR_EXCLUDES(mu_);
  bool ClaimFlight(const FlightPtr& flight, std::vector<Part>* stream) HR_EXCLUDES(mu_);
  void FetchTogether(std::vector<FlightPtr> flights) HR_EXCLUDES(mu_);
  void SubmitOrQueue(RunPtr run) HR_EXCLUDES(mu_);
  void SubmitRun(const RunPtr& run, bool hedge);
  void RunDone(const RunPtr& run, bool hedge, const Result<object::ObjectInfo>& result);
  void Deliver(const RunPtr& run);
  void DeliverFlight(const RunPtr& run, const FlightPtr& flight);
  void AdmitFlight(const FlightPtr& flight);
  void EndRun(const RunPtr& run) HR_EXCLUDES(mu_);
  void FailFlight(const FlightPtr& flight, const Status& status) HR_EXCLUDES(mu_);
  std::vector<Part> Remove(const FlightPtr& flight) HR_EXCLUDES(mu_);
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
  MemoryTier memory_;
  std::unique_ptr<NodeCache> node_;
  std::atomic<bool> stopping_{false};  // the cancel flag of fetches

  Mutex mu_;  // order: none is taken under it; no I/O, no call-back
  CondVar idle_cv_, watch_cv_;
  uint64_t under_way_ HR_GUARDED_BY(mu_) = 0;  // calls and tasks that must end before this does
  std::unordered_map<BlockId, FlightPtr, BlockIdHash> flights_ HR_GUARDED_BY(mu_);
  std::vector<FlightPtr> waiting_ HR_GUARDED_BY(mu_);  // for another process
  std::vector<RunPtr> running_ HR_GUARDED_BY(mu_), queued_ HR_GUARDED_BY(mu_);
  uint64_t fetch_bytes_ HR_GUARDED_BY(mu_) = 0;
  LatencyQuantile latency_ HR_GUARDED_BY(mu_);
  bool watch_ends_ HR_GUARDED_BY(mu_) = false;
  std::unordered_map<BlockId, uint32_t, BlockIdHash> unread_ HR_GUARDED_BY(mu_);  // prefetched
  std::atomic<uint64_t> num_unread_{0};

  struct AtomicCounters {
    std::atomic<uint64_t> memory_hits{0}, disk_hits{0}, misses{0}, memory_bytes{0}, disk_bytes{0},
        origin_bytes{0}, origin_requests{0}, streamed_bytes{0}, waits{0}, hedges{0}, hedge_bytes{0},
        prefetched_bytes{0}, unused_bytes{0};
  };
  mutable AtomicCounters counts_;

  std::unique_ptr<WorkQueue> work_;
  std::unique_ptr<Thread> watcher_;  // last: joined first
};

}  // namespace headrace::cache
