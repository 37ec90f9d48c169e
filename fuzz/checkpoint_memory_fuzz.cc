// Any bytes as the index of what a helper has in memory: what is accepted lies in the index or in
// the arena, and is written and read again as the same. Unless the last byte is 0xff the length of
// its text is made right first: that ends with the first line that ends with a brace.
#include <vector>

#include "dataset_bytes_file.h"
#include "headrace/checkpoint/memory_index.h"

using namespace headrace;              // NOLINT
using namespace headrace::checkpoint;  // NOLINT

static constexpr size_t kHeadBytes = 8, kArenaBytes = 4096;

static void MakeLengthRight(std::string* index) {
  const size_t end = index->find("}\n");
  if (index->size() < kHeadBytes || end == std::string::npos || end < kHeadBytes) return;
  StoreLittle(index->data(), uint64_t{end + 2 - kHeadBytes});
}

static std::string ContentOf(MemoryFiles* files, const std::string& key) {
  auto parts = files->PartsOf(key);
  FuzzCheck(parts.ok());
  std::string content(parts->bytes, '\0');
  auto file = files->Open(key, parts->bytes, {});
  FuzzCheck(file.ok());
  const MutableBytes all(reinterpret_cast<std::byte*>(content.data()), content.size());
  FuzzCheck((*file)->Read(0, all, {}).ok());
  return content;
}

// As the keeper of these files would tell of them; all belong to the first checkpoint.
static std::string Written(MemoryContent content, Bytes arena) {
  std::vector<std::shared_ptr<const KeptSave>> saves;
  for (MemoryCheckpoint& checkpoint : content.checkpoints) {
    auto save = std::make_shared<KeptSave>();
    save->entry = checkpoint.entry;
    save->manifest = std::move(checkpoint.manifest);
    save->files = saves.empty() ? std::move(content.files) : std::make_unique<MemoryFiles>(arena);
    saves.push_back(std::move(save));
  }
  auto index = WriteMemoryIndex(saves, arena);
  FuzzCheck(index.ok());
  return *index;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::vector<std::byte> memory(kArenaBytes, std::byte{'a'});
  const Bytes arena = memory;
  std::string index(reinterpret_cast<const char*>(data), size);
  if (size > 0 && data[size - 1] != 0xff) MakeLengthRight(&index);
  auto read = ReadMemoryIndex(AsBytes(index), arena);
  if (!read.ok()) return 0;
  std::vector<std::string> keys = read->files->Keys(), contents, manifests;
  for (const std::string& key : keys) contents.push_back(ContentOf(read->files.get(), key));
  for (const MemoryCheckpoint& one : read->checkpoints) manifests.push_back(one.manifest);
  if (manifests.empty()) return 0;
  const std::string written = Written(*std::move(read), arena);
  auto again = ReadMemoryIndex(AsBytes(written), arena);
  FuzzCheck(again.ok() && again->files->Keys() == keys);
  for (size_t i = 0; i < keys.size(); ++i)
    FuzzCheck(ContentOf(again->files.get(), keys[i]) == contents[i]);
  FuzzCheck(again->checkpoints.size() == manifests.size());
  for (size_t i = 0; i < manifests.size(); ++i)
    FuzzCheck(again->checkpoints[i].manifest == manifests[i]);
  return 0;
}
