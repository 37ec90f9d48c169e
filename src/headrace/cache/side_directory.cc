// Side files in a cache's directory: what they cost, and how they go.
#include <algorithm>
#include <array>

#include "headrace/cache/cache_directory.h"
#include "headrace/cache/side_file.h"

namespace headrace::cache {
namespace {

constexpr uint64_t RoundUp(uint64_t n, uint64_t unit) { return (n + unit - 1) / unit * unit; }
constexpr uint64_t kHeadBytes = SideTable::kFirstSlot * sizeof(uint64_t);

uint64_t SizeOf(FileSystem* fs, const std::string& path) {
  auto info = fs->Stat(path);
  return info.ok() ? info->size_bytes : 0;
}

SideFileEntry Measure(FileSystem* fs, const CachePaths& paths, const ObjectId& id) {
  const std::string table = paths.Side(id, "table");
  const uint64_t table_bytes = SizeOf(fs, table);
  uint64_t counted = RoundUp(SizeOf(fs, paths.Side(id, "records")), SideTable::kStepBytes);
  SideFileEntry entry{id, SideTableCost(table_bytes), false};
  std::array<std::byte, kHeadBytes> head;
  auto read = fs->ReadInto(table, head);
  if (read.ok() && *read == kHeadBytes && table_bytes > kHeadBytes && table_bytes % 8 == 0) {
    auto word = [&](size_t i) { return LoadLittle<uint64_t>(head.data() + 8 * i); };
    const uint64_t num_slots = (table_bytes - kHeadBytes) / 8;
    entry.sound = word(SideTable::kOwner) == SideTable::OwnerOf(id, num_slots);
    // What was counted and is not written yet; after a power cut the word may hold anything.
    constexpr uint64_t kMostAhead = uint64_t{64} << 20;
    const uint64_t said = word(SideTable::kCounted);
    if (entry.sound && said > counted && said <= counted + kMostAhead) counted = said;
  }
  entry.cost += counted;
  return entry;
}

}  // namespace

uint64_t SideTableCost(uint64_t bytes) { return RoundUp(bytes, 4096); }

Result<std::vector<SideFileEntry>> ListSideFiles(FileSystem* fs, const CachePaths& paths) {
  std::vector<SideFileEntry> files;
  auto entries = fs->List(paths.SideFolder());
  if (!entries.ok() && entries.status().code() == Code::kNotFound) return files;
  HR_RETURN_IF_ERROR(entries.status());
  std::vector<ObjectId> ids;
  for (const DirectoryEntry& entry : *entries) {
    std::string_view name = entry.name;
    for (std::string_view suffix : {".table", ".records"}) {
      if (!name.ends_with(suffix)) continue;
      auto id = ObjectId::FromHex(name.substr(0, name.size() - suffix.size()));
      if (id.ok()) ids.push_back(*id);
    }
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  for (const ObjectId& id : ids) files.push_back(Measure(fs, paths, id));
  return files;
}

// 1. lock, 2. tell the users, 3. remove. Killed after 2, the next one who opens the file, or looks
// for room, goes on.
bool RemoveSideFile(FileSystem* fs, const CachePaths& paths, const ObjectId& id) {
  const std::string lock_path = paths.Side(id, "lock"), table = paths.Side(id, "table");
  auto lock = fs->Lock(lock_path);
  if (!lock.ok()) return false;
  auto info = fs->Stat(table);
  if (info.ok() && info->size_bytes >= kHeadBytes && info->size_bytes % 8 == 0) {
    auto words = fs->OpenSharedWords(table, info->size_bytes / 8);
    if (words.ok()) (*words)->Store(SideTable::kOwner, SideTable::kGivenUp);
  }
  auto gone = [&](const std::string& path) {
    Status status = fs->Remove(path);
    return status.ok() || status.code() == Code::kNotFound;
  };
  bool removed = gone(table);
  removed = gone(paths.Side(id, "records")) && removed;
  (void)fs->Remove(lock_path);  // while it is held, so that it is the own file that goes
  return removed;
}

}  // namespace headrace::cache
