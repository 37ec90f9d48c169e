// Files of sections in the hands of a fuzzer: their checksums would stop nearly every input at the
// door. For fuzz targets only.
#pragma once

#include <cstdint>
#include <string>

#include "headrace/base/bytes.h"
#include "headrace/base/crc32c.h"

namespace headrace {

// Makes the checksums right, so that what is behind the door is tested.
inline void MakeChecksumsRight(std::string* file) {
  if (file->size() < 28) return;
  StoreLittle<uint64_t>(&(*file)[16], file->size());
  const uint64_t count = LoadLittle<uint32_t>(&(*file)[12]);
  const uint64_t head = 24 + 32 * count;
  if (head + 4 > file->size()) return;
  for (uint64_t i = 0; i < count; ++i) {
    char* row = &(*file)[24 + 32 * i];
    const auto offset = LoadLittle<uint64_t>(row + 8), length = LoadLittle<uint64_t>(row + 16);
    if (offset > file->size() || length > file->size() - offset) continue;
    StoreLittle<uint32_t>(row + 24, Crc32c(AsBytes(*file).subspan(offset, length)));
  }
  StoreLittle<uint32_t>(&(*file)[head], Crc32c(AsBytes(*file).first(head)));
}

}  // namespace headrace
