// IndexDataset: stores the indexes of a source and one manifest. Order of writing: each index under
// a temporary name; when all of them are there and durable, each gets its name; then the manifest
// is replaced. Who opens the dataset before the renames sees it as it was; who opens it between
// them and the manifest is told by the checksums in the old manifest that an index is not its own.
// A lock in the output folder keeps a second run away; under it goes what a killed run has left.
#include "headrace/dataset/index_build.h"

#include <algorithm>
#include <atomic>
#include <set>

#include "headrace/base/keyed_random.h"
#include "headrace/base/stage_timer.h"
#include "headrace/base/text.h"
#include "headrace/dataset/mds_content.h"
#include "headrace/dataset/tfrecord.h"
#include "headrace/env/process.h"

namespace headrace::dataset {
namespace {

constexpr std::string_view kCreatedBy = "headrace " HEADRACE_VERSION;

std::vector<std::string_view> PartsOf(std::string_view path) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0; begin < path.size();) {
    size_t end = std::min(path.find('/', begin), path.size());
    std::string_view part = path.substr(begin, end - begin);
    if (!part.empty() && part != ".") parts.push_back(part);
    begin = end + 1;
  }
  return parts;
}

// The way from the folder `from` to `to`, by their texts: "out/x", "data" -> "../../data". Absolute
// when `to` is. kInvalidArgument when the texts do not tell.
Result<std::string> PathFrom(const std::string& from, const std::string& to) {
  if (IsUrl(from) && UrlRoot(from) != UrlRoot(to))
    return Error(Code::kInvalidArgument,
                 "indexes in {} cannot name data in {}: put them beside the data, or in a folder "
                 "of this machine",
                 from, to);
  if (IsAbsolutePath(to)) return to;
  std::vector<std::string_view> here = PartsOf(from), there = PartsOf(to);
  if (IsAbsolutePath(from) || std::count(here.begin(), here.end(), "..") > 0)
    return Error(
        Code::kInvalidArgument,
        "the indexes go to {}, from where {} cannot be named: give the data by an absolute "
        "path",
        from, to);
  size_t common = 0;
  while (common < here.size() && common < there.size() && here[common] == there[common]) ++common;
  std::string path;
  for (size_t i = common; i < here.size(); ++i) path += path.empty() ? ".." : "/..";
  for (size_t i = common; i < there.size(); ++i)
    path.append(path.empty() ? "" : "/").append(there[i]);
  return path;
}

constexpr std::string_view kLockName = ".headrace-index-lock";

// Tells the temporary names of this run from those of others where there are no locks.
uint64_t DrawRunNumber() {
  static std::atomic<uint64_t> runs{0};
  return HashKey(WallClockNanos(), NowNanos(), reinterpret_cast<uintptr_t>(&runs), ++runs);
}

class DatasetIndexer {
 public:
  DatasetIndexer(FileSystem* fs, const IndexOptions& options, const Context& ctx)
      : fs_(fs), options_(options), ctx_(ctx) {
    report_.manifest.created_by = kCreatedBy;
    report_.manifest.message = options.message;
  }
  ~DatasetIndexer() {
    for (const std::string& path : staged_) (void)fs_->Remove(StagedName(path));
    if (lock_) (void)fs_->Remove(JoinPath(output_, kLockName));  // while it is held
  }

  Result<IndexReport> IndexShards(const ShardList& shards);
  Result<IndexReport> IndexMds(const std::string& folder, std::string_view index_text);
  Result<IndexReport> IndexFolder(const std::string& folder);
  Result<IndexReport> IndexList(const std::string& list);

