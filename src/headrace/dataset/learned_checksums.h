// Checksums that an index lacks, learned at the first read of each field and kept in <shard>.hrsum
// beside the index; docs/formats/checksums.md. Several threads and processes share one file.
// Nothing here ever fails a read: where the place cannot be written, what is there is used and what
// is learned stays in this process. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "headrace/env/file.h"

namespace headrace::dataset {

class LearnedChecksums {
 public:
  // `path` empty: memory only. `index_crc32c` is the CRC32C of the index's header: a file that was
  // learned with another index is replaced (or ignored, when it cannot be).
  static std::unique_ptr<LearnedChecksums> Open(FileSystem* fs, const std::string& path,
                                                uint64_t num_fields, uint32_t index_crc32c);
  // The checksum of the field with this ordinal, if it was learned. ordinal < num_fields.
  std::optional<uint32_t> Load(uint64_t ordinal) const;
  void Store(uint64_t ordinal, uint32_t crc32c);

 private:
  LearnedChecksums() = default;
  bool OpenShared(FileSystem* fs, const std::string& path, uint64_t num_fields, uint64_t owner);
  bool OpenReadOnly(FileSystem* fs, const std::string& path, uint64_t num_fields, uint64_t owner);

  std::unique_ptr<SharedWords> shared_;
  std::unique_ptr<MappedFile> read_only_;
  std::vector<std::atomic<uint64_t>> local_;
};

}  // namespace headrace::dataset
