// A folder as an object store: DirStore. Each object is a file, whose path PathOfKey tells; a
// folder of ordinary files is a store as it is. Thread-safe, also in forked children; processes and
// machines may share the folder.
//
// What it relies on of the file system, local or shared (NFS, Lustre, GPFS, BeeGFS): a rename
// inside a folder is atomic, O_EXCL makes a new file once, and a file that was synced and renamed
// can be opened by its name, on this machine at once and on others some time later: until then they
// are told kNotFound, never part of an object. Nothing relies on listings but List itself. A handle
// gone stale (ESTALE), or a read that the server did not answer in its time, is tried again once
// with the file opened anew. A rename that a server has done twice counts as done.
//
// Files stay open for the next read, so that reading a version by its etag asks nothing but for the
// bytes: what another process did to the name shows after DirStoreOptions::believed.
//
// Limits of a folder: "a" and "a/b" cannot both be objects (strict_keys is false: the second one is
// refused with kInvalidArgument). An etag is made of size, time and inode of a file, so a writer
// that replaces an object twice within the file system's clock tick could bring one back. Put with
// if_match is exact among writers that use it, and needs locks on files (on Lustre: mount with
// flock); writers that put without a condition, or delete, are not held off.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "headrace/env/file.h"
#include "headrace/env/lustre.h"
#include "headrace/object/object_store.h"

namespace headrace::object {

struct DirStoreOptions {
  FileSystem* fs = nullptr;  // null: the operating system's; must outlive the store
  uint32_t threads = 16;     // that read at once
  // Files kept open for the next read, at most a quarter of the process's limit; 0: none.
  uint32_t open_files = 256;
  // How long a name is taken to stand for what it stood for.
  std::chrono::nanoseconds believed = std::chrono::seconds(1);
  // Reads go around the page cache, in whole kDirectAlignment: for data that is read once, or that
  // a cache above keeps.
  bool direct = false;
  // On Lustre: how objects written from now on are spread over its servers. Elsewhere it is left
  // aside.
  std::optional<Striping> striping = {};
};

// kNotFound or kInvalidArgument when `folder` is no folder: it is not made. Also what
// SetFolderStriping fails with, but kUnimplemented.
Result<std::shared_ptr<ObjectStore>> OpenDirStore(const std::string& folder,
                                                  const DirStoreOptions& options);

}  // namespace headrace::object