 private:
  Status FindBase(const std::vector<std::string>& paths);
  Status AddShardFile(const std::string& path, std::set<std::string>* fields);
  Status AddShard(BuiltIndex built, const std::string& name);
  Status CountBytes(const std::vector<std::string>& paths);
  // Where an index waits for its name.
  std::string StagedName(const std::string& path) const {
    return JoinPath(DirectoryName(path),
                    fmt::format("{}{:016x}-{}", kTemporaryPrefix, run_, BaseName(path)));
  }
  Status Lock();
  // Removes what a killed run has left in a folder, once.
  Status Sweep(const std::string& folder);
  // Says what to do where the index cannot be written beside the data.
  Status Advise(Status status) const;
  Status MoveIn();
  Result<IndexReport> IndexInPlace(Result<BuiltIndex> built, const std::string& name);
  Status WriteFile(const std::string& path, const std::string& content);
  Status NoteBase();
  Status Prepare();
  Result<IndexReport> Publish();

  FileSystem* fs_;
  const IndexOptions& options_;
  const Context& ctx_;
  std::string data_folder_;          // shard names are relative to it
  std::string output_;               // where manifest and indexes go
  std::vector<std::string> staged_;  // indexes that are written and do not have their names yet
  const uint64_t run_ = DrawRunNumber();
  std::unique_ptr<FileLock> lock_;  // null where the file system has none
  std::set<std::string> swept_;
  IndexReport report_;
};

Status DatasetIndexer::WriteFile(const std::string& path, const std::string& content) {
  Status made = fs_->MakeDirectories(std::string(DirectoryName(path)));
  if (made.ok()) made = fs_->WriteAtomically(path, AsBytes(content));
  return Advise(std::move(made));
}

Status DatasetIndexer::Advise(Status status) const {
  const Code code = status.code();
  bool refused = code == Code::kPermissionDenied || code == Code::kUnimplemented;
  if (!refused || !options_.output.empty()) return status;
  return std::move(status).Prefix(
      "the index cannot be written beside the data; give a folder for it with --output");
}

Status DatasetIndexer::Lock() {
  HR_RETURN_IF_ERROR(Advise(fs_->MakeDirectories(output_)));
  auto lock = fs_->Lock(JoinPath(output_, kLockName));
  if (lock.ok()) {
    lock_ = *std::move(lock);
    return OkStatus();
  }
  if (lock.status().code() == Code::kFailedPrecondition)
    return Error(Code::kFailedPrecondition,
                 "another run is indexing into {}: wait for it to end, or stop it", output_);
  return lock.status().code() == Code::kUnimplemented ? OkStatus() : Advise(lock.status());
}

Status DatasetIndexer::Sweep(const std::string& folder) {
  if (!lock_ || !swept_.insert(folder).second) return OkStatus();
  auto entries = fs_->List(folder);
  if (entries.status().code() == Code::kNotFound) return OkStatus();
  HR_RETURN_IF_ERROR(entries.status());
  for (const DirectoryEntry& entry : *entries)
    if (entry.name.starts_with(kTemporaryPrefix))
      HR_RETURN_IF_ERROR(fs_->Remove(JoinPath(folder, entry.name)));
  return OkStatus();
}

// Notes in the manifest where the data lies, when that is not beside it, and takes the output
// folder.
Status DatasetIndexer::Prepare() {
  if (!options_.output.empty()) output_ = options_.output;
  HR_RETURN_IF_ERROR(NoteBase());
  HR_RETURN_IF_ERROR(Lock());
  return Sweep(output_);
}

Status DatasetIndexer::NoteBase() {
  if (output_ == data_folder_) return OkStatus();
  std::string& base = report_.manifest.base;
  if (output_ == JoinPath(data_folder_, kInPlaceFolder)) {
    base = "..";
  } else if (DirectoryName(output_) == JoinPath(data_folder_, kInPlaceFolder)) {
    base = "../..";
  } else {
    HR_ASSIGN_OR_RETURN(base, PathFrom(output_, data_folder_));
  }
  return OkStatus();
}

