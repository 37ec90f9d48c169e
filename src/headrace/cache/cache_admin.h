// What people do with a cache, of one directory or several: look, check, pin, remove. Other
// processes may use the cache meanwhile. Directories that do not work now are passed over; `disks`
// of cache() tells which. Blocking; any thread.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "headrace/cache/disk_tier.h"

namespace headrace::cache {

struct CachedObjectSummary {
  ObjectId id;
  std::optional<ObjectDescriptor> descriptor;  // empty when it was lost
  uint64_t blocks = 0, bytes = 0;              // here
  bool pinned = false;
  // "s3://bucket/key", with any bytes escaped; the id where the descriptor was lost.
  std::string Url() const;
  // The same, and " at http://host" behind it where that is not Amazon's server.
  std::string Name() const;
};

struct CacheVerifyReport {
  std::atomic<uint64_t> blocks{0}, bytes{0};  // read so far
  std::atomic<uint64_t> total_bytes{0};       // of the disks listed so far
  std::atomic<uint64_t> damaged{0};           // and removed
};

class CacheAdmin {
 public:
  // `directories` as DiskTier::Open takes them. kNotFound: no cache is in one of them.
  // kUnavailable: no disk works now.
  static Result<std::unique_ptr<CacheAdmin>> Open(FileSystem* fs, const std::string& directories);

  // In order of Name().
  Result<std::vector<CachedObjectSummary>> List(const Context& ctx);
  // What is kept beside the blocks: side_file.h.
  Result<std::vector<SideFileEntry>> SideFiles();
  // Objects whose URL or name is `name`, or whose URL begins with it when it ends in '*'; or whose
  // id it is.
  // kNotFound when there is none.
  Result<std::vector<CachedObjectSummary>> Find(const std::string& name, const Context& ctx);
  // Reads everything; what is damaged is removed. May be read by other threads meanwhile.
  Status Verify(CacheVerifyReport* report, const Context& ctx);
  Status Pin(const ObjectId& id);
  Status Unpin(const ObjectId& id);
  // Removes the object's blocks, pinned or not. Returns their bytes.
  Result<uint64_t> Remove(const ObjectId& id, const Context& ctx);
  // Removes all blocks, side files and pins.
  Result<uint64_t> Clear(const Context& ctx);

  DiskTier* cache() { return cache_.get(); }

 private:
  explicit CacheAdmin(std::unique_ptr<DiskTier> cache) : cache_(std::move(cache)) {}
  std::vector<NodeCache*> Working() const;
  static Result<CacheContents> ContentsOf(const NodeCache& disk) {
    return ListCache(disk.files(), disk.paths());
  }
  static void ReadDescriptor(const NodeCache& disk, CachedObjectSummary* object);
  static Status VerifyBlock(NodeCache* disk, const BlockId& id, std::string* buffer,
                            CacheVerifyReport* report, const Context& ctx);

  const std::unique_ptr<DiskTier> cache_;
};

}  // namespace headrace::cache
