#include "headrace/checkpoint/memory_index.h"

#include <functional>
#include <set>
#include <utility>

#include "headrace/base/json.h"

namespace headrace::checkpoint {
namespace {

constexpr size_t kHeadBytes = 8;  // length of the JSON text, which follows; then what it names

bool LiesIn(Bytes part, Bytes all) {
  const std::less_equal<const std::byte*> not_behind;
  return !all.empty() && not_behind(all.data(), part.data()) &&
         not_behind(part.data() + part.size(), all.data() + all.size());
}

Status Damaged(std::string_view what) {
  return Error(Code::kDataLoss, "the index of a helper's memory is damaged: {}", what);
}

// Parts are three numbers each: whether it lies in the arena (1) or behind the text (0), offset,
// and bytes.
Json PartsJson(const MemoryFiles::Parts& file, Bytes arena, std::string* tail) {
  Json parts = Json::MakeArray();
  for (Bytes part : file.parts) {
    const bool shared = LiesIn(part, arena);
    const uint64_t offset =
        shared ? static_cast<uint64_t>(part.data() - arena.data()) : tail->size();
    if (!shared) tail->append(AsText(part));
    parts.Append(shared ? 1 : 0).Append(offset).Append(uint64_t{part.size()});
  }
  return parts;
}

Result<Bytes> PartOf(const Json& where, const Json& offset, const Json& bytes, Bytes tail,
                     Bytes arena) {
  const Bytes all = where.AsUint() == 1 ? arena : tail;
  const uint64_t at = offset.AsUint(UINT64_MAX), size = bytes.AsUint(UINT64_MAX);
  if (at > all.size() || size > all.size() - at) return Damaged("a part lies outside");
  return all.subspan(at, size);
}

Result<MemoryCheckpoint> CheckpointOf(const Json& json, Bytes tail) {
  MemoryCheckpoint found;
  CatalogEntry& entry = found.entry;
  HR_ASSIGN_OR_RETURN(entry.id.step, json.GetUint("step"));
  HR_ASSIGN_OR_RETURN(entry.id.epoch, json.GetUint("epoch"));
  HR_ASSIGN_OR_RETURN(entry.id.attempt, json.GetUint("attempt"));
  HR_ASSIGN_OR_RETURN(entry.kind, json.GetString("kind"));
  HR_ASSIGN_OR_RETURN(const uint64_t published, json.GetUint("published_ns"));
  entry.published_ns = static_cast<int64_t>(published);
  HR_ASSIGN_OR_RETURN(entry.data_bytes, json.GetUint("data_bytes"));
  HR_ASSIGN_OR_RETURN(entry.new_bytes, json.GetUint("new_bytes"));
  entry.level = Level::kMemory;
  const Json* at = json.Find("manifest");
  if (at == nullptr || at->items().size() != 3) return Damaged("no manifest");
  HR_ASSIGN_OR_RETURN(Bytes manifest,
                      PartOf(at->items()[0], at->items()[1], at->items()[2], tail, {}));
  found.manifest = AsText(manifest);
  entry.manifest_bytes = manifest.size();
  entry.manifest_hash = HashOf(manifest);
  entry.manifest = ManifestKey(entry.id, entry.manifest_hash);
  return found;
}

}  // namespace

Result<std::string> WriteMemoryIndex(std::span<const std::shared_ptr<const KeptSave>> saves,
                                     Bytes arena) {
  Json checkpoints = Json::MakeArray(), files = Json::MakeArray();
  std::string tail;
  std::set<std::string> written;
  for (const auto& save : saves) {
    const CatalogEntry& entry = save->entry;
    Json manifest = Json::MakeArray();
    manifest.Append(0).Append(uint64_t{tail.size()}).Append(uint64_t{save->manifest.size()});
    tail += save->manifest;
    checkpoints.Append(Json::MakeObject()
                           .Set("step", entry.id.step)
                           .Set("epoch", entry.id.epoch)
                           .Set("attempt", entry.id.attempt)
                           .Set("kind", entry.kind)
                           .Set("published_ns", static_cast<uint64_t>(entry.published_ns))
                           .Set("data_bytes", entry.data_bytes)
                           .Set("new_bytes", entry.new_bytes)
                           .Set("manifest", std::move(manifest)));
    for (const std::string& key : save->files->Keys()) {
      if (!written.insert(key).second) continue;
      HR_ASSIGN_OR_RETURN(MemoryFiles::Parts file, save->files->PartsOf(key));
      files.Append(Json::MakeObject().Set("key", key).Set("parts", PartsJson(file, arena, &tail)));
    }
  }
  const std::string text = Json::MakeObject()
                               .Set("checkpoints", std::move(checkpoints))
                               .Set("files", std::move(files))
                               .Dump();
  std::string index(kHeadBytes, '\0');
  StoreLittle(index.data(), uint64_t{text.size()});
  return index + text + tail;
}

Result<MemoryContent> ReadMemoryIndex(Bytes index, Bytes arena) {
  if (index.size() < kHeadBytes) return Damaged("it is too short");
  const auto text_bytes = LoadLittle<uint64_t>(index.data());
  if (text_bytes > index.size() - kHeadBytes) return Damaged("its text is cut off");
  auto json = Json::Parse(AsText(index.subspan(kHeadBytes, text_bytes)));
  if (!json.ok()) return Damaged(json.status().message());
  const Bytes tail = index.subspan(kHeadBytes + text_bytes);
  const Json* checkpoints = json->Find("checkpoints");
  const Json* files = json->Find("files");
  if (checkpoints == nullptr || files == nullptr) return Damaged("parts of it are missing");
  MemoryContent content;
  content.files = std::make_unique<MemoryFiles>(arena);
  for (const Json& one : checkpoints->items()) {
    HR_ASSIGN_OR_RETURN(MemoryCheckpoint checkpoint, CheckpointOf(one, tail));
    content.checkpoints.push_back(std::move(checkpoint));
  }
  for (const Json& one : files->items()) {
    HR_ASSIGN_OR_RETURN(std::string key, one.GetString("key"));
    const Json* numbers = one.Find("parts");
    if (numbers == nullptr || numbers->items().size() % 3 != 0) return Damaged("parts are missing");
    std::vector<Bytes> parts;
    const Json::Array& n = numbers->items();
    for (size_t i = 0; i < n.size(); i += 3) {
      HR_ASSIGN_OR_RETURN(Bytes part, PartOf(n[i], n[i + 1], n[i + 2], tail, arena));
      parts.push_back(part);
    }
    HR_RETURN_IF_ERROR(content.files->Write(key, parts, {}).status());
  }
  return content;
}

}  // namespace headrace::checkpoint
