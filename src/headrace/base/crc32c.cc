#include "headrace/base/crc32c.h"

#include <isa-l/crc.h>

#include <algorithm>

namespace headrace {

uint32_t Crc32c(Bytes data, uint32_t seed) {
  // ISA-L takes an int length and neither inverts its start value nor its result.
  constexpr size_t kMaxPart = size_t{1} << 30;
  uint32_t crc = ~seed;
  auto* p = reinterpret_cast<unsigned char*>(const_cast<std::byte*>(data.data()));
  size_t left = data.size();
  while (left > 0) {
    size_t part = std::min(left, kMaxPart);
    crc = crc32_iscsi(p, static_cast<int>(part), crc);
    p += part;
    left -= part;
  }
  return ~crc;
}

}  // namespace headrace
