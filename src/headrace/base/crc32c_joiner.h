// Joins CRC32C as JoinCrc32c does (base/crc32c.h), for many second parts of one size: what depends
// on the size is worked out once. A value; reading it is safe from any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace headrace {

class Crc32cJoiner {
 public:
  explicit Crc32cJoiner(uint64_t second_bytes);

  // The CRC32C of both parts.
  uint32_t Join(uint32_t first, uint32_t second) const {
    for (size_t k = 0; k < tables_.size(); ++k) second ^= tables_[k][first >> (8 * k) & 0xff];
    return second;
  }

 private:
  std::array<std::array<uint32_t, 256>, 4> tables_;  // by the bytes of `first`
};

}  // namespace headrace
