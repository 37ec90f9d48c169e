#include "headrace/dataset/tar_block.h"

#include <algorithm>

namespace headrace::dataset {
namespace {

constexpr size_t kChecksumAt = 148;
constexpr size_t kChecksumBytes = 8;
constexpr uint64_t kMaxNumber = INT64_MAX;

std::optional<uint64_t> ParseBase256(Bytes field) {
  if (field[0] == std::byte{0xff}) return std::nullopt;  // negative
  uint64_t value = static_cast<uint64_t>(field[0]) & 0x7f;
  for (std::byte b : field.subspan(1)) {
    if (value > (kMaxNumber >> 8)) return std::nullopt;
    value = value << 8 | static_cast<uint64_t>(b);
  }
  return value;
}

}  // namespace

std::optional<uint64_t> ParseTarNumber(Bytes field) {
  if (field.empty()) return 0;
  if ((field[0] & std::byte{0x80}) != std::byte{0}) return ParseBase256(field);
  size_t i = 0;
  auto at = [&](size_t k) { return static_cast<char>(field[k]); };
  while (i < field.size() && at(i) == ' ') ++i;
  uint64_t value = 0;
  for (; i < field.size() && at(i) >= '0' && at(i) <= '7'; ++i) {
    if (value > (kMaxNumber >> 3)) return std::nullopt;
    value = value << 3 | static_cast<uint64_t>(at(i) - '0');
  }
  if (i < field.size() && at(i) != ' ' && at(i) != '\0') return std::nullopt;
  return value;
}

bool TarChecksumMatches(Bytes block) {
  std::optional<uint64_t> stored = ParseTarNumber(block.subspan(kChecksumAt, kChecksumBytes));
  if (!stored) return false;
  uint64_t as_unsigned = ' ' * kChecksumBytes;
  int64_t as_signed = ' ' * kChecksumBytes;
  for (size_t i = 0; i < kTarBlockBytes; ++i) {
    if (i >= kChecksumAt && i < kChecksumAt + kChecksumBytes) continue;
    as_unsigned += static_cast<uint8_t>(block[i]);
    as_signed += static_cast<int8_t>(block[i]);
  }
  return *stored == as_unsigned || static_cast<int64_t>(*stored) == as_signed;
}

bool IsZeroBlock(Bytes block) {
  return std::all_of(block.begin(), block.end(), [](std::byte b) { return b == std::byte{0}; });
}

}  // namespace headrace::dataset
