// A dataset version opened for reading: an ordered list of shards, each with an index, seen as one
// array of samples 0..num_samples(). Immutable and thread-safe, also after fork(). Opening reads
// the manifest only; the index of a shard is mapped at the first access to one of its samples, and
// its data file is held against the index when it is first opened.
//
// A path is one of the file system given, which may know URLs (object/url_file_system.h). What can
// be opened: a folder with a manifest (headrace.json); a tar or TFRecord file or a folder of them
// without one (indexed in memory from the headers); a folder with an MDS index.json; a plain folder
// with one sub-folder per class; a .csv or .jsonl list of files.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/bytes.h"
#include "headrace/base/context.h"
#include "headrace/base/status.h"
#include "headrace/dataset/index.h"
#include "headrace/dataset/manifest.h"
#include "headrace/env/file.h"

namespace headrace::cache {
class NodeCache;
struct ObjectId;
}  // namespace headrace::cache

namespace headrace::dataset {

// The name a field has in this dataset, as a small number: its place in Dataset::fields().
using FieldId = uint16_t;

struct ShardInfo {
  std::string name;  // relative to the dataset's folder
  uint64_t num_samples = 0;
  uint64_t size_bytes = 0;
};

struct OpenOptions {
  // Shards whose data file is kept open at once; lowered to a quarter of the process's limit. A
  // file being read when it is dropped stays open until that read ends: at most one more per
  // reader.
  uint32_t max_open_files = 256;
  // Memory for shards that are compressed as a whole (MDS) and so are held unpacked; the least
  // recently used one goes first. One shard is always held, whatever its size.
  uint64_t max_unpacked_bytes = uint64_t{8} << 30;
  // Where readers keep seek points that an index lacks (cache/side_file.h); may be asked in a
  // forked child too. Empty, or null while there is no cache: they keep none.
  std::function<cache::NodeCache*(const cache::ObjectId&)> side = {};
};

// One field of one sample: where it is and what it must look like.
struct FieldEntry {
  FieldId field = 0;
  uint64_t offset = 0;  // in the shard's file; 0 for a file of its own or a value in the index
  uint64_t length = 0;  // bytes that reading gives: of an array more than are stored
  std::optional<uint32_t> crc32c;  // of the stored bytes; empty: not known yet
  bool learned = false;            // crc32c comes from an earlier read, not from the index
  bool in_index = false;           // the bytes are in the index itself: reading them does no I/O
  bool in_record = false;          // without crc32c its record's own checksum is checked
  bool has_checksum() const { return in_index || in_record || crc32c.has_value(); }
};

// One field's bytes after Read.
struct FieldView {
  FieldId field = 0;
  Bytes data;
  Bytes seek_points = {};  // of a JPEG, with ReadOptions::seek_points; empty: none are kept
  std::optional<uint32_t> crc32c = {};  // of `data`, when this read has computed it
};

class Dataset {
 public:
  //   kNotFound            nothing is there. Patterns like "*" are not expanded: says so.
  //   kDataLoss            manifest or index damaged, or a tar without index damaged: file and
  //   offset. kFailedPrecondition  made by a newer version; a shard or index that is missing (one
  //   listing of
  //                        its folder tells); a list that changed after it was indexed.
  //   kInvalidArgument     a folder without samples, a list or tar that cannot be read as one.
  // Also the file system's failures. With a manifest O(shards) time; without one O(samples).
  static Result<std::shared_ptr<const Dataset>> Open(FileSystem* fs, const std::string& path,
                                                     const OpenOptions& options);
  virtual ~Dataset() = default;

