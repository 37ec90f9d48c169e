// Any bytes as a block file, as a name in the cache's folders, and as a descriptor. The header's
// checksum is made right first (unless the last byte is 0xff): what is behind the door is tested.
#include <algorithm>
#include <cstdlib>

#include "headrace/base/crc32c.h"
#include "headrace/cache/block_format.h"

using namespace headrace;         // NOLINT
using namespace headrace::cache;  // NOLINT

static void Check(bool holds) {
  if (!holds) std::abort();
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string bytes(reinterpret_cast<const char*>(data), size);
  if (size >= kHeaderAlignment && data[size - 1] != 0xff) {
    uint32_t length = std::clamp<uint32_t>(LoadLittle<uint32_t>(&bytes[40]), 1, kMaxBlockBytes);
    size_t at = 64 + size_t{4} * ((length + kPageBytes - 1) / kPageBytes);
    if (at + 4 <= size) StoreLittle(&bytes[at], Crc32c(AsBytes(bytes).first(at)));
  }
  auto header = ParseBlockHeader(AsBytes(bytes));
  if (header.ok()) {
    Check(BlockHeaderBytes(header->id.length) <= bytes.size());
    Check(header->page_checksums.size() == (header->id.length + kPageBytes - 1) / kPageBytes);
    auto again = ParseBlockFileName(BlockFileName(header->id, BlockFileKind::kTemporary));
    Check(again.ok() && again->id == header->id);
  }
  if (auto name = ParseBlockFileName(bytes); name.ok())
    Check(BlockFileName(name->id, name->kind) == bytes);
  if (auto descriptor = ParseDescriptor(bytes); descriptor.ok()) {
    auto again = ParseDescriptor(EncodeDescriptor(*descriptor));
    Check(again.ok() && again->version.key == descriptor->version.key);
  }
  return 0;
}