// The folder that holds all the shards.
Status DatasetIndexer::FindBase(const std::vector<std::string>& paths) {
  data_folder_ = DirectoryName(paths.front());
  bool together = true;
  for (const std::string& path : paths) {
    std::string_view folder = DirectoryName(path);
    while (folder != data_folder_ && !folder.starts_with(data_folder_ + "/")) {
      std::string_view parent = DirectoryName(data_folder_);
      if (parent == data_folder_ || parent == "/" || parent == ".")
        return Error(Code::kInvalidArgument,
                     "{} and {} have no folder in common that could hold one dataset",
                     paths.front(), path);
      data_folder_ = std::string(parent);
      together = false;
    }
    together = together && folder == data_folder_;
  }
  if (together || !options_.output.empty()) {
    output_ = data_folder_;
    return OkStatus();
  }
  return Error(Code::kFailedPrecondition,
               "the shards lie in different folders, so one manifest has no natural place: say "
               "where it and the indexes go with --output");
}

Status DatasetIndexer::AddShard(BuiltIndex built, const std::string& name) {
  ManifestShard shard;
  shard.name = name;
  shard.index = name + std::string(kIndexSuffix);
  shard.samples = built.num_samples;
  shard.bytes = built.size_bytes;
  shard.crc32c = built.shard_crc32c;
  staged_.push_back(JoinPath(output_, shard.index));
  HR_RETURN_IF_ERROR(Sweep(std::string(DirectoryName(staged_.back()))));
  HR_RETURN_IF_ERROR(WriteFile(StagedName(staged_.back()), built.bytes));
  HR_ASSIGN_OR_RETURN(auto reader, IndexReader::FromBytes(std::move(built.bytes), shard.index));
  shard.SetIndex(*reader);
  HR_ASSIGN_OR_RETURN(SeekTally seek, TallySeekPoints(*reader));
  report_.shards.push_back({.name = name,
                            .num_skipped = built.num_skipped,
                            .first_skipped = std::move(built.first_skipped),
                            .scan = std::move(built.scan),
                            .seek = seek});
  report_.manifest.shards.push_back(std::move(shard));
  return OkStatus();
}

Status DatasetIndexer::AddShardFile(const std::string& path, std::set<std::string>* fields) {
  HR_RETURN_IF_ERROR(ctx_.Check());
  std::string name = data_folder_ == "." && path.find('/') == std::string::npos
                         ? path
                         : path.substr(data_folder_ == "/" ? 1 : data_folder_.size() + 1);
  HR_RETURN_IF_ERROR(CheckRelativeName(name));
  HR_ASSIGN_OR_RETURN(auto file, fs_->OpenForRead(path));
  HR_ASSIGN_OR_RETURN(BuiltIndex built,
                      BuildShardIndex(*file, report_.manifest.kind, name, options_.build, ctx_));
  if (options_.build.progress && !options_.build.reads_data()) {
    options_.build.progress->samples.fetch_add(built.num_samples);
    options_.build.progress->bytes.fetch_add(file->size());
  }
  fields->insert(built.fields.begin(), built.fields.end());
  return AddShard(std::move(built), name);
}

// Gives the staged indexes their names.
Status DatasetIndexer::MoveIn() {
  std::set<std::string> folders;
  while (!staged_.empty()) {
    const std::string& path = staged_.back();
    HR_RETURN_IF_ERROR(fs_->Rename(StagedName(path), path));
    folders.emplace(DirectoryName(path));
    staged_.pop_back();
  }
  for (const std::string& folder : folders) HR_RETURN_IF_ERROR(fs_->SyncDirectory(folder));
  return OkStatus();
}

Result<IndexReport> DatasetIndexer::Publish() {
  HR_RETURN_IF_ERROR(ctx_.Check());
  HR_RETURN_IF_ERROR(MoveIn());
  report_.manifest_path = JoinPath(output_, kManifestName);
  HR_RETURN_IF_ERROR(WriteFile(report_.manifest_path, report_.manifest.ToJson()));
  return std::move(report_);
}

Status DatasetIndexer::CountBytes(const std::vector<std::string>& paths) {
  IndexProgress* progress = options_.build.progress;
  if (progress == nullptr) return OkStatus();
  for (const std::string& path : paths) {
    HR_ASSIGN_OR_RETURN(FileInfo info, fs_->Stat(path));
    progress->total_bytes.fetch_add(info.size_bytes);
  }
  return OkStatus();
}

