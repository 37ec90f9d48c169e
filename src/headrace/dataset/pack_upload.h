// Copies a packed data set to where it is to be read: the second half of a pack into a bucket. Any
// thread may call; works with threads of its own.
#pragma once

#include <cstdint>
#include <string>

#include "headrace/base/context.h"
#include "headrace/base/status.h"
#include "headrace/dataset/pack_shard.h"
#include "headrace/env/file.h"

namespace headrace::dataset {

// OK when no data set is at `to` yet: to be asked before much work is done for it. kAlreadyExists.
Status CheckUploadPlace(FileSystem* to_fs, const std::string& to);

struct UploadOptions {
  uint32_t threads = 8;              // files sent at once
  PackProgress* progress = nullptr;  // may be null; not owned: bytes and shards are those sent
};

// Copies the shards and indexes of the packed data set in `folder` into the folder `to` of another
// file system, then the manifest, which makes it a data set there. Until then a manifest stands
// there that says so; broken off at any point there is no more than that, and the same call again
// sends everything again, and gives up the parts of large files that were left behind. What is
// there is never replaced: no reader of an older version may find another one's bytes.
//   kAlreadyExists       another data set is there, or files that are not of this one.
//   kFailedPrecondition  `folder` has no manifest, or a file that is not as it says.
// Also the failures of both file systems.
Status UploadDataset(FileSystem* from, const std::string& folder, FileSystem* to_fs,
                     const std::string& to, const UploadOptions& options, const Context& ctx);

}  // namespace headrace::dataset
