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
  uint32_t shard_crc32c = 0;  // of the whole shard; 0 for files of their own
};

// Adds to `index` (an index file's bytes, without checksums) what the data of the shard `file`
// tells. Records with checksums of their own are held against them; with options.allow_damage the
// fields of a wrong one stay without checksums, so that who reads them finds it.
//   kDataLoss   the shard is shorter than the index says, a record is wrong. Also the file's
//               faults, kCancelled.
Result<IndexWithData> AddDataOfShard(std::string index, const RandomAccessFile& file,
                                     const BuildOptions& options, const Context& ctx);

// The same for an index of files, whose paths are relative to `folder`.
//   kFailedPrecondition   a file has another size than when it was listed.
Result<IndexWithData> AddDataOfFiles(std::string index, FileSystem* fs, const std::string& folder,
                                     const BuildOptions& options, const Context& ctx);

// The last step of indexing the shard `file`, whose samples are all in `builder`: fills in the rest
// of `built`, and adds what the data tells when it is asked for. `samples_crc32c` as in
// IndexBuilder::Finish. Fails as AddDataOfShard.
Status FinishShardIndex(IndexBuilder* builder, const RandomAccessFile& file,
                        const BuildOptions& options, const Context& ctx, BuiltIndex* built,
                        std::optional<uint32_t> samples_crc32c = {});

}  // namespace headrace::dataset
