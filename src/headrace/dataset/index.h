// The sidecar index of one shard: for each sample its key and its fields' place, length and CRC32C.
// Memory-mapped; nothing is read until it is touched, and each 4 KiB chunk is checked against its
// CRC32C at its first touch. docs/formats/index.md is the format. IndexReader is immutable and
// thread-safe; IndexBuilder is for one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/bytes.h"
#include "headrace/base/status.h"
#include "headrace/env/file.h"

namespace headrace::dataset {

// How the bytes of a shard's fields are stored.
enum class ShardKind : uint32_t {
  kTar = 1,    // byte ranges of one file
  kFiles = 2,  // each field is a file of its own, named in the index
};

// One field as the index holds it. Exactly one of: a range of the shard file (kTar), a file path
// relative to the dataset's folder (kFiles), or bytes inside the index (`in_index`).
struct IndexField {
  uint32_t name = 0;                // place in IndexReader::field_names()
  uint64_t offset = 0;              // kTar
  uint64_t length = 0;              // bytes
  std::optional<uint32_t> crc32c;   // empty: not known when the index was made
  bool in_index = false;
  std::string_view value;           // in_index: the bytes; kFiles: the path
};

struct IndexSample {
  std::string_view key;
  std::vector<IndexField> fields;  // reused by Get: clear() keeps the capacity
};

// Ties an index to its shard: size and CRC32C of the first and last 4 KiB (0 for kFiles).
struct ShardIdentity {
  uint64_t size_bytes = 0;
  uint32_t head_crc32c = 0;
  uint32_t tail_crc32c = 0;
  friend bool operator==(const ShardIdentity&, const ShardIdentity&) = default;
};
Result<ShardIdentity> IdentifyShard(const RandomAccessFile& file, const Context& ctx);

class IndexBuilder {
 public:
  explicit IndexBuilder(ShardKind kind);
  ~IndexBuilder();
  // Samples are numbered in the order of these calls. A field's `name` is a text here.
  struct Field {
    std::string_view name;
    uint64_t offset = 0;
    uint64_t length = 0;
    std::optional<uint32_t> crc32c;
    bool in_index = false;
    std::string_view value;
  };
  // kInvalidArgument: key longer than 65,535 bytes, more than 4,096 fields, two equal field names.
  Status Add(std::string_view key, std::span<const Field> fields);
  uint64_t num_samples() const;
  // Returns the whole file's bytes. Call once, last.
  Result<std::string> Finish(const ShardIdentity& identity);

 private:
  struct Rep;
  std::unique_ptr<Rep> rep_;
};

class IndexReader {
 public:
  // Checks the header only: O(1) whatever the size. `name` is used in messages.
  //   kDataLoss            not an index, damaged header, shorter than its header says.
  //   kFailedPrecondition  written by a newer version: says which and what to do.
  static Result<std::unique_ptr<IndexReader>> Open(std::unique_ptr<MappedFile> file,
                                                   std::string name);
  static Result<std::unique_ptr<IndexReader>> FromBytes(std::string bytes, std::string name);
  ~IndexReader();

  ShardKind kind() const;
  uint64_t num_samples() const;
  const ShardIdentity& identity() const;
  std::span<const std::string> field_names() const;
  // CRC32C of the header, which covers the chunk checksums and so the whole file.
  uint32_t header_crc32c() const;
  // True when every field has a CRC32C.
  bool fully_checksummed() const;
  // Number of fields before sample i: the place of its first field in a side file of checksums.
  // Fills `out`; views stay valid as long as this reader. kOutOfRange, kDataLoss (damaged chunk).
  Status Get(uint64_t i, IndexSample* out, uint64_t* first_field_ordinal = nullptr) const;
  // Total number of fields of all samples.
  uint64_t num_fields() const;
  // The sample with this key: kNotFound. O(log samples).
  Result<uint64_t> Find(std::string_view key) const;
  // Checks every chunk: what `verify` does.
  Status VerifyAll() const;

 private:
  IndexReader();
  struct Rep;
  std::unique_ptr<Rep> rep_;
};

}  // namespace headrace::dataset
