// Writes one shard and its index from a span of a PackList: files are read straight into the output
// buffer, behind their headers, and leave it in large appends. One ShardWriter a thread; not
// thread-safe. Nothing is allocated per sample once its buffers have grown.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "headrace/base/bytes.h"
#include "headrace/base/context.h"
#include "headrace/base/json.h"
#include "headrace/base/status.h"
#include "headrace/codec/jpeg_transcode.h"
#include "headrace/codec/seek_points.h"
#include "headrace/dataset/index.h"
#include "headrace/dataset/pack_layout.h"
#include "headrace/dataset/pack_list.h"
#include "headrace/dataset/seek_tally.h"
#include "headrace/env/file.h"

namespace headrace::dataset {

// A sample that was left out because it could not be read.
struct PackSkip {
  std::string key;
  std::string reason;
};

// What became of the JPEGs that a pack was to rewrite.
struct JpegTally {
  std::array<uint64_t, codec::kNumTranscodeResults> files{};  // by codec::TranscodeResult
  uint64_t bytes_before = 0, bytes_after = 0;                 // of those rewritten

  uint64_t num_rewritten() const {
    return files[static_cast<size_t>(codec::TranscodeResult::kRewritten)];
  }
  void Add(const JpegTally& other);
  // {"unchanged": n, "rewritten": n, "cannot": n, "not_identical": n, "bytes_before": n,
  // "bytes_after": n}
  Json ToJson() const;
};

// What one finished shard holds: enough to publish it, and to trust it again after a restart.
struct PackedShard {
  uint64_t samples = 0;
  uint64_t bytes = 0;   // size of the tar
  uint32_t crc32c = 0;  // of the tar
  uint32_t index_header_crc32c = 0;
  std::optional<uint32_t> samples_crc32c;  // as in ManifestShard; not in the record
  std::vector<std::string> fields;         // names, sorted
  std::vector<PackSkip> skipped;
  JpegTally jpeg;
  SeekTally seek;  // as its index tells; not in the record

  // Fills in what the record leaves to the index. kDataLoss as IndexReader.
  Status Describe(const IndexReader& index);

  Json ToJson() const;
  static Result<PackedShard> FromJson(const Json& json);
};

// Work done so far, added to by all writers; anyone may read it at any time.
struct PackProgress {
  std::atomic<uint64_t> samples{0}, bytes{0}, shards{0};                    // done
  std::atomic<uint64_t> total_samples{0}, total_bytes{0}, total_shards{0};  // 0 while planning
};

struct ShardWriterOptions {
  bool sync = true;  // make tar and index durable before WriteShard returns
  bool skip_unreadable = false;
  uint32_t seek_spacing = 0;  // MCUs between the seek points of JPEGs; 0 = none
  codec::JpegTranscode jpeg = codec::JpegTranscode::kKeep;
  const std::atomic<bool>* stop = nullptr;  // another writer has failed: end with kCancelled
  PackProgress* progress = nullptr;         // may be null
  size_t buffer_bytes = size_t{1} << 20;
};

class ShardWriter {
 public:
  // kResourceExhausted when the buffer cannot be had. Everything given must outlive the writer.
  static Result<std::unique_ptr<ShardWriter>> Create(FileSystem* fs, const PackList* list,
                                                     const ShardWriterOptions& options);

  // Writes `span` to tar_path and its index to index_path, replacing what is there.
  //   kFailedPrecondition  a source file has another size than when it was listed.
  //   kNotFound, kPermissionDenied, kIoError, kDataLoss  a source cannot be read: named.
  //   kResourceExhausted   the disk is full.       kCancelled  ctx or `stop` said so.
  // On failure the two files may be left half-written; the caller removes them.
  Result<PackedShard> WriteShard(const PackSpan& span, const std::string& tar_path,
                                 const std::string& index_path, const Context& ctx);

 private:
  ShardWriter(FileSystem* fs, const PackList* list, const ShardWriterOptions& options);
  Status WriteSamples(const PackSpan& span, const Context& ctx);
  // The whole sample in the buffer, or field by field when it is larger than that.
  Status WriteSmallSample(uint64_t sample, const Context& ctx);
  Status WriteLargeSample(uint64_t sample, const Context& ctx);
  Status StreamField(const PackField& field, const RandomAccessFile* file, const Context& ctx);
  // Reads the whole sample before it is written, since what a JPEG becomes has another size.
  Status WriteRewrittenSample(uint64_t sample, const Context& ctx);
  Status RewriteField(const PackField& field, size_t number, const Context& ctx);
  Status PutField(uint64_t sample, const PackField& field, Bytes bytes);
  // Puts the header of a field of `size_bytes` into the buffer and notes its place for the index.
  void BeginField(uint64_t sample, const PackField& field, uint64_t size_bytes);
  void PutZeros(size_t count);
  // Makes the seek points of the field begun last, whose bytes are `file`, if it is a JPEG.
  void KeepSeekPoints(Bytes file);
  // Whether a field that is streamed must be collected in image_ for that; `head` is its start.
  bool WantsWhole(const PackField& field, Bytes head);
  // Reads a field's bytes to `out`, which has one byte more than the field.
  Status ReadField(const PackField& field, MutableBytes out, const Context& ctx);
  Result<const RandomAccessFile*> OpenContainer(uint32_t container);
  Status ReadArray(const PackField& field, MutableBytes out, const Context& ctx);
  uint64_t SampleTarBytes(uint64_t sample);
  Status Skip(uint64_t sample, Status why);
  Status AddToIndex(uint64_t sample);
  Status Flush();
  Status AtTar(Status status) const;  // with the place in the tar being written
  Status FinishTar();
  Status WriteIndex(const std::string& tar_path, const std::string& index_path, const Context& ctx);

  FileSystem* fs_;
  const PackList* list_;
  ShardWriterOptions options_;
  AlignedBuffer buffer_;

  // The shard being written.
  std::string tar_path_;
  std::unique_ptr<WritableFile> file_;
  std::unique_ptr<IndexBuilder> index_;
  PackedShard shard_;
  std::set<uint16_t> names_;  // fields seen
  uint64_t flushed_ = 0;      // bytes of the tar already appended
  size_t fill_ = 0;           // bytes of the buffer in use

  // Used again for each sample.
  std::vector<IndexBuilder::Field> index_fields_;
  std::vector<std::string> seek_records_;  // of the first index_fields_.size() fields
  codec::SeekPointBuilder seek_builder_;
  AlignedBuffer image_;    // a JPEG that is larger than the buffer
  AlignedBuffer numbers_;  // of an array, as they are stored
  AlignedBuffer array_;    // one that is larger than the buffer
  // What a field holds when JPEGs are rewritten.
  struct Content {
    AlignedBuffer read;
    codec::TranscodeResult result{};
    std::string rewritten;  // kRewritten only
  };
  std::vector<Content> contents_;
  std::string member_, header_, path_;
  PackContainer::File container_;
  uint32_t container_number_ = 0;
};

}  // namespace headrace::dataset