Result<IndexReport> DatasetIndexer::IndexShards(const ShardList& shards) {
  report_.manifest.kind = shards.kind;
  HR_RETURN_IF_ERROR(FindBase(shards.names));
  HR_RETURN_IF_ERROR(Prepare());
  HR_RETURN_IF_ERROR(CountBytes(shards.names));
  std::set<std::string> fields;
  for (const std::string& path : shards.names) HR_RETURN_IF_ERROR(AddShardFile(path, &fields));
  report_.manifest.fields.assign(fields.begin(), fields.end());
  if (report_.manifest.num_samples() == 0) return NoSamplesIn(shards.names.front(), shards.kind);
  return Publish();
}

Result<IndexReport> DatasetIndexer::IndexMds(const std::string& folder,
                                             std::string_view index_text) {
  data_folder_ = output_ = folder;
  HR_RETURN_IF_ERROR(Prepare());
  HR_ASSIGN_OR_RETURN(auto content,
                      MdsContent::Open(fs_, folder, index_text, [this](const std::string& path) {
                        return Result<std::optional<bool>>(fs_->Exists(path));
                      }));
  report_.manifest.kind = "mds";
  report_.manifest.fields = content->index().ColumnNames();
  IndexProgress* progress = options_.build.progress;
  const std::vector<MdsShard>& shards = content->index().shards;
  for (const MdsShard& shard : shards)
    if (progress) progress->total_bytes.fetch_add(shard.raw.bytes);
  for (size_t i = 0; i < shards.size(); ++i) {
    HR_RETURN_IF_ERROR(ctx_.Check());
    HR_ASSIGN_OR_RETURN(auto file, content->OpenShard(i, ctx_));
    HR_ASSIGN_OR_RETURN(BuiltIndex built, BuildMdsIndex(*file, shards[i], options_.build, ctx_));
    if (progress && !options_.build.reads_data()) {
      progress->samples.fetch_add(built.num_samples);
      progress->bytes.fetch_add(file->size());
    }
    HR_RETURN_IF_ERROR(AddShard(std::move(built), shards[i].raw.name));
  }
  if (report_.manifest.num_samples() == 0) return NoSamplesIn(folder, "mds");
  return Publish();
}

Result<IndexReport> DatasetIndexer::IndexInPlace(Result<BuiltIndex> built,
                                                 const std::string& name) {
  if (!built.ok()) return std::move(built).status();
  HR_RETURN_IF_ERROR(Prepare());
  report_.manifest.fields = std::move(built->fields);
  report_.manifest.classes = std::move(built->classes);
  HR_RETURN_IF_ERROR(AddShard(*std::move(built), name));
  return Publish();
}

Result<IndexReport> DatasetIndexer::IndexFolder(const std::string& folder) {
  data_folder_ = folder;
  output_ = JoinPath(folder, kInPlaceFolder);
  report_.manifest.kind = "folder";
  return IndexInPlace(BuildFolderIndex(fs_, folder, options_.build, ctx_), "files");
}

Result<IndexReport> DatasetIndexer::IndexList(const std::string& list) {
  data_folder_ = DirectoryName(list);
  output_ = InPlaceFolderOfList(list);
  report_.manifest.kind = "list";
  return IndexInPlace(BuildListIndex(fs_, list, options_.build, ctx_), std::string(BaseName(list)));
}

std::string WithoutTrailingSlashes(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

}  // namespace

Result<ShardList> ListShards(FileSystem* fs, const std::string& folder) {
  HR_ASSIGN_OR_RETURN(auto entries, fs->List(folder));
  ShardList tars, records{"tfrecord", {}}, perhaps{"tfrecord", {}};
  for (DirectoryEntry& entry : entries) {
    if (entry.name.front() == '.' || entry.kind == FileKind::kDirectory) continue;
    ShardList* list = entry.name.ends_with(".tar")    ? &tars
                      : IsTfRecordName(entry.name)    ? &records
                      : IsShardOfManyName(entry.name) ? &perhaps
                                                      : nullptr;
    if (list) list->names.push_back(std::move(entry.name));
  }
  if (!tars.names.empty()) return tars;
  if (!records.names.empty()) return records;
  if (perhaps.names.empty()) return tars;
  HR_ASSIGN_OR_RETURN(bool is_record, IsTfRecordFile(fs, JoinPath(folder, perhaps.names.front())));
  return is_record ? perhaps : tars;
}

