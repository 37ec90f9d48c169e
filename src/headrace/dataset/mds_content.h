// The shards of an open MDS dataset: where their bytes are (in a file, or unpacked from one), their
// hashes, and their indexes made from their headers. Immutable after Open; thread-safe, also in a
// child of fork().
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "headrace/base/context.h"
#include "headrace/base/status.h"
#include "headrace/dataset/index_build.h"
#include "headrace/dataset/mds.h"
#include "headrace/env/file.h"

namespace headrace::dataset {

// Indexes the bytes of one MDS shard: a sample for each of its samples, with the key NAME/00000012
// (NAME is that of the unpacked file), a field for each column. All sizes are checked.
//   kDataLoss        the shard is not as `shard` says, or damaged (unless allowed: then the sample
//                    is left out): names offset, sample and column.
//   kUnimplemented   an image mode or array that has no .npy form.
// Also the file's I/O faults.
Result<BuiltIndex> BuildMdsIndex(const RandomAccessFile& file, const MdsShard& shard,
                                 const BuildOptions& options, const Context& ctx);

// The manifest that stands for an MDS dataset without one: shards without indexes.
Manifest ManifestOf(const MdsIndex& index);

class MdsContent {
 public:
  // Says whether a file is there; asked for each of the dataset's files once. Empty: that cannot be
  // told, as at a place that cannot be listed.
  using Exists = std::function<Result<std::optional<bool>>(const std::string& path)>;

  // Reads the folder's index.json, given as text, and looks for the shards' files. A shard that is
  // there unpacked is read so, else its packed file is; where that cannot be told, the packed one.
  // Fails as MdsIndex::FromJson, and kFailedPrecondition: a shard has neither file.
  static Result<std::unique_ptr<MdsContent>> Open(FileSystem* fs, const std::string& folder,
                                                  std::string_view index_text,
                                                  const Exists& exists);

  const MdsIndex& index() const { return index_; }
  // True when its bytes have to be unpacked: then opening it takes that time, and raw.bytes of
  // memory as long as the file is held.
  bool is_packed(size_t shard) const { return packed_[shard]; }
  // Opens a shard's content. What is unpacked is held against the hashes that index.json states,
  // the first time that a version of the file is seen. kDataLoss: another size, wrong hash,
  // damaged. kResourceExhausted: no memory.
  Result<std::unique_ptr<RandomAccessFile>> OpenShard(size_t shard, const Context& ctx) const;
  // Reads a shard's files and holds them against all their hashes. Hashes that are not known here
  // are passed over.
  Status CheckHashes(size_t shard, const Context& ctx) const;
  std::string FilePath(size_t shard) const;

 private:
  MdsContent(FileSystem* fs, std::string folder) : fs_(fs), folder_(std::move(folder)) {}
  Result<std::unique_ptr<RandomAccessFile>> Unpack(size_t shard, const Context& ctx) const;

  FileSystem* fs_;
  std::string folder_;
  MdsIndex index_;
  std::vector<bool> packed_;
  // FileVersion of the packed file whose hash was checked; 0: none yet.
  mutable std::vector<std::atomic<uint64_t>> hash_checked_;
};

}  // namespace headrace::dataset
