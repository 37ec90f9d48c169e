#include <algorithm>

#include "headrace/base/json.h"
#include "headrace/base/text.h"
#include "headrace/checkpoint/import.h"

namespace headrace::checkpoint {
namespace {

constexpr uint64_t kMaxIndexBytes = uint64_t{1} << 28;
constexpr std::string_view kIndexEnd = ".safetensors.index.json";
constexpr std::string_view kFileEnd = ".safetensors";

// The files and names of an index, which lies beside its files.
Result<ImportSource> ReadIndex(FileSystem* fs, const std::string& path) {
  HR_ASSIGN_OR_RETURN(const std::string text, fs->ReadWhole(path, kMaxIndexBytes));
  auto json = Json::Parse(text);
  const Json* map = json.ok() ? json->Find("weight_map") : nullptr;
  if (map == nullptr || !map->is_object() || map->members().empty())
    return Error(Code::kInvalidArgument,
                 "{} is no index of safetensors files: it has no object \"weight_map\"",
                 EscapeText(path));
  ImportSource source;
  const std::string folder(DirectoryName(path));
  std::vector<std::string> known;  // as the index names them
  for (const auto& [name, file] : map->members()) {
    const std::string base(file.AsString());
    if (!base.ends_with(kFileEnd) || base.find('/') != std::string::npos)
      return Error(
          Code::kInvalidArgument,
          "{} says that {} lies in '{}': expected the name of a .safetensors file beside it",
          EscapeText(path), EscapeText(name), EscapeText(base));
    auto at = std::find(known.begin(), known.end(), base);
    if (at == known.end()) {
      source.files.push_back(JoinPath(folder, base));
      at = known.insert(known.end(), base);
    }
    source.names.emplace_back(name, static_cast<size_t>(at - known.begin()));
  }
  return source;
}

Result<ImportSource> ReadFolder(FileSystem* fs, const std::string& path) {
  HR_ASSIGN_OR_RETURN(const std::vector<DirectoryEntry> entries, fs->List(path));
  std::vector<std::string> indexes;
  ImportSource source;
  for (const DirectoryEntry& entry : entries) {
    if (entry.name.ends_with(kIndexEnd)) indexes.push_back(entry.name);
    if (entry.name.ends_with(kFileEnd)) source.files.push_back(JoinPath(path, entry.name));
  }
  if (indexes.size() == 1) return ReadIndex(fs, JoinPath(path, indexes.front()));
  if (indexes.size() > 1)
    return Error(Code::kInvalidArgument, "{} holds {} indexes ({}, ...): name the one to import",
                 EscapeText(path), indexes.size(), EscapeText(indexes.front()));
  if (source.files.empty())
    return Error(Code::kInvalidArgument, "{} holds no .safetensors file", EscapeText(path));
  std::sort(source.files.begin(), source.files.end());
  return source;
}

}  // namespace

Result<ImportSource> FindImportSource(FileSystem* fs, const std::string& path) {
  if (path.ends_with(".json")) return ReadIndex(fs, path);
  if (path.ends_with(kFileEnd)) return ImportSource{{path}, {}};
  HR_ASSIGN_OR_RETURN(const FileInfo info, fs->Stat(path));
  if (info.kind == FileKind::kDirectory) return ReadFolder(fs, path);
  return Error(
      Code::kInvalidArgument,
      "{} is none of what can be imported: a .safetensors file, a .safetensors.index.json, "
      "or a folder with them",
      EscapeText(path));
}

}  // namespace headrace::checkpoint
