#include "headrace/doctor/run_record.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <utility>

#include "headrace/base/redaction.h"
#include "headrace/base/text.h"
#include "headrace/doctor/snapshot_window.h"

namespace headrace::doctor {
namespace {

constexpr uint64_t kLeastLimit = 64 << 10;
constexpr uint64_t kMostFileBytes = uint64_t{1} << 30;
// Faults that are kept as text: a file that is none of ours has one in each line.
constexpr size_t kMostFaults = 20;

// "rank-3.jsonl" and "rank-3.1.jsonl" are files of a record: their rank, and whether it is the
// older one.
struct RecordFile {
  uint32_t rank = 0;
  bool older = false;
  std::string name;
};

std::optional<RecordFile> ParseFileName(const std::string& name) {
  constexpr std::string_view kPrefix = "rank-", kSuffix = ".jsonl", kOlder = ".1";
  std::string_view rest = name;
  if (!rest.starts_with(kPrefix) || !rest.ends_with(kSuffix)) return std::nullopt;
  rest.remove_prefix(kPrefix.size());
  if (rest.size() < kSuffix.size()) return std::nullopt;
  rest.remove_suffix(kSuffix.size());
  RecordFile file{0, rest.ends_with(kOlder), name};
  if (file.older) rest.remove_suffix(kOlder.size());
  auto parsed = std::from_chars(rest.data(), rest.data() + rest.size(), file.rank);
  if (rest.empty() || parsed.ec != std::errc() || parsed.ptr != rest.data() + rest.size())
    return std::nullopt;
  return file;
}

// Reads the lines of one file, one after the other.
class LineReader {
 public:
  LineReader(std::string_view file, RunRecord* record) : file_(file), record_(record) {}

  Status Read(std::string_view text) {
    uint64_t number = 0;
    while (!text.empty()) {
      const size_t end = std::min(text.find('\n'), text.size());
      std::string_view line = Trim(text.substr(0, end));
      text.remove_prefix(std::min(end + 1, text.size()));
      ++number;
      if (line.empty()) continue;
      Status status = ReadLine(line);
      if (status.code() == Code::kUnimplemented)
        return Error(Code::kInvalidArgument, "{}, line {}: {}", EscapeText(file_), number,
                     status.message());
      if (status.ok() || record_->faults.size() >= kMostFaults) continue;
      record_->faults.push_back(
          fmt::format("{}, line {}: {}", EscapeText(file_), number, status.message()));
    }
    return OkStatus();
  }

 private:
  Status ReadLine(std::string_view line) {
    HR_ASSIGN_OR_RETURN(Json json, Json::Parse(line));
    HR_ASSIGN_OR_RETURN(std::string type, json.GetString("type"));
    if (type == "run") return ReadRun(json);
    if (type != "window" && type != "log") return OkStatus();  // of a later version
    if (!rank_)
      return Status(Code::kInvalidArgument, "it comes before the line that says whose run it is");
    return type == "window" ? ReadWindow(json) : ReadLog(json);
  }

  Status ReadRun(const Json& json) {
    HR_ASSIGN_OR_RETURN(uint64_t version, json.GetUint("version"));
    if (version > kRecordVersion)
      return Error(Code::kUnimplemented,
                   "a run record of version {}; this program reads up to {}: use a newer one",
                   version, kRecordVersion);
    HR_ASSIGN_OR_RETURN(RunFacts facts, ReadRunFacts(json));
    auto same = std::find_if(record_->run.ranks.begin(), record_->run.ranks.end(),
                             [&](const RankRun& rank) { return rank.rank == facts.rank; });
    if (same == record_->run.ranks.end()) {
      same = record_->run.ranks.insert(same, RankRun{});
      same->rank = facts.rank;
      same->job = facts.job;
    }
    same->node = facts.node;
    same->machine = facts.machine;
    if (record_->run.name.empty()) record_->run.name = facts.name;
    if (record_->run.dataset.name.empty()) record_->run.dataset = facts.dataset;
    rank_ = static_cast<size_t>(same - record_->run.ranks.begin());
    next_start_ns_.reset();
    return OkStatus();
  }

