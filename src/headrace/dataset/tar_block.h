// The sizes of a tar header block, and its numbers and checksum. Pure functions, any thread. Used
// by the tar reader and writer only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "headrace/base/bytes.h"

namespace headrace::dataset {

inline constexpr size_t kTarBlockBytes = 512;
inline constexpr size_t kTarNameBytes = 100;
inline constexpr size_t kTarPrefixBytes = 155;

// Reads a number field: octal digits between optional spaces, ended by NUL, space or the field's
// end, or base-256 when the first byte's high bit is set. An empty field is 0. Nothing when the
// field holds something else, is negative or passes 2^63 - 1.
std::optional<uint64_t> ParseTarNumber(Bytes field);

// True when the block's checksum field equals the sum of its bytes, taken as unsigned or, as some
// old writers did, as signed numbers.
bool TarChecksumMatches(Bytes block);

// True when every byte is zero.
bool IsZeroBlock(Bytes block);

}  // namespace headrace::dataset
