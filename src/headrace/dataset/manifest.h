// The manifest of a dataset version: schema, shards with sizes and checksums, parents, message.
// One JSON file, headrace.json, immutable once published; replaced only by rename. Its version is
// the SHA-256 over its canonical content. docs/formats/manifest.md. Values: one owner at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/status.h"
#include "headrace/dataset/index.h"
#include "headrace/env/file.h"

namespace headrace::dataset {

inline constexpr std::string_view kManifestName = "headrace.json";
// The "format" of a manifest that stands in while its data set is being sent to where it lies.
inline constexpr std::string_view kUnfinishedFormat = "headrace-unfinished";
inline constexpr std::string_view kIndexSuffix = ".hridx";     // <shard>.hridx
inline constexpr std::string_view kChecksumSuffix = ".hrsum";  // learned checksums, <shard>.hrsum
// Where `headrace index` puts manifest and index of a folder or list that is read in place.
inline constexpr std::string_view kInPlaceFolder = ".headrace";
// Where a pack keeps what it has not published yet, in the folder that it packs into.
inline constexpr std::string_view kStagingFolder = ".headrace-pack";

struct ManifestShard {
  std::string name;   // relative to the manifest (or its base), see CheckRelativeName
  std::string index;  // file name of its index, relative to the manifest
  uint64_t samples = 0;
  uint64_t bytes = 0;                // size of the shard's file; 0 for files in place
  std::optional<uint32_t> crc32c;    // of the whole shard, when known
  uint32_t index_header_crc32c = 0;  // ties the index to this manifest
  // Stands for the index in the version, when that is not index_header_crc32c: so the version stays
  // when seek points are added (IndexReader::samples_crc32c).
  std::optional<uint32_t> samples_crc32c = {};

  // Takes both from an open index.
  void SetIndex(const IndexReader& reader);
};

struct Manifest {
  // 2: some shard has a samples_crc32c. 3: a kind that earlier programs do not know.
  static constexpr uint64_t kVersion = 3;
  std::string kind = "tar";         // "tar", "tfrecord", "mds", "folder", "list"
  std::vector<std::string> fields;  // sorted
  std::vector<ManifestShard> shards;
  std::vector<std::string> classes;  // class names of a folder, in label order; may be empty
  // Folder that shard names (and the files of an in-place dataset) are relative to: absolute, a
  // URL, or relative to the manifest's folder; empty = the manifest's folder. Not part of the
  // version.
  std::string base;
  std::vector<std::string> parents;  // versions; not part of the version
  std::string message;               // not part of the version
  std::string created_by;            // "headrace 0.1.0": not part of the version

  // 64 hex digits: SHA-256 over kind, fields, classes and, per shard, name, samples, bytes, crc32c
  // and samples_crc32c or index checksum, in the canonical form of docs/formats/manifest.md.
  std::string ComputeVersion() const;
  uint64_t num_samples() const;
  // That folder, for a manifest that lies in `folder`. kInvalidArgument when the manifest comes by
  // URL and names files of this machine or another place: only a person may do that.
  Result<std::string> DataFolder(const std::string& folder) const;
  // The text of headrace.json. Names that are not printable UTF-8 are escaped (EscapeText).
  std::string ToJson() const;
  // Reads the text of a headrace.json called `file_name` in messages.
  //   kDataLoss            no manifest, a member that is missing or wrong (says which), a name that
  //                        CheckRelativeName refuses, or a version or checksum that does not match.
  //   kFailedPrecondition  written by a newer program, or of a data set that is not all there yet.
  static Result<Manifest> FromJson(std::string_view text, std::string_view file_name);
  // Reads and parses the manifest at `path`. Also the file system's failures.
  static Result<Manifest> Load(FileSystem* fs, const std::string& path);
};

// Accepts a name that stays inside its folder: not empty, not absolute, at most 4,096 bytes, no
// NUL, and no part that is empty, "." or "..". kInvalidArgument says what is wrong.
Status CheckRelativeName(std::string_view name);

}  // namespace headrace::dataset
