// The sidecar index of one shard: for each sample its key and its fields' place, length and CRC32C.
// Memory-mapped; nothing of the body is read until it is touched, and each 4 KiB chunk is checked
// against its CRC32C at its first touch. docs/formats/index.md is the format. IndexReader is
// immutable and thread-safe; IndexBuilder is for one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "headrace/base/bytes.h"
#include "headrace/base/status.h"
#include "headrace/env/file.h"

namespace headrace::dataset {

// How the bytes of a shard's fields are stored.
enum class ShardKind : uint32_t {
  kTar = 1,      // byte ranges of one file: a tar, an MDS shard
  kFiles = 2,    // each field is a file of its own, named in the index
  kRecords = 3,  // byte ranges of one file, a record for each sample with a CRC32C of its own
};

// One field as the index holds it. Exactly one of: a range of the shard file (kTar, kRecords), a
// file path relative to the dataset's folder (kFiles), or bytes inside the index (`in_index`).
struct IndexField {
  uint32_t name = 0;               // place in IndexReader::field_names()
  uint64_t offset = 0;             // of a range; else 0
  uint64_t length = 0;             // bytes, as they are stored
  std::optional<uint32_t> crc32c;  // of these; empty: not known when the index was made
  bool in_index = false;
  std::string_view value;  // in_index: the bytes; kFiles: the path; is_array: the coded ArrayForm
  bool is_array = false;   // a range of bare numbers, given to readers as an .npy array
  friend bool operator==(const IndexField&, const IndexField&) = default;
};

// The record of a sample (kRecords): all its fields' ranges lie inside it.
struct RecordRange {
  uint64_t offset = 0, length = 0;  // of its data, without the frame around it
  uint32_t crc32c = 0;              // as the shard itself states it; not masked
  friend bool operator==(const RecordRange&, const RecordRange&) = default;
};

struct IndexSample {
  std::string_view key;
  RecordRange record;              // kRecords only
  std::vector<IndexField> fields;  // reused by Get: clear() keeps the capacity
};

// Ties an index to its shard: size and CRC32C of the first and last 4 KiB (all 0 for kFiles).
struct ShardIdentity {
  uint64_t size_bytes = 0;
  uint32_t head_crc32c = 0;
  uint32_t tail_crc32c = 0;
  friend bool operator==(const ShardIdentity&, const ShardIdentity&) = default;
};
// Reads the first and last 4 KiB (less of a smaller file). Fails with the file's I/O faults.
Result<ShardIdentity> IdentifyShard(const RandomAccessFile& file, const Context& ctx);

// Collects samples in memory (about 60 bytes, the key and the seek points for each) and makes an
// index of them.
class IndexBuilder {
 public:
  explicit IndexBuilder(ShardKind kind);
  ~IndexBuilder();
  IndexBuilder(IndexBuilder&&) noexcept;
  IndexBuilder& operator=(IndexBuilder&&) noexcept;
  // Samples are numbered in the order of these calls. A field's `name` is a text here. `length` and
  // `crc32c` of an in_index field are those of its value, whatever is given.
  struct Field {
    std::string_view name;
    uint64_t offset = 0;
    uint64_t length = 0;
    std::optional<uint32_t> crc32c;
    bool in_index = false;
    std::string_view value;
    // The seek points of a JPEG (codec/seek_points.h): any bytes here. Empty: none.
    std::string_view seek_points;
    // The coded ArrayForm of a range that is an array; empty: plain bytes. Not for kFiles.
    std::string_view array_form = {};
  };
  // kInvalidArgument: key longer than 65,535 bytes, more than 4,096 fields, two equal field names,
  // a field name that is empty or longer than 65,535 bytes. kResourceExhausted: more than 65,536
  // field names or 2^32 - 1 samples. No sample is added then.
  // `record` is for kRecords, which needs it.
  Status Add(std::string_view key, std::span<const Field> fields, const RecordRange& record = {});
  uint64_t num_samples() const;
  uint64_t num_fields() const;
  // Two samples with equal keys (the smaller number first), if there are any. O(n log n) once.
  std::optional<std::pair<uint64_t, uint64_t>> FindRepeatedKey();
  // The key of an added sample, valid until the next Add.
  std::string_view KeyOf(uint64_t sample) const;
  // All field names seen, sorted by bytes.
  std::vector<std::string> SortedFieldNames() const;
  // Returns the whole file's bytes; equal calls give equal bytes. Call once, last. `samples_crc32c`
  // is what IndexReader::samples_crc32c() gives back; without it, what it was without seek points.
  Result<std::string> Finish(const ShardIdentity& identity,
                             std::optional<uint32_t> samples_crc32c = {});

 private:
  struct Rep;
  std::unique_ptr<Rep> rep_;
};

class IndexReader {
 public:
  // Checks the header, the table of chunk checksums (a thousandth of the file) and the field names;
  // no record is touched. `name` is used in messages.
  //   kDataLoss            not an index, damaged header, shorter or longer than its header says.
  //   kFailedPrecondition  written by a newer version: says which and what to do.
  static Result<std::unique_ptr<IndexReader>> Open(std::unique_ptr<MappedFile> file,
                                                   std::string name);
  static Result<std::unique_ptr<IndexReader>> FromBytes(std::string bytes, std::string name);
  ~IndexReader();

  ShardKind kind() const;
  uint64_t num_samples() const;
  // Total number of fields of all samples.
  uint64_t num_fields() const;
  const ShardIdentity& identity() const;
  std::span<const std::string> field_names() const;
  const std::string& name() const;
  // CRC32C of the header, which covers the chunk checksums and so the whole file.
  uint32_t header_crc32c() const;
  // Stands for the samples in a dataset's version: the header_crc32c that the index would have
  // without its seek points, or before anything was learned from the samples' bytes.
  uint32_t samples_crc32c() const;
  // Number of fields whose CRC32C was not known when the index was made.
  uint64_t num_unchecked_fields() const;
  bool fully_checksummed() const { return num_unchecked_fields() == 0; }
  // Fills `out`; views stay valid as long as this reader. `first_field_ordinal` gets the number of
  // fields of all samples before i: the place of its first field in a side file of checksums.
  // kOutOfRange, kDataLoss (damaged chunk or record). Allocates only when `out->fields` must grow.
  Status Get(uint64_t i, IndexSample* out, uint64_t* first_field_ordinal = nullptr) const;
  // Every call here fails with kIoError once the index's file cannot be read any more; views that
  // were given before may then be zeros. Who has used such views asks here afterwards. Cheap.
  Status Check() const;
  // Brings what Get(i) reads closer to the processor: first where its record lies, and once that
  // has come, the record. Hints for many samples at once, so that their waits for memory overlap;
  // any i is allowed, nothing is checked.
  void PrefetchPlace(uint64_t i) const;
  void PrefetchRecord(uint64_t i) const;
  // True when the index keeps seek points for any field, and how many bytes of records.
  bool has_seek_points() const;
  uint64_t seek_points_bytes() const;
  // The seek points of a field, by its ordinal (Get's `first_field_ordinal` and its place in the
  // sample); empty when it has none. Valid as long as this reader. kOutOfRange, kDataLoss (damaged
  // chunk, or offsets that lead out of their section).
  Result<Bytes> SeekPoints(uint64_t field_ordinal) const;
  // The first sample with this key: kNotFound. O(log samples).
  Result<uint64_t> Find(std::string_view key) const;
  // Checks every chunk and decodes every record: what `verify` does.
  Status VerifyAll() const;

 private:
  IndexReader();
  struct Rep;
  std::unique_ptr<Rep> rep_;
};

}  // namespace headrace::dataset
