// Any bytes as an index. The checksums would stop nearly every input at the door, so they are made
// right first (unless the last byte is 0xff): what is behind the door is tested.
#include "dataset_bytes_file.h"
#include "headrace/base/crc32c.h"
#include "headrace/dataset/index.h"
#include "headrace/dataset/index_format.h"

using namespace headrace;  // NOLINT
namespace format = headrace::dataset::index_format;

static void MakeChecksumsRight(std::string* bytes) {
  if (bytes->size() < format::kHeaderBytes) return;
  StoreLittle<uint64_t>(&(*bytes)[format::kAtFileBytes], bytes->size());
  // Largest body whose table of chunk checksums still fits behind it.
  uint64_t rest = bytes->size() - format::kHeaderBytes;
  uint64_t chunks = (rest + format::kChunkBytes + 3) / (format::kChunkBytes + 4);
  if (chunks * 4 > rest) return;
  uint64_t table = bytes->size() - chunks * 4;
  StoreLittle<uint64_t>(&(*bytes)[format::kAtChunkTable], table);
  for (uint64_t i = 0; i < chunks; ++i) {
    uint64_t begin = format::kHeaderBytes + i * format::kChunkBytes;
    if (begin > table) return;
    uint64_t length = std::min<uint64_t>(format::kChunkBytes, table - begin);
    StoreLittle(&(*bytes)[table + 4 * i], Crc32c(AsBytes(*bytes).subspan(begin, length)));
  }
  StoreLittle(&(*bytes)[format::kAtChunkTableCrc], Crc32c(AsBytes(*bytes).subspan(table)));
  StoreLittle(&(*bytes)[format::kAtHeaderCrc], Crc32c(AsBytes(*bytes).first(format::kAtHeaderCrc)));
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string bytes(reinterpret_cast<const char*>(data), size);
  if (size > 0 && data[size - 1] != 0xff) MakeChecksumsRight(&bytes);
  auto reader = dataset::IndexReader::FromBytes(std::move(bytes), "input");
  if (!reader.ok()) return 0;
  dataset::IndexSample sample;
  uint64_t total = 0;
  uint64_t count = std::min<uint64_t>((*reader)->num_samples(), 1000);
  for (uint64_t i = 0; i < count; ++i) {
    uint64_t ordinal = 0;
    if (!(*reader)->Get(i, &sample, &ordinal).ok()) continue;
    FuzzCheck(ordinal + sample.fields.size() <= (*reader)->num_fields());
    for (const dataset::IndexField& field : sample.fields) {
      FuzzCheck(field.name < (*reader)->field_names().size());
      for (char c : field.value) total += static_cast<unsigned char>(c);
      auto seek_points = (*reader)->SeekPoints(ordinal++);
      if (!seek_points.ok()) continue;
      for (std::byte b : *seek_points) total += static_cast<uint64_t>(b);
    }
    auto found = (*reader)->Find(sample.key);
    FuzzCheck(!found.ok() || *found < (*reader)->num_samples());
  }
  (void)(*reader)->VerifyAll();
  return total == UINT64_MAX ? 1 : 0;
}
