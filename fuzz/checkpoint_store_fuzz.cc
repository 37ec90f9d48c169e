// Any bytes as the small files of a checkpoint store: head, catalog, checksums, and paths of
// tensors. What is accepted is written and read again as the same.
#include "dataset_bytes_file.h"
#include "headrace/base/crc32c.h"
#include "headrace/checkpoint/catalog.h"
#include "headrace/checkpoint/chunk_sums.h"
#include "headrace/checkpoint/tensor_path.h"

using namespace headrace;              // NOLINT
using namespace headrace::checkpoint;  // NOLINT

static void CheckSums(std::string file) {
  if (file.size() < 44) return;
  // Its own checksum would stop nearly every input.
  const size_t end = file.size() - 4;
  StoreLittle<uint32_t>(&file[end], Crc32c(AsBytes(file).first(end)));
  const Hash128 name{LoadLittle<uint64_t>(&file[32]), LoadLittle<uint64_t>(&file[24])};
  auto sums = ChunkSums::Decode(AsBytes(file), name, "input");
  if (!sums.ok()) return;
  FuzzCheck(sums->Encode() == file);
  FuzzCheck(file.size() == ChunkSumsBytes(sums->file_bytes()));
  uint64_t bytes = 0;
  for (size_t i = 0; i < sums->num_chunks(); ++i) bytes += sums->ChunkBytes(i);
  FuzzCheck(bytes == sums->file_bytes());
  (void)sums->WholeFile();
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  if (auto catalog = Catalog::FromJson(text, "input"); catalog.ok()) {
    auto again = Catalog::FromJson(catalog->ToJson(), "written");
    FuzzCheck(again.ok() && again->entries == catalog->entries);
    FuzzCheck(catalog->entries.empty() == (catalog->Latest() == nullptr));
  }
  if (auto head = StoreHead::FromJson(text, "input"); head.ok()) {
    auto again = StoreHead::FromJson(head->ToJson(), "written");
    FuzzCheck(again.ok() && again->ToJson() == head->ToJson());
  }
  CheckSums(text);
  if (auto keys = SplitPath(text); keys.ok()) {
    std::string path;
    for (const std::string& key : *keys) AppendKey(key, &path);
    FuzzCheck(path == text);
    FuzzCheck(EntryName(text).ok());
  }
  return 0;
}
