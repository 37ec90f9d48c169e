// A folder as an object store: DirStore. Each object is a file, whose path PathOfKey tells; a
// folder of ordinary files is a store as it is. Thread-safe, also in forked children; processes and
// machines may share the folder.
//
// What it relies on of the file system, local or shared (NFS, Lustre, GPFS, BeeGFS): a rename
// inside a folder is atomic, O_EXCL makes a new file once, and a file that was synced and renamed
// can be opened by its name. Nothing relies on listings but List itself. A handle gone stale
// (ESTALE) is opened again, once.
//
// Limits of a folder: "a" and "a/b" cannot both be objects (strict_keys is false: the second one is
// refused with kInvalidArgument). An etag is made of size, time and inode of a file, so a writer
// that replaces an object twice within the file system's clock tick could bring one back. Put with
// if_match is exact among writers that use it, and needs locks on files (on Lustre: mount with
// flock); writers that put without a condition, or delete, are not held off.
#pragma once

#include <memory>
#include <string>

#include "headrace/env/file.h"
#include "headrace/object/object_store.h"

namespace headrace::object {

struct DirStoreOptions {
  FileSystem* fs = nullptr;  // null: the operating system's; must outlive the store
  uint32_t threads = 16;     // that read at once
};

// kNotFound or kInvalidArgument when `folder` is no folder: it is not made.
Result<std::shared_ptr<ObjectStore>> OpenDirStore(const std::string& folder,
                                                  const DirStoreOptions& options);

}  // namespace headrace::object