Result<BuiltIndex> BuildShardIndex(const RandomAccessFile& file, std::string_view kind,
                                   std::string_view name, const BuildOptions& options,
                                   const Context& ctx) {
  return kind == "tfrecord" ? BuildTfRecordIndex(file, name, options, ctx)
                            : BuildTarIndex(file, options, ctx);
}

Status NoSamplesIn(const std::string& path, std::string_view kind) {
  return Error(Code::kInvalidArgument, "no samples in {}: expected {}", path,
               kind == "tfrecord" ? "records that are tf.train.Example messages"
                                  : "members named KEY.FIELD, such as 0001.jpg and 0001.cls");
}

bool IsListName(std::string_view path) {
  return path.ends_with(".csv") || path.ends_with(".jsonl");
}

std::string InPlaceFolderOfList(const std::string& list) {
  return JoinPath(JoinPath(DirectoryName(list), kInPlaceFolder), BaseName(list));
}

namespace {

// What one of the given paths holds of shards; none for a plain folder or a list.
Result<ShardList> ShardsAt(FileSystem* fs, const std::string& path, bool is_folder) {
  if (IsListName(path) && !is_folder) return ShardList();
  if (!is_folder) {
    HR_ASSIGN_OR_RETURN(bool is_record, IsTfRecordFile(fs, path));
    return ShardList{is_record ? "tfrecord" : "tar", {path}};
  }
  HR_ASSIGN_OR_RETURN(ShardList found, ListShards(fs, path));
  for (std::string& name : found.names) name = JoinPath(path, name);
  return found;
}

}  // namespace

Result<IndexReport> IndexDataset(FileSystem* fs, std::span<const std::string> paths,
                                 const IndexOptions& given, const Context& ctx) {
  IndexOptions options = given;
  options.output = WithoutTrailingSlashes(options.output);
  DatasetIndexer indexer(fs, options, ctx);
  ShardList all;
  for (const std::string& given_path : paths) {
    std::string path = WithoutTrailingSlashes(given_path);
    if (BaseName(path) == kMdsIndexName) path = DirectoryName(path);
    HR_ASSIGN_OR_RETURN(FileInfo info, fs->Stat(path));
    const bool is_folder = info.kind == FileKind::kDirectory;
    std::string mds;
    if (is_folder) {
      HR_ASSIGN_OR_RETURN(mds, ReadMdsIndexText(fs, path));
    }
    if (!mds.empty() && paths.size() == 1) return indexer.IndexMds(path, mds);
    ShardList found;
    if (mds.empty()) {
      HR_ASSIGN_OR_RETURN(found, ShardsAt(fs, path, is_folder));
    }
    if (found.names.empty() && paths.size() > 1)
      return Error(Code::kInvalidArgument,
                   "{} is no tar: a plain folder, a list or an MDS folder is a dataset of its own, "
                   "index it alone",
                   path);
    if (found.names.empty()) return is_folder ? indexer.IndexFolder(path) : indexer.IndexList(path);
    if (!all.names.empty() && found.kind != all.kind)
      return Error(Code::kInvalidArgument,
                   "{} and {} are shards of different kinds ({} and {}): index each kind alone",
                   all.names.front(), found.names.front(), all.kind, found.kind);
    all.kind = found.kind;
    all.names.insert(all.names.end(), found.names.begin(), found.names.end());
  }
  if (all.names.empty())
    return Error(Code::kInvalidArgument, "nothing to index: no path was given");
  return indexer.IndexShards(all);
}

}  // namespace headrace::dataset