  Status ReadWindow(const Json& json) {
    const Json* snapshot = json.Find("snapshot");
    if (!snapshot) return Status(Code::kInvalidArgument, "snapshot: it is missing");
    HR_ASSIGN_OR_RETURN(ProcessSnapshot between, ProcessSnapshot::FromJson(*snapshot));
    if (between.window_ns == 0) return OkStatus();
    // Beyond it lie no times of a run, but sums that overflow.
    constexpr int64_t kMostNs = int64_t{1} << 61;
    if (between.window_ns > uint64_t{1} << 61 || between.begin_unix_ns < 0 ||
        between.begin_unix_ns > kMostNs || between.end_unix_ns < 0 ||
        next_start_ns_.value_or(0) > kMostNs)
      return Status(Code::kInvalidArgument, "its times are not those of a run");
    // The first window since the process began is placed by the system's clock, the next ones by
    // their lengths.
    if (!next_start_ns_) next_start_ns_ = between.begin_unix_ns;
    RankRun& rank = record_->run.ranks[*rank_];
    rank.windows.push_back(WindowOf(between, static_cast<double>(*next_start_ns_) * 1e-9));
    AddJobFacts(between, &rank.job);
    const int64_t begin = *next_start_ns_;
    next_start_ns_ = begin + static_cast<int64_t>(between.window_ns);
    if (record_->begin_unix_ns == 0 || begin < record_->begin_unix_ns)
      record_->begin_unix_ns = begin;
    record_->end_unix_ns = std::max(record_->end_unix_ns, between.end_unix_ns);
    for (const SettingChange& change : between.changes)
      record_->log.push_back({rank.rank, change.unix_ns, "change", ChangeText(change)});
    return OkStatus();
  }

  Status ReadLog(const Json& json) {
    LogLine line;
    line.rank = record_->run.ranks[*rank_].rank;
    HR_ASSIGN_OR_RETURN(line.level, json.GetString("level"));
    HR_ASSIGN_OR_RETURN(line.text, json.GetString("text"));
    if (const Json* at = json.Find("unix_ns")) line.unix_ns = at->AsInt();
    record_->log.push_back(std::move(line));
    return OkStatus();
  }

