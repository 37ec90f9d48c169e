// What people do with a cache's directory: look, check, pin, remove. Other processes may use the
// cache meanwhile. Blocking; any thread.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "headrace/cache/node_cache.h"

namespace headrace::cache {

struct CachedObjectSummary {
  ObjectId id;
  std::optional<ObjectDescriptor> descriptor;  // empty when it was lost
  uint64_t blocks = 0, bytes = 0;              // here
  bool pinned = false;
  // "s3://bucket/key", with any bytes escaped; the id where the descriptor was lost.
  std::string Name() const;
};

struct CacheVerifyReport {
  std::atomic<uint64_t> blocks{0}, bytes{0};  // read so far
  std::atomic<uint64_t> damaged{0};           // and removed
};

class CacheAdmin {
 public:
  // kNotFound: no cache is there. kUnavailable: its disk does not work now.
  static Result<std::unique_ptr<CacheAdmin>> Open(FileSystem* fs, const std::string& directory);

  // In order of Name().
  Result<std::vector<CachedObjectSummary>> List(const Context& ctx);
  // Objects whose name is `name`, or begins with it when it ends in '*'; or whose id it is.
  // kNotFound when there is none.
  Result<std::vector<CachedObjectSummary>> Find(const std::string& name, const Context& ctx);
  // Reads everything; what is damaged is removed. May be read by other threads meanwhile.
  Status Verify(CacheVerifyReport* report, const Context& ctx);
  Status Pin(const ObjectId& id);
  Status Unpin(const ObjectId& id);
  // Removes the object's blocks, pinned or not. Returns their bytes.
  Result<uint64_t> Remove(const ObjectId& id, const Context& ctx);
  // Removes all blocks, and pins.
  Result<uint64_t> Clear(const Context& ctx);

  NodeCache* cache() { return cache_.get(); }

 private:
  explicit CacheAdmin(std::unique_ptr<NodeCache> cache) : cache_(std::move(cache)) {}
  Result<CacheContents> Contents() { return ListCache(cache_->files(), cache_->paths()); }
  Status VerifyBlock(const BlockId& id, std::string* buffer, CacheVerifyReport* report,
                     const Context& ctx);

  const std::unique_ptr<NodeCache> cache_;
};

}  // namespace headrace::cache
