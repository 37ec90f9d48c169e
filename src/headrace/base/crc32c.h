// CRC32C (Castagnoli), the checksum of every byte we store. CRC32C of "123456789" is 0xe3069283.
// Pure functions, safe from any thread.
#pragma once

#include <cstdint>

#include "headrace/base/bytes.h"

namespace headrace {

// Returns the CRC32C of `data`; with `seed` the CRC of an earlier part, that of both joined.
uint32_t Crc32c(Bytes data, uint32_t seed = 0);

// Copies `data` to `to`, which does not overlap it, and returns its CRC32C as above. One pass
// through memory: each piece is checked while it is in the nearest cache.
uint32_t CopyWithCrc32c(std::byte* to, Bytes data, uint32_t seed = 0);

// Returns the CRC32C of two parts joined from those of each: `first`, then `second` of
// `second_bytes`. For parts that are read by different threads. O(log second_bytes).
uint32_t JoinCrc32c(uint32_t first, uint32_t second, uint64_t second_bytes);

}  // namespace headrace