  const std::string_view file_;
  RunRecord* const record_;
  std::optional<size_t> rank_;  // place in run.ranks
  std::optional<int64_t> next_start_ns_;
};

// Sets times against the beginning of the run, and windows in order.
void Align(RunRecord* record) {
  for (RankRun& rank : record->run.ranks) {
    for (Window& window : rank.windows)
      window.start_s -= static_cast<double>(record->begin_unix_ns) * 1e-9;
    std::stable_sort(rank.windows.begin(), rank.windows.end(),
                     [](const Window& a, const Window& b) { return a.start_s < b.start_s; });
  }
  std::sort(record->run.ranks.begin(), record->run.ranks.end(),
            [](const RankRun& a, const RankRun& b) { return a.rank < b.rank; });
  std::stable_sort(record->log.begin(), record->log.end(),
                   [](const LogLine& a, const LogLine& b) { return a.unix_ns < b.unix_ns; });
}

}  // namespace

RunRecorder::RunRecorder(FileSystem* fs, RunFacts facts, const Options& options)
    : fs_(fs), options_(options), facts_(std::move(facts)) {}

Result<std::unique_ptr<RunRecorder>> RunRecorder::Open(FileSystem* fs, RunFacts facts,
                                                       const Options& options) {
  if (options.limit_bytes < kLeastLimit)
    return Error(Code::kInvalidArgument, "a run record needs at least {} for each rank, not {}",
                 FormatSize(kLeastLimit), FormatSize(options.limit_bytes));
  HR_RETURN_IF_ERROR(fs->MakeDirectories(options.directory));
  std::unique_ptr<RunRecorder> recorder(new RunRecorder(fs, std::move(facts), options));
  const std::string path = recorder->PathOf("");
  auto info = fs->Stat(path);
  MutexLock lock(&recorder->mu_);
  HR_ASSIGN_OR_RETURN(recorder->file_, fs->OpenForAppend(path));
  recorder->file_bytes_ = info.ok() ? info->size_bytes : 0;
  HR_RETURN_IF_ERROR(recorder->Write(RunFactsJson(recorder->facts_)));
  return recorder;
}

std::string RunRecorder::PathOf(std::string_view suffix) const {
  return JoinPath(options_.directory, fmt::format("rank-{}{}.jsonl", facts_.rank, suffix));
}

Status RunRecorder::Write(const Json& line) {
  // The line end goes first: what a process killed in the middle of a line left is then a line of
  // its own.
  const std::string text = "\n" + line.Dump();
  if (!file_) {
    HR_ASSIGN_OR_RETURN(file_, fs_->OpenForAppend(PathOf("")));
  }
  Status status = file_->Append(AsBytes(text));
  if (!status.ok()) {
    file_.reset();  // opened anew for the next line
    return status;
  }
  file_bytes_ += text.size();
  return OkStatus();
}

Status RunRecorder::Rotate() {
  if (file_bytes_ < options_.limit_bytes) return OkStatus();
  file_.reset();
  HR_RETURN_IF_ERROR(fs_->Rename(PathOf(""), PathOf(".1")));
  file_bytes_ = 0;
  return Write(RunFactsJson(facts_));
}

Status RunRecorder::Add(const ProcessSnapshot& snapshot) {
  MutexLock lock(&mu_);
  const bool first = !begun_;
  begun_ = true;
  if (first && !options_.from_beginning) {
    before_ = snapshot;
    return OkStatus();
  }
  const ProcessSnapshot window = first ? snapshot : snapshot.Since(before_);
  const Json line = Json::MakeObject().Set("type", "window").Set("snapshot", window.ToJson());
  before_ = snapshot;
  HR_RETURN_IF_ERROR(Rotate());
  return Write(line);
}

Status RunRecorder::AddLog(std::string_view level, std::string_view text, int64_t unix_ns) {
  constexpr size_t kMostText = 4096;
  const std::string shown = RedactSecrets(text.substr(0, 2 * kMostText));
  MutexLock lock(&mu_);
  HR_RETURN_IF_ERROR(Rotate());
  return Write(Json::MakeObject()
                   .Set("type", "log")
                   .Set("unix_ns", unix_ns)
                   .Set("level", level)
                   .Set("text", EscapeText(std::string_view(shown).substr(0, kMostText))));
}

Status ReadRecordLines(std::string_view text, std::string_view file, RunRecord* record) {
  return LineReader(file, record).Read(text);
}

bool IsRunRecord(FileSystem* fs, const std::string& path) {
  auto info = fs->Stat(path);
  if (!info.ok()) return false;
  if (info->kind != FileKind::kDirectory)
    return ParseFileName(std::string(BaseName(path))).has_value();
  auto entries = fs->List(path);
  return entries.ok() && std::any_of(entries->begin(), entries->end(), [](const auto& entry) {
           return ParseFileName(entry.name).has_value();
         });
}

Result<RunRecord> ReadRunRecord(FileSystem* fs, const std::string& path) {
  HR_ASSIGN_OR_RETURN(FileInfo info, fs->Stat(path));
  std::vector<RecordFile> files;
  std::string folder = path;
  if (info.kind == FileKind::kDirectory) {
    HR_ASSIGN_OR_RETURN(std::vector<DirectoryEntry> entries, fs->List(path));
    for (const DirectoryEntry& entry : entries)
      if (auto file = ParseFileName(entry.name)) files.push_back(*std::move(file));
    if (files.empty())
      return Error(Code::kNotFound, "{} holds no run record: expected files such as rank-0.jsonl",
                   EscapeText(path));
    std::stable_sort(files.begin(), files.end(), [](const RecordFile& a, const RecordFile& b) {
      return a.rank != b.rank ? a.rank < b.rank : a.older > b.older;
    });
  } else {
    folder = std::string(DirectoryName(path));
    files.push_back({0, false, std::string(BaseName(path))});
  }
  RunRecord record;
  for (const RecordFile& file : files) {
    HR_ASSIGN_OR_RETURN(std::string text,
                        fs->ReadWhole(JoinPath(folder, file.name), kMostFileBytes));
    HR_RETURN_IF_ERROR(ReadRecordLines(text, file.name, &record));
  }
  Align(&record);
  if (record.run.ranks.empty())
    return Error(Code::kInvalidArgument, "{} is no run record{}", EscapeText(path),
                 record.faults.empty() ? ": it is empty" : ": " + record.faults.front());
  return record;
}

}  // namespace headrace::doctor
