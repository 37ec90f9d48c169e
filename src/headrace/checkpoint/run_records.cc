#include "headrace/checkpoint/run_records.h"

#include <charconv>
#include <optional>
#include <string_view>
#include <vector>

namespace headrace::checkpoint {
namespace {

constexpr std::string_view kRecords = "records";
constexpr std::string_view kPublished = "published";

// Of a folder that RunRecordFolder() has named; nothing for any other.
std::optional<uint64_t> EpochOfRecord(std::string_view name) {
  uint64_t epoch = 0;
  const char* begin = name.data();
  const char* end = begin + name.size();
  const auto parsed = std::from_chars(begin, end, epoch);
  if (parsed.ec != std::errc() || parsed.ptr != end) return std::nullopt;
  if (BaseName(RunRecordFolder("", epoch)) != name) return std::nullopt;
  return epoch;
}

// Whether a folder holds what a recorder makes and nothing else; what somebody else put there
// stays.
Result<bool> IsRecord(FileSystem* fs, const std::string& folder) {
  HR_ASSIGN_OR_RETURN(auto entries, fs->List(folder));
  for (const DirectoryEntry& entry : entries)
    if (entry.name != kPublished &&
        !(entry.name.starts_with("rank-") && entry.name.ends_with(".jsonl")))
      return false;
  return true;
}

Result<std::set<uint64_t>> RecordedEpochs(FileSystem* fs, const std::string& folder) {
  std::set<uint64_t> epochs;
  auto entries = fs->List(folder);
  if (entries.status().code() == Code::kNotFound) return epochs;
  if (!entries.ok()) return entries.status();
  for (const DirectoryEntry& entry : *entries)
    if (auto epoch = EpochOfRecord(entry.name)) epochs.insert(*epoch);
  return epochs;
}

}  // namespace

std::string RunRecordFolder(const std::string& home, uint64_t epoch) {
  return JoinPath(JoinPath(home, kRecords), fmt::format("{:06}", epoch));
}

Result<uint64_t> PruneRunRecords(FileSystem* fs, const std::string& home,
                                 const std::set<uint64_t>& epochs, uint64_t running) {
  HR_ASSIGN_OR_RETURN(std::set<uint64_t> recorded, RecordedEpochs(fs, JoinPath(home, kRecords)));
  uint64_t removed = 0;
  bool newest_without = true;
  for (auto epoch = recorded.rbegin(); epoch != recorded.rend(); ++epoch) {
    const std::string folder = RunRecordFolder(home, *epoch);
    const std::string mark = JoinPath(folder, kPublished);
    const bool published = fs->Exists(mark);
    if (epochs.contains(*epoch)) {
      if (!published) HR_RETURN_IF_ERROR(fs->WriteAtomically(mark, {}));
      continue;
    }
    if (*epoch >= running) continue;
    if (!published && newest_without) {
      newest_without = false;
      continue;
    }
    HR_ASSIGN_OR_RETURN(const bool is_record, IsRecord(fs, folder));
    if (!is_record) continue;
    HR_RETURN_IF_ERROR(fs->RemoveTree(folder));
    ++removed;
  }
  return removed;
}

}  // namespace headrace::checkpoint
