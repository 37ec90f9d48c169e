#include "headrace/cache/cache_settings.h"

#include <fmt/core.h>

#include <atomic>
#include <utility>
#include <vector>

#include "headrace/base/text.h"
#include "headrace/env/process.h"
#include "headrace/object/per_process.h"

namespace headrace::cache {
namespace {

using object::ObjectStore;
using Wrap = object::UrlSettings::Wrap;

Status SetSize(const std::string& name, const std::string& value, uint64_t* to) {
  auto bytes = ParseSize(value);
  if (!bytes.ok()) return std::move(bytes).status().Prefix(name);
  *to = *bytes;
  return OkStatus();
}

Status Set(const std::string& name, const std::string& value, BlockCacheOptions* options) {
  if (name == "cache_dir") {
    options->node.directory = value;
    return OkStatus();
  }
  if (name == "cache_bytes") return SetSize(name, value, &options->node.limit_bytes);
  if (name == "cache_memory_bytes") return SetSize(name, value, &options->memory_bytes);
  if (name == "cache_seek_points") {
    HR_ASSIGN_OR_RETURN(options->keep_seek_points, ParseSwitch(name, value));
    return OkStatus();
  }
  return Error(Code::kInvalidArgument,
               "there is no cache setting '{}'; there are: cache_dir, cache_bytes, "
               "cache_memory_bytes, cache_seek_points",
               EscapeText(name));
}

// "s3://bucket at http://host:port". Amazon's buckets have names that are theirs alone, whatever
// the region, and so have hosts.
Result<std::string> IdentityOf(const ObjectStore& store, const object::S3Options& s3) {
  if (!store.name().starts_with("s3://")) return store.name();
  HR_ASSIGN_OR_RETURN(object::S3Settings settings, object::ReadS3Settings(s3));
  return settings.aws ? store.name() : store.name() + " at " + settings.endpoint;
}

Result<std::shared_ptr<ObjectStore>> WrapStore(std::shared_ptr<ObjectStore> store,
                                               CacheOnDemand* cache, const object::S3Options& s3) {
  CachingStoreOptions options;
  options.head_ttl_ms = 0;
  options.planned_alone = !cache->on_disk();
  HR_ASSIGN_OR_RETURN(options.identity, IdentityOf(*store, s3));
  HR_ASSIGN_OR_RETURN(std::shared_ptr<ProcessCache> made, cache->Get());
  HR_ASSIGN_OR_RETURN(auto wrapped,
                      CachingStore::Create(std::move(store), std::move(made), options));
  return std::shared_ptr<ObjectStore>(std::move(wrapped));
}

SidePlace SideOnDemand(std::shared_ptr<CacheOnDemand> cache,
                       std::function<void(const std::string&)> warn) {
  auto told = std::make_shared<std::atomic<bool>>(false);
  return
      [cache = std::move(cache), warn = std::move(warn), told](const ObjectId& id) -> NodeCache* {
        auto made = cache->Get();
        if (made.ok()) {
          BlockCache* blocks = (*made)->Get();
          return blocks && blocks->node() ? blocks->node()->Of(UseOfSide(id)) : nullptr;
        }
        if (warn && !told->exchange(true))
          warn(fmt::format("going on without the cache: {}", made.status().message()));
        return nullptr;
      };
}

// Caches and wraps of a process, kept for ever: stores that use them are too.
struct Registry {
  Mutex mu;  // leaf
  std::map<std::string, std::shared_ptr<CacheOnDemand>> caches HR_GUARDED_BY(mu);
  std::map<std::string, std::shared_ptr<const Wrap>> wraps HR_GUARDED_BY(mu);
};
Registry& AllMade() {
  static auto* made = new object::PerProcess<Registry>([] { return std::make_unique<Registry>(); });
  return made->Get();
}

// The one of these options in this process; null when they name neither directory nor memory.
std::shared_ptr<CacheOnDemand> FindCache(const BlockCacheOptions& options) {
  const bool on_disk = !options.node.directory.empty();
  if (!on_disk && options.memory_bytes == 0) return nullptr;
  std::string name = fmt::format("{} {} {}", on_disk ? options.node.limit_bytes : 0,
                                 options.memory_bytes, options.node.directory);
  Registry& made = AllMade();
  MutexLock lock(&made.mu);
  std::shared_ptr<CacheOnDemand>& cache = made.caches[name];
  if (!cache) cache = std::make_shared<CacheOnDemand>(options);
  return cache;
}

// Puts a CachingStore around each store that is opened. The same for the same cache and place.
std::shared_ptr<const Wrap> WrapWithCache(const std::shared_ptr<CacheOnDemand>& cache,
                                          const object::S3Options& s3) {
  // Of what `s3` says only this decides which place a bucket's name means.
  object::S3Options place;
  place.endpoint = s3.endpoint;
  place.profile = s3.profile;
  place.anonymous = true;  // credentials are not looked for
  std::string name = fmt::format("{} {}:{} {}", reinterpret_cast<uintptr_t>(cache.get()),
                                 place.endpoint.size(), place.endpoint, place.profile);
  Registry& made = AllMade();
  MutexLock lock(&made.mu);
  std::shared_ptr<const Wrap>& wrap = made.wraps[name];
  if (!wrap)
    wrap = std::make_shared<const Wrap>([cache, place](std::shared_ptr<ObjectStore> store) {
      return WrapStore(std::move(store), cache.get(), place);
    });
  return wrap;
}

}  // namespace

Result<BlockCacheOptions> ReadCacheSettings(const std::map<std::string, std::string>& named) {
  BlockCacheOptions options;
  for (const auto& [name, variable] :
       {std::pair("cache_dir", "HEADRACE_CACHE_DIR"),
        std::pair("cache_bytes", "HEADRACE_CACHE_BYTES"),
        std::pair("cache_memory_bytes", "HEADRACE_CACHE_MEMORY_BYTES"),
        std::pair("cache_seek_points", "HEADRACE_CACHE_SEEK_POINTS")}) {
    std::optional<std::string> value = EnvironmentVariable(variable);
    if (value) HR_RETURN_IF_ERROR(Set(name, *value, &options).Prefix(variable));
  }
  for (const auto& [name, value] : named) HR_RETURN_IF_ERROR(Set(name, value, &options));
  return options;
}

CacheOnDemand::CacheOnDemand(BlockCacheOptions options)
    : options_(std::move(options)), holder_([] { return std::make_unique<Holder>(); }) {}

Result<std::shared_ptr<ProcessCache>> CacheOnDemand::Get() {
  Holder& holder = holder_.Get();
  MutexLock lock(&holder.mu);
  if (!holder.cache) {
    HR_ASSIGN_OR_RETURN(holder.cache, ProcessCache::Create(options_));
  }
  return holder.cache;
}

CacheCounters CacheOnDemand::counters() {
  Holder& holder = holder_.Get();
  MutexLock lock(&holder.mu);
  BlockCache* cache = holder.cache ? holder.cache->made() : nullptr;
  return cache ? cache->counters() : CacheCounters();
}

bool WaitForCaches(std::chrono::nanoseconds timeout) {
  const auto end = Context::Clock::now() + timeout;
  bool idle = true;
  for (const auto& cache : ProcessCache::AllOfProcess())
    idle &= cache->WaitUntilIdle(end - Context::Clock::now());
  return idle;
}

CacheCounters CountersOfAllCaches() {
  CacheCounters sum;
  for (const auto& cache : ProcessCache::AllOfProcess()) sum += cache->counters();
  return sum;
}

std::map<std::string, NodeCacheCounters> CountersOfAllDisks() {
  std::map<std::string, NodeCacheCounters> all;
  for (const auto& cache : ProcessCache::AllOfProcess()) {
    if (cache->node() == nullptr) continue;
    for (const auto& disk : cache->node()->disks()) all[disk->paths().root()] += disk->counters();
  }
  return all;
}

std::shared_ptr<CacheOnDemand> ReadThrough(const BlockCacheOptions& options,
                                           object::UrlSettings* url) {
  std::shared_ptr<CacheOnDemand> cache = FindCache(options);
  if (!cache) return nullptr;
  url->wrap = WrapWithCache(cache, url->s3);
  return cache->on_disk() ? cache : nullptr;
}

Result<StorageSettings> ReadStorageSettings(const std::map<std::string, std::string>& named,
                                            std::function<void(const std::string&)> warn) {
  std::map<std::string, std::string> of_cache, of_urls;
  for (const auto& [name, value] : named)
    (name.starts_with("cache") ? of_cache : of_urls).emplace(name, value);
  StorageSettings settings;
  HR_ASSIGN_OR_RETURN(settings.url, object::ReadUrlSettings(of_urls));
  HR_ASSIGN_OR_RETURN(BlockCacheOptions options, ReadCacheSettings(of_cache));
  options.node.warn = warn;
  settings.cache = ReadThrough(options, &settings.url);
  if (settings.cache && options.keep_seek_points)
    settings.side = SideOnDemand(settings.cache, std::move(warn));
  return settings;
}

}  // namespace headrace::cache
