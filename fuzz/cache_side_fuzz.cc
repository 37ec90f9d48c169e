// Any bytes as an entry of a side file. Its checksum and owner are made right first (unless the
// last byte is 0xff): what is behind the door is tested.
#include <cstdlib>
#include <string>

#include "headrace/base/crc32c.h"
#include "headrace/cache/side_file.h"

using namespace headrace;         // NOLINT
using namespace headrace::cache;  // NOLINT

static void Check(bool holds) {
  if (!holds) std::abort();
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr uint64_t kOwner = 0x8070605040302010, kSlot = 77;
  std::string bytes(reinterpret_cast<const char*>(data), size);
  if (size >= 24 && data[size - 1] != 0xff) {
    StoreLittle(&bytes[8], kOwner);
    StoreLittle(&bytes[16], kSlot);
    const uint64_t end = uint64_t{24} + LoadLittle<uint32_t>(&bytes[4]);
    if (end <= size) StoreLittle(&bytes[0], Crc32c(AsBytes(bytes).subspan(4, end - 4)));
  }
  auto record = ParseSideEntry(AsBytes(bytes), kOwner, kSlot);
  if (!record) return 0;
  Check(record->size() <= kMaxSideRecordBytes && SideEntryBytes(record->size()) == size);
  Check(!ParseSideEntry(AsBytes(bytes), kOwner, kSlot + 1));
  Check(!ParseSideEntry(AsBytes(bytes), kOwner + 1, kSlot));
  std::string again(size, 'x');
  EncodeSideEntry(kOwner, kSlot, *record, reinterpret_cast<std::byte*>(again.data()));
  auto same = ParseSideEntry(AsBytes(again), kOwner, kSlot);
  Check(same && AsText(*same) == AsText(*record));
  return 0;
}
