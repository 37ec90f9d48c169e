// The Dataset that Dataset::Open makes, with what SampleReader needs of it. Thread-safe; a child of
// fork() may use it too: what is made lazily is published by one atomic step, without locks.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "headrace/dataset/dataset.h"
#include "headrace/dataset/learned_checksums.h"
#include "headrace/dataset/mds_content.h"
#include "headrace/dataset/shard_files.h"

namespace headrace::dataset {

class OpenDataset : public Dataset {
 public:
  // Where things are. `indexes`, when not empty, are parallel to the shards: indexes that are in
  // memory or mapped already.
  struct Parts {
    FileSystem* fs = nullptr;
    std::string path;          // as the user named it
    std::string data_folder;   // shard names and files of a kFiles index are relative to it
    std::string index_folder;  // index names are relative to it
    Manifest manifest;
    std::vector<std::unique_ptr<IndexReader>> indexes;
    std::unique_ptr<MdsContent> mds;  // of an MDS dataset; its shards are those of the manifest
    OpenOptions options;
  };
  // What is known of a shard once its index is mapped.
  struct ShardState {
    std::unique_ptr<IndexReader> index;
    std::vector<FieldId> field_ids;  // by the index's name number
  };

  explicit OpenDataset(Parts parts);
  // Takes over parts.indexes. Call once, before the dataset is shared.
  Status AdoptIndexes();
  ~OpenDataset() override;

  const std::string& version() const override { return version_; }
  const std::string& path() const override { return parts_.path; }
  std::string_view kind() const override { return parts_.manifest.kind; }
  uint64_t num_samples() const override { return first_sample_.back(); }
  std::span<const ShardInfo> shards() const override { return shards_; }
  const Manifest& manifest() const override { return parts_.manifest; }
  uint64_t first_sample(size_t shard) const override { return first_sample_[shard]; }
  std::span<const std::string> fields() const override { return parts_.manifest.fields; }
  Result<FieldId> FindField(std::string_view name) const override;
  Result<uint64_t> FindKey(std::string_view key) const override;
  Result<const IndexReader*> Index(size_t shard) const override;
  Result<ShardFile> FileOfShard(size_t shard) const override;
  Status CheckShard(size_t shard, const Context& ctx) const override;
  Status CheckWholeShard(size_t shard, const Context& ctx) const override;

  FileSystem* fs() const { return parts_.fs; }
  const auto& side() const { return parts_.options.side; }
  const std::string& data_folder() const { return parts_.data_folder; }
  // The shard that holds a sample < num_samples(). O(log shards).
  uint32_t ShardOf(uint64_t sample) const;
  Result<const ShardState*> State(uint32_t shard) const;
  // Its index, or null when nobody has asked for it yet.
  const IndexReader* IndexIfMapped(uint32_t shard) const {
    const ShardState* state = states_[shard].load(std::memory_order_acquire);
    return state ? state->index.get() : nullptr;
  }
  // The open data file, held against the index when that version of it was first opened.
  Result<ShardFiles::File> File(uint32_t shard) const { return files_.Get(shard); }
  // The data file opened anew, since `stale` cannot be read any more.
  Result<ShardFiles::File> Reopen(uint32_t shard, const ShardFiles::File& stale) const;
  // What was read of a sample of this shard does not match: caches on the way to it forget it.
  // False where reading it again would give the same.
  bool Distrust(uint32_t shard, const IndexSample& sample) const;
  ShardFiles::File FileIfOpen(uint32_t shard) const { return files_.GetIfOpen(shard); }
  // The learned checksums of a shard whose index is mapped. `state` is State(shard).
  LearnedChecksums* Learned(uint32_t shard, const ShardState& state) const;

 private:
  Result<std::unique_ptr<ShardState>> MakeState(uint32_t shard) const;
  Result<std::unique_ptr<ShardState>> MakeState(std::unique_ptr<IndexReader> index) const;
  Status CheckIndex(uint32_t shard, const IndexReader& index) const;
  Result<ShardFiles::Opened> OpenChecked(uint32_t shard) const;
  // Makes the index of an MDS shard that has none stored.
  Result<std::unique_ptr<IndexReader>> BuildIndex(uint32_t shard) const;
  Status CheckIdentity(uint32_t shard, const RandomAccessFile& file) const;
  // Opens a shard's file, or what it holds when it is compressed as a whole.
  Result<std::unique_ptr<RandomAccessFile>> OpenContent(uint32_t shard, const Context& ctx) const;

  Parts parts_;
  std::string version_;
  std::vector<ShardInfo> shards_;
  std::vector<uint64_t> first_sample_;  // shards + 1
  mutable std::vector<std::atomic<ShardState*>> states_;
  mutable std::vector<std::atomic<LearnedChecksums*>> learned_;
  // FileVersion of the file that was held against the index; 0: none yet.
  mutable std::vector<std::atomic<uint64_t>> identity_checked_;
  mutable ShardFiles files_;
};

}  // namespace headrace::dataset
