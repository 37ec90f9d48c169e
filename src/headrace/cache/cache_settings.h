// The cache that a user asks for, by names or by environment, and how it gets around the stores
// that URLs name. Thread-safe.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "headrace/cache/caching_store.h"
#include "headrace/object/url_settings.h"

namespace headrace::cache {

// Settings by name: cache_dir, cache_bytes ("500GiB"; 0: what the directory was last given),
// cache_memory_bytes. What is not named comes from HEADRACE_CACHE_DIR and HEADRACE_CACHE_BYTES;
// without a directory there is no cache. kInvalidArgument: a name that is none, a value that cannot
// be read.
Result<BlockCacheOptions> ReadCacheSettings(const std::map<std::string, std::string>& named);

// For UrlSettings::wrap: puts a CachingStore around each store. The cache is made once for the same
// directory and sizes, and lives as long as the process. `endpoint` tells apart buckets of the same
// name at different places. Null when `options` name no directory. Failures are those of
// ProcessCache::Create.
Result<std::shared_ptr<const object::UrlSettings::Wrap>> WrapWithCache(
    const BlockCacheOptions& options, const std::string& endpoint);

}  // namespace headrace::cache
