// A FileSystem over an ObjectStore, so that what reads files reads a bucket too. Thread-safe.
//
// A path is the store's root, "s3://bucket", or one below it: "s3://bucket/a/b" is the object with
// the key "a/b". "." and ".." parts are resolved by their text and stay below the root; so keys
// with such parts, or with empty ones, have no path here. What keys have in common up to a '/' is a
// directory; a directory without objects is not there.
//
// An open file is one version of its object: its size and etag are asked for once, and each read is
// of that version or fails with kFailedPrecondition, never a mix. Who opens it again sees the new
// one.
//
// Writing: WriteAtomically is one Put. Create sends the object in parts and makes it in Close:
// before that nothing is there, and Sync makes nothing durable. Rename copies a small object and
// deletes the first. Making and syncing directories does nothing. Locks, shared words, appending,
// temporary files, and what a store without the ability would have to do, are refused with
// kUnimplemented.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "headrace/base/context.h"
#include "headrace/env/file.h"
#include "headrace/object/object_store.h"

namespace headrace::object {

struct ObjectFileSystemOptions {
  // Of the paths, without '/' at the end; empty: the store's name.
  std::string root;
  // For the calls of FileSystem that take no context.
  Context context;
  // Largest object that Map holds in memory, and that Rename copies; larger: kResourceExhausted.
  uint64_t max_memory_bytes = uint64_t{4} << 30;
  // A read of more than this is done in parts of this size, several at once; so is a write.
  uint64_t part_bytes = uint64_t{8} << 20;
};

// The store behind a path, and the key that the path is there.
struct StorePlace {
  std::shared_ptr<ObjectStore> store;
  std::string key;
};

// What a FileSystem also is, some of whose files are objects.
class HasObjects {
 public:
  virtual ~HasObjects() = default;
  // kUnimplemented for a path that is no object's; else as a FileSystem that opens it. Asks nothing
  // of the store.
  virtual Result<StorePlace> FindObject(const std::string& path) = 0;
};
// The object that a file of any file system is. kUnimplemented when it is none.
Result<StorePlace> FindObject(FileSystem* fs, const std::string& path);

std::shared_ptr<FileSystem> MakeObjectFileSystem(std::shared_ptr<ObjectStore> store,
                                                 const ObjectFileSystemOptions& options = {});

}  // namespace headrace::object
