// The header of a safetensors file: read with every check that the format asks for, and written
// padded so that the data starts at a multiple of 4,096. Only headers: data is read and written by
// others. Pure functions, safe from any thread; no exception leaves them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "headrace/base/bytes.h"
#include "headrace/base/status.h"
#include "headrace/checkpoint/dtype.h"

namespace headrace::checkpoint {

inline constexpr uint64_t kMaxSafetensorsHeader = 100'000'000;  // N
inline constexpr uint64_t kDataAlignment = 4096;

struct SafetensorsEntry {
  std::string name;  // UTF-8, as JSON needs it
  DType dtype = DType::kU8;
  std::vector<uint64_t> shape;
  uint64_t offset = 0, bytes = 0;  // in the file (not from the start of its data)
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  // by offset; without holes
  std::vector<std::pair<std::string, std::string>> metadata;
  uint64_t data_start = 0;  // 8 + N
  uint64_t file_bytes = 0;
};

// How many bytes of the file the header takes (8 + N), from its first 8 bytes. `file` is its name,
// for messages. kDataLoss: shorter than 8 bytes, N beyond the file's end or beyond
// kMaxSafetensorsHeader.
Result<uint64_t> SafetensorsHeaderBytes(Bytes first, uint64_t file_bytes, std::string_view file);

// Reads a header: `head` is at least the first 8 + N bytes of a file of `file_bytes`.
//   kDataLoss       damaged: says what, with the file and the entry; also an entry that is there
//                   twice, a hole, an overlap, a size that does not fit type and shape, data that
//                   is not all there or more than all.
//   kUnimplemented  a type of elements that is not known here.
Result<SafetensorsHeader> ParseSafetensors(Bytes head, uint64_t file_bytes, std::string_view file);

struct SafetensorsSpec {
  std::string_view name;
  DType dtype = DType::kU8;
  std::span<const uint64_t> shape;
};
struct WrittenHeader {
  std::string bytes;              // the file's start: length, JSON, spaces
  std::vector<uint64_t> offsets;  // of each entry in the file
  uint64_t file_bytes = 0;
};
// Writes the header of a file whose entries lie one behind the other in the order given.
//   kInvalidArgument    a name that is not UTF-8, is there twice, or is "__metadata__"; elements
//                       that are no whole number of bytes; sizes beyond 2^62.
//   kResourceExhausted  more than kMaxSafetensorsHeader bytes of header.
Result<WrittenHeader> WriteSafetensorsHeader(
    std::span<const SafetensorsSpec> entries,
    std::span<const std::pair<std::string, std::string>> metadata = {});

}  // namespace headrace::checkpoint
