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

namespace headrace::dataset {

inline constexpr std::string_view kManifestName = "headrace.json";
inline constexpr std::string_view kIndexSuffix = ".hridx";     // <shard>.hridx
inline constexpr std::string_view kChecksumSuffix = ".hrsum";  // learned checksums, <shard>.hrsum

struct ManifestShard {
  std::string name;          // relative to the manifest, never absolute, never with ".."
  std::string index;         // file name of its index, relative to the manifest
  uint64_t samples = 0;
  uint64_t bytes = 0;        // size of the shard's file; 0 for files in place
  std::optional<uint32_t> crc32c;        // of the whole shard, when known
  uint32_t index_header_crc32c = 0;      // ties the index to this manifest
};

struct Manifest {
  static constexpr uint64_t kVersion = 1;
  std::string kind = "tar";            // "tar", "folder", "list"
  std::vector<std::string> fields;     // sorted
  std::vector<ManifestShard> shards;
  std::vector<std::string> classes;    // class names of a folder, in label order; may be empty
  std::vector<std::string> parents;    // versions
  std::string message;
  std::string created_by;              // "headrace 0.1.0": not part of the version

  // 64 hex digits: SHA-256 over kind, fields, classes and, per shard, name, samples, bytes, crc32c
  // and index checksum, in the canonical form of docs/formats/manifest.md.
  std::string ComputeVersion() const;
  uint64_t num_samples() const;
  std::string ToJson() const;
  // kDataLoss with the place when the text is no manifest or its version does not match its
  // content; kFailedPrecondition when it was written by a newer program.
  static Result<Manifest> FromJson(std::string_view text, std::string_view file_name);
};

}  // namespace headrace::dataset
