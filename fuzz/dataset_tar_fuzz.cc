// Any bytes as a tar: the walk ends, members lie inside the file, and an index built of them is one
// that the reader accepts. Header checksums would stop most inputs at the door, so those of blocks
// with the USTAR magic are made right first (unless the last byte is 0xff).
#include "dataset_bytes_file.h"
#include "headrace/dataset/index_build.h"

using namespace headrace;  // NOLINT

static void MakeChecksumsRight(std::string* bytes) {
  for (size_t at = 0; at + 512 <= bytes->size(); at += 512) {
    char* block = &(*bytes)[at];
    if (std::string_view(block + 257, 5) != "ustar") continue;
    std::fill_n(block + 148, 8, ' ');
    unsigned sum = 0;
    for (size_t i = 0; i < 512; ++i) sum += static_cast<unsigned char>(block[i]);
    std::string digits = fmt::format("{:06o}", sum);
    std::copy(digits.begin(), digits.end(), block + 148);
    block[154] = 0;
  }
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string bytes(reinterpret_cast<const char*>(data), size);
  if (size > 0 && data[size - 1] != 0xff) MakeChecksumsRight(&bytes);
  BytesFile file(AsBytes(bytes));
  uint64_t last = 0;
  auto scan = dataset::ScanTar(file, Context(), [&](const dataset::TarMember& member) {
    FuzzCheck(member.header_offset >= last && member.data_offset >= member.header_offset + 512);
    FuzzCheck(member.data_offset <= size && member.size_bytes <= size - member.data_offset);
    FuzzCheck(member.path.size() <= dataset::kMaxTarPathBytes);
    last = member.data_offset + member.size_bytes;
    return OkStatus();
  });
  if (!scan.ok()) return 0;
  for (const auto& damage : scan->damage) FuzzCheck(damage.resumed_at <= size);
  dataset::BuildOptions options;
  options.allow_damage = true;
  options.checksums = true;
  options.repeated_keys = dataset::RepeatedKeys::kSeparate;
  auto built = dataset::BuildTarIndex(file, options, Context());
  if (!built.ok()) return 0;
  auto reader = dataset::IndexReader::FromBytes(built->bytes, "built");
  FuzzCheck(reader.ok() && (*reader)->VerifyAll().ok());
  FuzzCheck((*reader)->fully_checksummed());
  return 0;
}
