// A dataset version opened for reading: an ordered list of shards, each with an index, seen as one
// array of samples 0..num_samples(). Immutable and thread-safe. Opening reads the manifest only;
// the index of a shard is mapped at the first access to one of its samples.
//
// What can be opened: a folder with a manifest (headrace.json); a tar file or a folder of tars
// without one (indexed in memory from the headers, no checksums); a plain folder with one
// sub-folder per class; a .csv or .jsonl list of files.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/bytes.h"
#include "headrace/base/context.h"
#include "headrace/base/status.h"
#include "headrace/env/file.h"

namespace headrace::dataset {

// The name a field has in this dataset, as a small number: its place in Dataset::fields().
using FieldId = uint16_t;

struct ShardInfo {
  std::string name;        // relative to the dataset's folder
  uint64_t num_samples = 0;
  uint64_t size_bytes = 0;
};

struct OpenOptions {
  // Shards whose data file is kept open at once; lowered to what the process limit allows.
  uint32_t max_open_files = 256;
};

// One field of one sample: where it is and what it must look like.
struct FieldEntry {
  FieldId field = 0;
  uint64_t offset = 0;  // in the shard's file; 0 for a file of its own or a value in the index
  uint64_t length = 0;  // bytes
  std::optional<uint32_t> crc32c;  // empty: not known yet
};

// One field's bytes after Read.
struct FieldView {
  FieldId field = 0;
  Bytes data;
};

class Dataset {
 public:
  // kNotFound, kDataLoss (manifest or index damaged: names file and offset), kFailedPrecondition
  // (made by a newer version, or a shard that is missing or has another size than the manifest says).
  static Result<std::shared_ptr<const Dataset>> Open(FileSystem* fs, const std::string& path,
                                                     const OpenOptions& options);
  virtual ~Dataset() = default;

  // 64 hex digits that name the content: equal text, equal samples in equal order.
  virtual const std::string& version() const = 0;
  virtual const std::string& path() const = 0;
  virtual std::string_view kind() const = 0;  // "tar", "folder" or "list"
  virtual uint64_t num_samples() const = 0;
  virtual std::span<const ShardInfo> shards() const = 0;
  // Names of all fields in any sample, sorted by bytes. Known without touching an index.
  virtual std::span<const std::string> fields() const = 0;
  // The id of a field. kNotFound lists the fields there are.
  virtual Result<FieldId> FindField(std::string_view name) const = 0;
  // The number of the sample with this key. kNotFound.
  virtual Result<uint64_t> FindKey(std::string_view key) const = 0;
};

struct ReadOptions {
  bool verify_checksums = true;
  // Checksums that an index lacks are computed at the first read and remembered beside it where
  // that place can be written; later reads are checked against them.
  bool learn_checksums = true;
};

// What Read or Locate found. Views stay valid until the reader's next call.
struct SampleView {
  uint64_t id = 0;
  std::string_view key;       // bytes
  std::string_view shard;     // name of the shard
  std::span<const FieldEntry> entries;
  std::span<const FieldView> fields;  // Read only; parallel to the wanted fields that exist
  const FieldView* Find(FieldId field) const;
};

// Reads samples for one thread; its buffers are reused, so that in steady state nothing is
// allocated. Not thread-safe; make one per thread.
class SampleReader {
 public:
  static std::unique_ptr<SampleReader> Create(std::shared_ptr<const Dataset> dataset,
                                              const ReadOptions& options);
  virtual ~SampleReader() = default;

  // Looks up key and fields without reading data. kOutOfRange, or the index's faults.
  virtual Result<SampleView> Locate(uint64_t sample_id) = 0;

  // Reads the wanted fields (empty = all) and checks their CRC32C. A field that the sample lacks is
  // simply not in the result.
  //   kOutOfRange  no such sample.       kNotFound  the shard's or sample's file is gone.
  //   kDataLoss    wrong checksum, short shard, damaged index. The Status has the whole Location.
  virtual Result<SampleView> Read(uint64_t sample_id, std::span<const FieldId> wanted,
                                  const Context& ctx) = 0;

  // Reads one field's bytes (entry from the last Locate) into `out` (entry.length bytes) and checks
  // them. For callers that own the destination, so that the bytes are copied once.
  virtual Status ReadField(const FieldEntry& entry, MutableBytes out, const Context& ctx) = 0;

  // Nanoseconds spent reading and checking in the last Read or ReadField, and bytes read.
  struct Cost {
    uint64_t read_ns = 0, checksum_ns = 0, bytes = 0;
  };
  virtual const Cost& last_cost() const = 0;
  // Bytes of buffers held now.
  virtual uint64_t memory_bytes() const = 0;
};

}  // namespace headrace::dataset
