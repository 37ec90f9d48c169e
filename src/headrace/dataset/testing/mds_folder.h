// Folders of MDS shards for tests, plain or compressed. For tests only.
#pragma once

#include <fmt/format.h>
#include <zstd.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "headrace/dataset/testing/mds_maker.h"
#include "headrace/dataset/testing/tar_maker.h"
#include "headrace/env/file.h"

namespace headrace::dataset {

inline std::string ZstdPacked(std::string_view bytes) {
  std::string packed(ZSTD_compressBound(bytes.size()), '\0');
  packed.resize(ZSTD_compress(packed.data(), packed.size(), bytes.data(), bytes.size(), 3));
  return packed;
}

// Puts shards of these rows, and their index.json, into a folder.
class MdsFolder {
 public:
  using Rows = std::vector<std::vector<std::string>>;  // each column's value

  MdsFolder(FileSystem* fs, std::string folder, std::vector<MdsTestColumn> columns)
      : fs_(fs), folder_(std::move(folder)), columns_(std::move(columns)) {}

  MdsTestShard& Add(const Rows& rows, const std::string& compression = "") {
    MdsTestShard& shard = shards_.emplace_back();
    shard.name = fmt::format("shard.{:05}.mds", shards_.size() - 1);
    shard.samples = rows.size();
    const std::string bytes = MakeMdsShard(columns_, rows);
    shard.bytes = bytes.size();
    shard.compression = compression;
    if (compression.empty()) {
      Put(fs_, JoinPath(folder_, shard.name), bytes);
    } else {
      const std::string packed = ZstdPacked(bytes);
      shard.packed_bytes = packed.size();
      Put(fs_, JoinPath(folder_, shard.name + ".packed"), packed);
    }
    WriteIndex();
    return shard;
  }
  void WriteIndex() { Put(fs_, JoinPath(folder_, "index.json"), MakeMdsIndex(columns_, shards_)); }
  std::string ShardBytes(size_t i) {
    return fs_->ReadWhole(JoinPath(folder_, shards_[i].name), 1 << 30).value();
  }

 private:
  FileSystem* fs_;
  std::string folder_;
  std::vector<MdsTestColumn> columns_;
  std::vector<MdsTestShard> shards_;
};

}  // namespace headrace::dataset