  // 64 hex digits that name the content: equal text, equal samples in equal order.
  virtual const std::string& version() const = 0;
  virtual const std::string& path() const = 0;
  virtual std::string_view kind() const = 0;  // "tar", "tfrecord", "mds", "folder" or "list"
  virtual uint64_t num_samples() const = 0;
  virtual std::span<const ShardInfo> shards() const = 0;
  // The manifest read, or the one that stands for a dataset that has none (its index names are
  // then empty). Class names of a folder are manifest().classes.
  virtual const Manifest& manifest() const = 0;
  // The id of a shard's first sample; for shard = shards().size() the number of samples.
  virtual uint64_t first_sample(size_t shard) const = 0;
  // Names of all fields in any sample, sorted by bytes. Known without touching an index.
  virtual std::span<const std::string> fields() const = 0;
  // The id of a field. kNotFound lists the fields there are.
  virtual Result<FieldId> FindField(std::string_view name) const = 0;
  // The number of the first sample with this key. kNotFound. O(shards log samples); maps all
  // indexes on the way.
  virtual Result<uint64_t> FindKey(std::string_view key) const = 0;
  // The index of a shard, mapped at the first call; lives as long as the dataset. kDataLoss
  // (damaged index), kFailedPrecondition (an index that is not the one the manifest names, or
  // newer).
  virtual Result<const IndexReader*> Index(size_t shard) const = 0;
  // The file that all bytes of a shard are read from, opened by nobody yet.
  struct ShardFile {
    FileSystem* fs = nullptr;
    std::string path;
  };
  // kUnimplemented when each of the shard's fields is a file of its own.
  virtual Result<ShardFile> FileOfShard(size_t shard) const = 0;
  // Opens a shard's data file and holds it against its index, without reading samples: for a check
  // before the start. kNotFound, kDataLoss, kFailedPrecondition as for SampleReader::Read.
  virtual Status CheckShard(size_t shard, const Context& ctx) const = 0;
  // Reads a shard's whole file and holds it against what is known of it as a whole (the manifest's
  // CRC32C). OK when nothing is. kDataLoss, else as CheckShard.
  virtual Status CheckWholeShard(size_t shard, const Context& ctx) const = 0;
};

// What became of seek points that indexes lack.
struct SeekPointTotals {
  uint64_t used = 0;      // records that were found in the node's cache
  uint64_t added = 0;     // records that were built and kept there
  uint64_t build_ns = 0;  // spent on building and keeping
};
// The same as several readers count it. Any thread.
struct SeekPointCounters {
  std::atomic<uint64_t> used{0}, added{0}, build_ns{0};
  SeekPointTotals Load() const { return {used.load(), added.load(), build_ns.load()}; }
};

struct ReadOptions {
  bool verify_checksums = true;
  // Checksums that an index lacks are computed at the first read and remembered beside it where
  // that place can be written; later reads are checked against them.
  bool learn_checksums = true;
  // Gives the seek points of each field along. What is damaged of them counts as not kept: no
  // pixel depends on them.
  bool seek_points = false;
  // With seek_points and OpenOptions::side: of shards whose index has none they are looked for
  // there, and built from the bytes of each JPEG that has none yet. What becomes of them is counted
  // here. Null: not done.
  std::shared_ptr<SeekPointCounters> learn_seek_points = {};
  // Checks the records of a TFRecord whole, also where each wanted field has a checksum.
  bool whole_records = false;
};

// What Read or Locate found. Views stay valid until the reader's next call.
struct SampleView {
  uint64_t id = 0;
  std::string_view key;    // bytes
  std::string_view shard;  // name of the shard
  std::span<const FieldEntry> entries;
  std::span<const FieldView> fields;  // Read only; parallel to the wanted fields that exist
  const FieldView* Find(FieldId field) const { return First(fields, field); }
  const FieldEntry* FindEntry(FieldId field) const { return First(entries, field); }

 private:
  template <typename T>
  static const T* First(std::span<const T> all, FieldId field) {
    for (const T& one : all)
      if (one.field == field) return &one;
    return nullptr;
  }
};

// Reads samples for one thread; numbers that lie bare in a shard are given as an .npy array; its
// buffers are reused, so that in steady state nothing is allocated. Not thread-safe; make one per
// thread.
class SampleReader {
 public:
  static std::unique_ptr<SampleReader> Create(std::shared_ptr<const Dataset> dataset,
                                              const ReadOptions& options);
  virtual ~SampleReader() = default;

  // Brings the index entries of samples that will be located soon closer to the processor, all at
  // once. A hint: it reads no file and cannot fail.
  virtual void Prefetch(std::span<const uint64_t> sample_ids) const = 0;

  // Tells the file system what Read will ask of it soon, or ReadField of each of the fields. A
  // hint: it waits for nothing and cannot fail. Only shards that were read from before are told of.
  // Spoils what Read and Locate gave.
  virtual void WillRead(uint64_t sample_id, std::span<const FieldId> wanted,
                        const Context& ctx) = 0;

  // Looks up key and fields without reading data. kOutOfRange, or the index's faults.
  virtual Result<SampleView> Locate(uint64_t sample_id) = 0;

  // Reads the wanted fields (empty = all) and checks their CRC32C. A field that the sample lacks is
  // simply not in the result.
  //   kOutOfRange          no such sample.
  //   kNotFound            the shard's or sample's file is gone.
  //   kDataLoss            wrong checksum, a shard or file that is shorter than its index says, a
  //                        damaged index. The Status has the whole Location.
  //   kFailedPrecondition  the index belongs to another shard, or was made by a newer program.
  //   kResourceExhausted   no memory or no descriptor for it.
  virtual Result<SampleView> Read(uint64_t sample_id, std::span<const FieldId> wanted,
                                  const Context& ctx) = 0;

  // Reads one field's bytes (entry from the last Locate) into `out` (entry.length bytes) and checks
  // them. For callers that own the destination, so that the bytes are copied once. Failures as
  // Read; kInvalidArgument when `out` has another size or the entry is not of the last Locate or
  // Read. (Read also notices a file of its own that has grown; here only a checksum can.)
  virtual Status ReadField(const FieldEntry& entry, MutableBytes out, const Context& ctx) = 0;

  // Where a field (entry from the last Locate or Read) lies: its own file, or shard and offset;
  // with its sample's key and its name.
  virtual Location Where(const FieldEntry& entry) const = 0;

  // A fault in the bytes of a field (of the last Read), told with its place in the file: the
  // fault's own offset counts from the field's first byte. For those who decode fields.
  Status AtField(const Status& fault, const SampleView& sample, FieldId field) const;

  // Nanoseconds spent reading, checking, and finding or building seek points that the index lacks
  // in the last Read or ReadField, and bytes read.
  struct Cost {
    uint64_t read_ns = 0, checksum_ns = 0, seek_points_ns = 0, bytes = 0;
  };
  virtual const Cost& last_cost() const = 0;
  // Bytes of buffers held now.
  virtual uint64_t memory_bytes() const = 0;
};

}  // namespace headrace::dataset
