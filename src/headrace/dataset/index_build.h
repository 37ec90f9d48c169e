// Makes indexes: of a tar's or TFRecord's bytes where they are, of a folder of files, of a list of
// files; and `headrace index`, which stores them with a manifest. Functions without state: any
// thread. They read metadata of every sample, once, and the data when they are asked for what only
// it tells; everything after that reads the index. An index is held in memory until it is written:
// about 60 bytes, the key and the path of each sample, and its seek points (at most 2 % of the
// image).
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/context.h"
#include "headrace/base/status.h"
#include "headrace/dataset/index.h"
#include "headrace/dataset/manifest.h"
#include "headrace/dataset/seek_tally.h"
#include "headrace/dataset/tar.h"
#include "headrace/env/file.h"

namespace headrace::dataset {

// What to do when a key comes again after members of other keys.
enum class RepeatedKeys : uint8_t {
  kRefuse,    // an error that names both places: mostly a tar whose members were not sorted
  kSeparate,  // each run of members is a sample of its own, as a WebDataset reader sees it
};

// Work done so far; anyone may read it at any time.
struct IndexProgress {
  std::atomic<uint64_t> samples{0}, bytes{0};              // done
  std::atomic<uint64_t> total_samples{0}, total_bytes{0};  // 0 until known
};

struct BuildOptions {
  // Reads all data and stores CRC32Cs, which become part of the dataset's version. Without it only
  // headers (tar) or sizes (files) are read, and checksums are learned at the first read of a
  // sample.
  bool checksums = false;
  // Keeps seek points every 4 or 8 MCUs for each field whose bytes are a JPEG; 0 = none. Reads all
  // data, and so stores CRC32Cs too. The dataset's version is what it is without, so that the order
  // of its samples stays and a training run goes on.
  uint32_t seek_spacing = 0;
  uint32_t threads = 0;               // that read data; 0 = one for each processor
  IndexProgress* progress = nullptr;  // may be null; not owned
  // Makes an index of what can be read in a damaged tar; the damage is in the report.
  bool allow_damage = false;
  RepeatedKeys repeated_keys = RepeatedKeys::kRefuse;

  bool reads_data() const { return checksums || seek_spacing != 0; }
};

// An index in memory, and what was seen while it was made.
struct BuiltIndex {
  std::string bytes;  // of the index file
  uint64_t num_samples = 0;
  uint64_t size_bytes = 0;               // of the shard's file; 0 for files in place
  std::optional<uint32_t> shard_crc32c;  // of the whole shard, with `checksums`
  std::vector<std::string> fields;       // sorted
  std::vector<std::string> classes;      // of a folder
  TarScanResult scan;                    // of a tar or TFRecord
  uint64_t num_skipped = 0;              // members or files that belong to no sample
  std::string first_skipped;             // the first of them
};

// Indexes one tar. Consecutive members with the same key are one sample.
//   kInvalidArgument   a field twice in one sample, or a key that comes again: names both offsets.
//   kUnimplemented     a sparse member, or a compressed file.
//   kDataLoss          damage (unless allowed), or no tar. Also the file's I/O faults.
Result<BuiltIndex> BuildTarIndex(const RandomAccessFile& file, const BuildOptions& options,
                                 const Context& ctx);

// Indexes a folder of files (ImageFolder): each folder directly below is a class, numbered in byte
// order of the names, and gives the field "cls" (the number as text) to the samples under it,
// however deep, unless a sample has a file for that field. A folder without folders gives samples
// without "cls"; files that lie beside class folders are skipped. A sample is the files of one
// folder with the same name up to the first dot; key = that path, field = the rest. Hidden files
// and folders and files without a dot are skipped; links are followed, but not into a folder above.
//   kInvalidArgument   no sample at all, with what was found instead; tars in folders below.
Result<BuiltIndex> BuildFolderIndex(FileSystem* fs, const std::string& folder,
                                    const BuildOptions& options, const Context& ctx);

// Indexes a list of files: .csv with a header row, or .jsonl with an object a line. A column named
// "path" or "file", or ending in "_path" or "_file", holds files relative to the list's folder and
// gives the field "file", or the column's name without that ending; an empty value gives none. The
// other columns are fields whose text is in the index. The key is the column "key", else the first
// file's path without what follows the first dot of its last part, else the row's number.
//   kInvalidArgument   a row that cannot be read, a path that is absolute or leaves the folder, a
//                      missing file: names the line.
Result<BuiltIndex> BuildListIndex(FileSystem* fs, const std::string& list,
                                  const BuildOptions& options, const Context& ctx);

// Indexes one TFRecord file of tf.train.Example messages: a sample for each record, with the key
// NAME/00000012 (its number in the file), and a field for each feature (docs/formats/tfrecord.md).
//   kDataLoss          damage (unless allowed), or no TFRecord.
//   kInvalidArgument   a record that is no Example (unless allowed: then it is skipped).
//   kUnimplemented     a file compressed as a whole.
// Also the file's I/O faults.
Result<BuiltIndex> BuildTfRecordIndex(const RandomAccessFile& file, std::string_view name,
                                      const BuildOptions& options, const Context& ctx);
// Decides by the name, else by the first bytes. Fails as opening the file does.
Result<bool> IsTfRecordFile(FileSystem* fs, const std::string& path);

// Files that hold many samples each, of one kind.
struct ShardList {
  std::string kind = "tar";  // or "tfrecord"
  std::vector<std::string> names;
};
// The shards that lie directly in a folder, sorted by bytes; hidden ones are skipped: *.tar, or
// when there are none, TFRecords (IsTfRecordName; else names like train-00000-of-00010 when the
// first of them is one).
Result<ShardList> ListShards(FileSystem* fs, const std::string& folder);
// Indexes one file of a ShardList's kind. `name` is that of the shard.
Result<BuiltIndex> BuildShardIndex(const RandomAccessFile& file, std::string_view kind,
                                   std::string_view name, const BuildOptions& options,
                                   const Context& ctx);
// The failure of shards of this kind that hold no sample; `path` is that of the first.
Status NoSamplesIn(const std::string& path, std::string_view kind);
// True for .csv and .jsonl.
bool IsListName(std::string_view path);
// Where the manifest of an indexed list is kept: .headrace/<list> beside the list.
std::string InPlaceFolderOfList(const std::string& list);

struct IndexOptions {
  BuildOptions build;
  std::string output;   // folder for manifest and indexes; empty = beside the data
  std::string message;  // for the manifest
};

struct ShardReport {
  std::string name;
  uint64_t num_skipped = 0;
  std::string first_skipped;
  TarScanResult scan;
  SeekTally seek;
};
struct IndexReport {
  Manifest manifest;
  std::string manifest_path;
  std::vector<ShardReport> shards;  // parallel to manifest.shards
};

// Indexes `paths`, which are tar files and folders of tars, or TFRecord files and folders of them,
// or one plain folder, or one list, and
// stores an index for each shard and one manifest, each in one atomic step, the manifest last. What
// was there before is replaced, and stays as it was until all indexes are made. Where: beside tars
// that lie in one folder; in the sub-folder .headrace of a plain folder, .headrace/<list> beside a
// list; or in `output`. kFailedPrecondition when `output` is empty and the shards lie in different
// folders; kInvalidArgument when they are of different kinds; kPermissionDenied says to give an
// output folder.
Result<IndexReport> IndexDataset(FileSystem* fs, std::span<const std::string> paths,
                                 const IndexOptions& options, const Context& ctx);

}  // namespace headrace::dataset
