#include "headrace/cache/cache_settings.h"

#include <fmt/core.h>

#include <utility>

#include "headrace/base/mutex.h"
#include "headrace/base/text.h"
#include "headrace/env/process.h"

namespace headrace::cache {
namespace {

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
  return Error(Code::kInvalidArgument,
               "there is no cache setting '{}'; there are: cache_dir, cache_bytes, "
               "cache_memory_bytes",
               EscapeText(name));
}

// Caches and wraps of this process, kept for ever: stores that use them are too.
struct Made {
  Mutex mu;  // order: before the locks of a cache that is being made
  std::map<std::string, std::shared_ptr<ProcessCache>> caches HR_GUARDED_BY(mu);
  std::map<std::string, std::shared_ptr<const Wrap>> wraps HR_GUARDED_BY(mu);
};
Made& AllMade() {
  static auto* made = new Made;  // never destroyed: threads may read at exit
  return *made;
}

}  // namespace

Result<BlockCacheOptions> ReadCacheSettings(const std::map<std::string, std::string>& named) {
  BlockCacheOptions options;
  for (const auto& [name, variable] : {std::pair("cache_dir", "HEADRACE_CACHE_DIR"),
                                       std::pair("cache_bytes", "HEADRACE_CACHE_BYTES")}) {
    std::optional<std::string> value = EnvironmentVariable(variable);
    if (value) HR_RETURN_IF_ERROR(Set(name, *value, &options).Prefix(variable));
  }
  for (const auto& [name, value] : named) HR_RETURN_IF_ERROR(Set(name, value, &options));
  return options;
}

Result<std::shared_ptr<const Wrap>> WrapWithCache(const BlockCacheOptions& options,
                                                  const std::string& endpoint) {
  if (options.node.directory.empty()) return std::shared_ptr<const Wrap>();
  std::string name = fmt::format("{} {} {}", options.node.limit_bytes, options.memory_bytes,
                                 options.node.directory);
  Made& made = AllMade();
  MutexLock lock(&made.mu);
  std::shared_ptr<ProcessCache>& cache = made.caches[name];
  if (!cache) {
    HR_ASSIGN_OR_RETURN(cache, ProcessCache::Create(options));
  }
  std::shared_ptr<const Wrap>& wrap = made.wraps[name + " " + endpoint];
  if (!wrap)
    wrap =
        std::make_shared<const Wrap>([cache, endpoint](std::shared_ptr<object::ObjectStore> store)
                                         -> Result<std::shared_ptr<object::ObjectStore>> {
          CachingStoreOptions caching;
          caching.identity = endpoint.empty() ? store->name() : store->name() + " at " + endpoint;
          HR_ASSIGN_OR_RETURN(auto wrapped, CachingStore::Create(std::move(store), cache, caching));
          return std::shared_ptr<object::ObjectStore>(std::move(wrapped));
        });
  return wrap;
}

}  // namespace headrace::cache
