// Where things lie in a cache's directory, how it is made and opened, and what is in it.
// Thread-safe. docs/formats/cache.md has the layout.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "headrace/cache/block_format.h"
#include "headrace/cache/cache_state.h"
#include "headrace/env/file.h"

namespace headrace::cache {

class CachePaths {
 public:
  explicit CachePaths(std::string root) : root_(std::move(root)) {}
  const std::string& root() const { return root_; }
  // The file that makes a directory a cache. Nothing is ever made in a directory that lacks it: it
  // may be the mount point of a disk that has gone.
  std::string Marker() const { return JoinPath(root_, "headrace-cache.json"); }
  std::string BlockFolder(const std::string& fan_out) const;
  std::string Block(const BlockId& id, BlockFileKind kind) const;
  std::string DescriptorFolder(const std::string& fan_out) const;
  std::string Descriptor(const ObjectId& id) const;
  std::string Pin(const ObjectId& id) const;
  std::string State(std::string_view name) const;
  std::string SideFolder() const { return JoinPath(root_, "side"); }
  // `part` is "table", "records" or "lock".
  std::string Side(const ObjectId& id, std::string_view part) const;

 private:
  std::string root_;
};

inline constexpr uint64_t kDescriptorCost = 4096;  // of the limit

// Stands for a side file in the table of uses. No block has that number.
inline BlockId UseOfSide(const ObjectId& id) { return {id, UINT64_MAX, 1}; }
// A side file (side_file.h) as it lies in the directory.
struct SideFileEntry {
  ObjectId id;
  uint64_t cost = 0;   // as counted against the limit
  bool sound = false;  // its table is one
};
Result<std::vector<SideFileEntry>> ListSideFiles(FileSystem* fs, const CachePaths& paths);
// What a table of this many bytes costs of the limit.
uint64_t SideTableCost(uint64_t bytes);
// Tells those who use a side file that it is gone, and removes it. False when it is being opened,
// or cannot be removed.
bool RemoveSideFile(FileSystem* fs, const CachePaths& paths, const ObjectId& id);

// What a walk through the directory finds. Names that are none of ours are passed over.
struct CacheContents {
  std::vector<BlockId> blocks;
  std::vector<BlockId>
      unfinished;  // have a lock or temporary file: being fetched, or left by a kill
  std::vector<ObjectId> descriptors;
  std::vector<std::string> strays;  // temporary files of descriptors: being written, or left
  std::vector<ObjectId> pinned;     // sorted
  std::vector<SideFileEntry> side_files;
  uint64_t bytes = 0;  // of blocks, descriptors and side files, as counted against the limit
};
Result<CacheContents> ListCache(FileSystem* fs, const CachePaths& paths);

// A cache's directory in use by this process: the shared words, and a lock that shows others that
// somebody is here.
struct MountedCache {
  std::unique_ptr<CacheState> state;
  std::unique_ptr<FileLock> presence;
  std::string presence_path;
  uint64_t device = 0, inode = 0;  // of the marker: another one is another cache
};
struct MountOptions {
  bool create = true;  // makes a cache of a missing or empty directory
  uint64_t limit_bytes = 0, free_floor_bytes = 0;
  std::function<uint64_t()> steady_ms;
};
// Opens the cache. The first process that is here counts the bytes anew and removes what killed
// ones have left.
//   kFailedPrecondition  the directory holds other things and is no cache, or is a cache of another
//                        version: names it.
//   kNotFound            no cache is there, and none is to be made.
//   kUnavailable         another process is counting a large cache: try later.
//   others               the file system's.
Result<std::unique_ptr<MountedCache>> MountCache(FileSystem* fs, const CachePaths& paths,
                                                 const MountOptions& options, const Context& ctx);

// Removes the lock and temporary file of a block whose fetcher has died; no effect while it lives.
// Returns true when there was a temporary file: its bytes are then to be taken off.
bool RemoveUnfinished(FileSystem* fs, const CachePaths& paths, const BlockId& id);

}  // namespace headrace::cache
