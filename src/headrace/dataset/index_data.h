// The second step of making an index: reads the bytes of every field that the first step has found,
// with several threads, and adds what only the bytes tell: their CRC32C and, for JPEGs, their seek
// points. Functions without state: any thread. Used by the makers of indexes only.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "headrace/base/context.h"
#include "headrace/base/status.h"
#include "headrace/dataset/index_build.h"
#include "headrace/env/file.h"

namespace headrace::dataset {

struct IndexWithData {
  std::string bytes;          // of the index file
  uint32_t shard_crc32c = 0;  // of the whole tar; 0 for files of their own
};

// Adds to `index` (an index file's bytes, without checksums) what the data of the tar `file` tells.
//   kDataLoss   the tar is shorter than the index says. Also the file's faults, kCancelled.
Result<IndexWithData> AddDataOfTar(std::string index, const RandomAccessFile& file,
                                   const BuildOptions& options, const Context& ctx);

// The same for an index of files, whose paths are relative to `folder`.
//   kFailedPrecondition   a file has another size than when it was listed.
Result<IndexWithData> AddDataOfFiles(std::string index, FileSystem* fs, const std::string& folder,
                                     const BuildOptions& options, const Context& ctx);

}  // namespace headrace::dataset
