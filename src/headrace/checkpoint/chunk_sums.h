// The checksums of a data file: CRC32C of each 64 KiB, in a file of its own beside it
// (data/<hash>.crc, docs/formats/checkpoint.md), so that any part can be checked when it is read.
// Values: one owner at a time; reading from any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/bytes.h"
#include "headrace/base/status.h"
#include "headrace/checkpoint/hash128.h"

namespace headrace::checkpoint {

inline constexpr uint64_t kSumChunkBytes = 64 << 10;
// The size of the .crc file of a data file of so many bytes.
constexpr uint64_t ChunkSumsBytes(uint64_t file_bytes) {
  return 44 + 4 * (file_bytes / kSumChunkBytes + (file_bytes % kSumChunkBytes != 0 ? 1 : 0));
}

// The checksums of a part of a file: CRC32C of what of each chunk lies in it.
struct PartSums {
  uint64_t offset = 0, bytes = 0;  // in the file
  std::vector<uint32_t> sums;
};

class ChunkSums {
 public:
  // Of a file that comes from its start, in pieces of any size.
  class Builder {
   public:
    void Append(Bytes data);
    // A piece whose checksums are known; it begins where the one before ended.
    void Append(const PartSums& part);
    // Ends the file of that name.
    ChunkSums Finish(const Hash128& file);

   private:
    std::vector<uint32_t> sums_;
    uint64_t bytes_ = 0;
  };

  // Reads a .crc file. `name` is for messages.
  //   kDataLoss            damaged, or of another file than `file`.
  //   kFailedPrecondition  written by a newer program.
  static Result<ChunkSums> Decode(Bytes bytes, const Hash128& file, std::string_view name);
  std::string Encode() const;

  uint64_t file_bytes() const { return file_bytes_; }
  size_t num_chunks() const { return sums_.size(); }
  uint32_t sum(size_t chunk) const { return sums_[chunk]; }
  // Bytes of a chunk: kSumChunkBytes but for the last one.
  uint64_t ChunkBytes(size_t chunk) const;
  // CRC32C of the whole file.
  uint32_t WholeFile() const;
  // The least range of whole chunks that holds a range of the file, which must not be empty.
  struct Cover {
    uint64_t offset = 0, bytes = 0;
  };
  Cover CoverOf(uint64_t offset, uint64_t bytes) const;
  // Checks data read from `offset`, which must start where a chunk starts and end where one ends.
  // kDataLoss names `name`, the chunk's offset and both checksums. kInvalidArgument: not whole
  // chunks of this file.
  Status Check(uint64_t offset, Bytes data, std::string_view name) const;
  // What Check says of a chunk whose bytes have another checksum, `found`.
  Status Wrong(size_t chunk, uint32_t found, std::string_view name) const;

 private:
  Hash128 file_;
  uint64_t file_bytes_ = 0;
  std::vector<uint32_t> sums_;
};

}  // namespace headrace::checkpoint
