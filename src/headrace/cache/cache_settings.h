// What a user says about storage, by names or by environment: how URLs are reached, and the cache
// of this node that is read through, or the memory that plans read through without one.
// Thread-safe; works in forked children, which make a cache of their own.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "headrace/base/mutex.h"
#include "headrace/cache/caching_store.h"
#include "headrace/cache/side_file.h"
#include "headrace/object/url_settings.h"

namespace headrace::cache {

// Settings by name: cache_dir, cache_bytes ("500GiB"; 0: what the directory was last given),
// cache_memory_bytes (of each process), cache_seek_points ("true" or "false"). What is not named
// comes from HEADRACE_CACHE_DIR, HEADRACE_CACHE_BYTES, HEADRACE_CACHE_MEMORY_BYTES and
// HEADRACE_CACHE_SEEK_POINTS; without a directory nothing is kept but in memory.
// kInvalidArgument: a name that is none, a value that cannot be read.
Result<BlockCacheOptions> ReadCacheSettings(const std::map<std::string, std::string>& named);

// A cache that is made when a store is first opened through it: who reads no URL has none.
class CacheOnDemand {
 public:
  explicit CacheOnDemand(BlockCacheOptions options);

  // Makes the cache. Failures are those of BlockCache::Create; the next call tries again.
  Result<std::shared_ptr<ProcessCache>> Get();
  // What this process has counted so far; zeros while there is no cache.
  CacheCounters counters();
  // False: memory alone, for what loaders read by plan.
  bool on_disk() const { return !options_.node.directory.empty(); }

 private:
  struct Holder {
    Mutex mu;  // order: before the locks of the cache that is being made; held with I/O
    std::shared_ptr<ProcessCache> cache HR_GUARDED_BY(mu);
  };
  const BlockCacheOptions options_;
  object::PerProcess<Holder> holder_;
};

struct StorageSettings {
  object::UrlSettings url;  // `wrap` is set where there is a cache, or memory for plans
  std::shared_ptr<CacheOnDemand> cache;  // null: none
  // Where side files lie. Null while the cache cannot be made, which `warn` is told of once. Empty:
  // none are to be kept.
  SidePlace side;
};

// Sets the wrap of `url`, so that its stores are read through the cache whose directory the options
// name, or, where they name none, plans through memory alone. Both are the same for the same
// directory and sizes, and kept for ever; buckets of the same name at different places are told
// apart by the endpoint and profile of `url`. Returns the cache; null without a directory.
std::shared_ptr<CacheOnDemand> ReadThrough(const BlockCacheOptions& options,
                                           object::UrlSettings* url);

// WaitUntilIdle for all caches of this process, within `timeout` altogether: for programs that end.
bool WaitForCaches(std::chrono::nanoseconds timeout);
// What all caches of this process have counted so far. Memory alone is no cache of a node.
CacheCounters CountersOfAllCaches();
// The same of their disks, by directory, for those that are used.
std::map<std::string, NodeCacheCounters> CountersOfAllDisks();

// Settings by name: those of ReadCacheSettings, which begin with "cache", and those of
// object::ReadUrlSettings. `warn` is told as NodeCacheOptions::warn is; of several for one cache
// the first. Failures are those of the two.
Result<StorageSettings> ReadStorageSettings(const std::map<std::string, std::string>& named,
                                            std::function<void(const std::string&)> warn);

}  // namespace headrace::cache
