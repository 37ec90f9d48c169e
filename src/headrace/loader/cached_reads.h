// What a loader does for shards that are read through the node's cache: it hands over its plan,
// says how far it is, and reports what the cache gave. Where there is memory alone, it chooses the
// shards that are held there, and all else is read without it. docs/design/prefetch.md.
//
// Begin and Advance are called one by one; the others from any thread. Not for use in a forked
// child.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "headrace/base/context.h"
#include "headrace/base/mutex.h"
#include "headrace/base/status.h"
#include "headrace/cache/prefetch.h"
#include "headrace/env/process.h"
#include "headrace/loader/batch.h"
#include "headrace/loader/live_settings.h"
#include "headrace/loader/plan/held_shards.h"
#include "headrace/loader/read_plan.h"

namespace headrace::loader {

struct CacheOptions {
  // Bounds of what is fetched before it is needed. 0 bytes: nothing is.
  cache::PrefetchLimits prefetch;
  uint32_t node_ranks = 1;  // ranks of this job that share this node's cache
  // Begin fails at first when something that the epoch reads is not in the cache.
  bool require_warm = false;
};

struct CacheStats {
  bool has_cache = false;  // the shards are read through a cache; else all else is 0
  bool in_memory = false;  // of memory alone
  bool has_plan = false;   // it was handed the plan: the cache's disk works, or it has room
  bool keeps_all = false;  // the plan displaces nothing (cache::Displace::kUnclaimed)
  uint64_t epoch = 0;
  uint64_t epoch_bytes = 0;  // of the shards that this rank reads in the epoch
  // Of these: were not in the cache when the epoch began, so that they come from the origin. Empty
  // while they are being counted.
  std::optional<uint64_t> expected_origin_bytes;
  uint64_t epoch_origin_bytes = 0;   // fetched since the epoch began, by this process
  uint64_t limit_bytes = 0;          // what the cache may take; 0: its disk does not work
  uint64_t share_bytes = 0;          // of these: this rank's (ShareOfCache)
  cache::CacheCounters cache;        // of this process, since the loader began
  cache::PrefetchCounters prefetch;  // of the plan
};

class CachedReads {
 public:
  // Null when the shards are not read through a cache.
  static std::unique_ptr<CachedReads> Create(std::shared_ptr<const dataset::Dataset> dataset,
                                             const Order& order, const BatchPlan& plan,
                                             const CacheOptions& options);
  ~CachedReads() { Close(); }

  // The loader goes to a position. Starts the plan there, unless it is where the last one has come
  // to. A cache that does not work is no failure.
  //   kFailedPrecondition  require_warm: says how many bytes are missing and how to bring them.
  //   others               require_warm: the origin's.
  Status Begin(uint64_t epoch, uint64_t position, const Context& ctx);
  // Batches up to this position, which may be the epoch's end, are going to be read. Any thread.
  void Reach(uint64_t epoch, uint64_t position);
  // All before this position was delivered; it may be the epoch's end.
  void Advance(uint64_t epoch, uint64_t position);
  // How the sample of a row is to be read.
  Caching CachingOf(const Batch& batch, const BatchRow& row) const HR_EXCLUDES(held_mu_);
  // True where nothing is kept but in memory.
  bool in_memory() const { return objects_->store->planned_alone(); }
  // Changes one of the bounds of what is fetched ahead, to what is in its budget; returns what it
  // was. Any thread.
  uint64_t ChangeLimit(LiveSetting setting, uint64_t value);
  cache::PrefetchLimits limits() const;
  // True when the cache does not hold all of what is read: samples are then to be told of ahead.
  bool keeps_all() const { return keeps_all_; }
  CacheStats stats() const;
  // Ends the plan. Idempotent.
  void Close();

 private:
  CachedReads(std::shared_ptr<const dataset::Dataset> dataset, const Order& order,
              const BatchPlan& plan, const CacheOptions& options,
              std::shared_ptr<const ShardObjects> objects)
      : dataset_(std::move(dataset)),
        order_(order),
        plan_(plan),
        options_(options),
        objects_(std::move(objects)),
        limits_(options.prefetch) {}

  Status CheckWarm(uint64_t epoch, uint64_t position, const Context& ctx) const;
  std::string WarmCommand(uint64_t epoch, const std::string& directory) const;
  void Start(uint64_t epoch, uint64_t position) HR_REQUIRES(mu_);
  cache::PrefetchOptions OptionsOfPlan() const HR_REQUIRES(mu_);
  void StartOnDisk(uint64_t epoch, uint64_t position) HR_REQUIRES(mu_);
  void StartInMemory(uint64_t epoch, uint64_t position) HR_REQUIRES(mu_) HR_EXCLUDES(held_mu_);
  void Stop() HR_REQUIRES(mu_) HR_EXCLUDES(held_mu_);
  // `origin_bytes`: what this process had fetched before anything was for this epoch.
  void BeginEpoch(uint64_t epoch, uint64_t position, uint64_t origin_bytes) HR_REQUIRES(mu_);
  void Count(uint64_t epoch, uint64_t position, cache::Prefetcher* prefetcher);
  void CountAll(uint64_t epoch, uint64_t position);
  cache::CacheCounters Counters() const;

  const std::shared_ptr<const dataset::Dataset> dataset_;
  const Order order_;
  const BatchPlan plan_;
  const CacheOptions options_;
  const std::shared_ptr<const ShardObjects> objects_;
  std::atomic<bool> stop_counting_{false};
  // Of the epoch: what the thread that counts has found, and whether that is all.
  std::atomic<uint64_t> epoch_bytes_{0}, missing_bytes_{0};
  std::atomic<bool> counted_{false}, keeps_all_{false};

  mutable Mutex mu_;  // order: none is taken under it by the loader. Threads are joined under it
  cache::PrefetchLimits limits_ HR_GUARDED_BY(mu_);
  bool begun_ HR_GUARDED_BY(mu_) = false, closed_ HR_GUARDED_BY(mu_) = false;
  uint64_t cursor_ HR_GUARDED_BY(mu_) = 0;  // running position of the next sample to deliver
  uint64_t epoch_ HR_GUARDED_BY(mu_) = 0;
  uint64_t epoch_origin_base_ HR_GUARDED_BY(mu_) = 0;
  cache::CacheCounters base_ HR_GUARDED_BY(mu_);
  std::unique_ptr<cache::Prefetcher> prefetcher_ HR_GUARDED_BY(mu_);
  std::unique_ptr<Thread> counter_ HR_GUARDED_BY(mu_);  // ends before the prefetcher
  uint64_t lent_bytes_ HR_GUARDED_BY(mu_) = 0;          // by the cache, for the plan

  mutable Mutex held_mu_;  // order: under mu_; none is taken under it
  // Null: no shard is held, or there is a disk.
  std::unique_ptr<HeldShardTable> held_ HR_GUARDED_BY(held_mu_);
};

}  // namespace headrace::loader
