#include "headrace/dataset/pack_source.h"

#include "headrace/base/text.h"
#include "headrace/dataset/index.h"
#include "headrace/dataset/index_build.h"
#include "headrace/dataset/manifest.h"
#include "headrace/dataset/mds.h"

namespace headrace::dataset {
namespace {

bool EndsWith(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

Status RefuseKind(const std::string& path, std::string_view kind) {
  return Error(Code::kUnimplemented,
               "'{}' holds {} shards, which cannot be packed yet. It is read where it is, without "
               "a copy: open it, or make an index of it with `headrace index`",
               EscapeText(path), kind == "mds" ? "MDS" : "TFRecord");
}

class SourceLister {
 public:
  SourceLister(FileSystem* fs, bool skip_damaged, const Context& ctx) : fs_(fs), ctx_(ctx) {
    options_.allow_damage = skip_damaged;
    options_.repeated_keys = RepeatedKeys::kSeparate;  // joined below, over all tars
  }

  Status AddOne(const std::string& source);
  Status AddTars(const std::vector<std::string>& paths);
  Result<PackList> Finish(const std::string& first_source);

 private:
  Status AddFolder(const std::string& path);
  Status AddTar(const std::string& path);
  Status AddDataset(const std::string& path, const Manifest& manifest);
  Status AddBuilt(BuiltIndex built, const std::string& name, const std::string& base,
                  uint32_t container);
  // Adds the samples of an index: files below `base`, or ranges of `container`.
  Status AddIndex(const IndexReader& index, const std::string& base, uint32_t container);
  Status AddField(const IndexField& field, std::string_view name, const std::string& base,
                  uint32_t container);
  void NoteLeftOut(const BuiltIndex& built, const std::string& path);

  FileSystem* fs_;
  const Context& ctx_;
  BuildOptions options_;
  PackList list_;
  std::string path_;  // used again for each file
};

Status SourceLister::AddOne(const std::string& source) {
  HR_ASSIGN_OR_RETURN(FileInfo info, fs_->Stat(source));
  if (info.kind == FileKind::kDirectory) return AddFolder(source);
  if (!EndsWith(source, ".csv") && !EndsWith(source, ".jsonl")) {
    HR_ASSIGN_OR_RETURN(bool is_record, IsTfRecordFile(fs_, source));
    return is_record ? RefuseKind(source, "tfrecord") : AddTar(source);
  }
  HR_ASSIGN_OR_RETURN(BuiltIndex built, BuildListIndex(fs_, source, options_, ctx_));
  return AddBuilt(std::move(built), source, std::string(DirectoryName(source)), 0);
}

Status SourceLister::AddFolder(const std::string& path) {
  std::vector<std::string> tars;
  std::string manifest_path = JoinPath(path, kManifestName);
  auto manifest_info = fs_->Stat(manifest_path);
  if (!manifest_info.ok() && manifest_info.status().code() != Code::kNotFound)
    return std::move(manifest_info).status();
  if (manifest_info.ok()) {
    HR_ASSIGN_OR_RETURN(Manifest manifest, Manifest::Load(fs_, manifest_path));
    return AddDataset(path, manifest);
  }
  HR_ASSIGN_OR_RETURN(std::string mds, ReadMdsIndexText(fs_, path));
  if (!mds.empty()) return RefuseKind(path, "mds");
  HR_ASSIGN_OR_RETURN(ShardList shards, ListShards(fs_, path));
  if (shards.kind != "tar") return RefuseKind(path, shards.kind);
  for (const std::string& name : shards.names) tars.push_back(JoinPath(path, name));
  if (!tars.empty()) return AddTars(tars);
  HR_ASSIGN_OR_RETURN(BuiltIndex built, BuildFolderIndex(fs_, path, options_, ctx_));
  list_.classes = built.classes;
  return AddBuilt(std::move(built), path, path, 0);
}

// Tars are scanned, in the manifest's order; an index of plain files is used as it is.
Status SourceLister::AddDataset(const std::string& path, const Manifest& manifest) {
  if (manifest.kind == "mds" || manifest.kind == "tfrecord") return RefuseKind(path, manifest.kind);
  HR_ASSIGN_OR_RETURN(std::string base, manifest.DataFolder(path));
  list_.classes = manifest.classes;
  std::vector<std::string> tars;
  for (const ManifestShard& shard : manifest.shards) {
    if (manifest.kind == "tar") {
      tars.push_back(JoinPath(base, shard.name));
      continue;
    }
    std::string index_path = JoinPath(path, shard.index);
    HR_ASSIGN_OR_RETURN(auto mapped, fs_->Map(index_path));
    HR_ASSIGN_OR_RETURN(auto index, IndexReader::Open(std::move(mapped), index_path));
    HR_RETURN_IF_ERROR(AddIndex(*index, base, 0));
  }
  return AddTars(tars);
}

Status SourceLister::AddTars(const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    HR_ASSIGN_OR_RETURN(FileInfo info, fs_->Stat(path));
    if (info.kind == FileKind::kDirectory)
      return Error(Code::kInvalidArgument,
                   "'{}' is a folder; several sources must all be tar files: pack one folder at a "
                   "time",
                   EscapeText(path));
    HR_RETURN_IF_ERROR(AddTar(path));
  }
  return OkStatus();
}

Status SourceLister::AddTar(const std::string& path) {
  HR_ASSIGN_OR_RETURN(FileInfo info, fs_->Stat(path));
  HR_ASSIGN_OR_RETURN(auto file, fs_->OpenForRead(path));
  uint32_t container = list_.AddContainer({path, file->size(), info.mtime_ns});
  HR_ASSIGN_OR_RETURN(BuiltIndex built, BuildTarIndex(*file, options_, ctx_));
  for (const TarDamage& damage : built.scan.damage)
    list_.left_out.push_back(
        fmt::format("{}: damage at byte {}: {}", EscapeText(path), damage.offset, damage.reason));
  return AddBuilt(std::move(built), path, "", container);
}

Status SourceLister::AddBuilt(BuiltIndex built, const std::string& name, const std::string& base,
                              uint32_t container) {
  NoteLeftOut(built, name);
  HR_ASSIGN_OR_RETURN(auto index, IndexReader::FromBytes(std::move(built.bytes), name));
  return AddIndex(*index, base, container);
}

Status SourceLister::AddIndex(const IndexReader& index, const std::string& base,
                              uint32_t container) {
  IndexSample sample;
  for (uint64_t i = 0; i < index.num_samples(); ++i) {
    HR_RETURN_IF_ERROR(ctx_.Check());
    HR_RETURN_IF_ERROR(index.Get(i, &sample));
    HR_RETURN_IF_ERROR(list_.BeginSample(sample.key));
    for (const IndexField& field : sample.fields)
      HR_RETURN_IF_ERROR(AddField(field, index.field_names()[field.name], base, container));
  }
  return OkStatus();
}

Status SourceLister::AddField(const IndexField& field, std::string_view name,
                              const std::string& base, uint32_t container) {
  if (field.in_index) return list_.AddText(name, field.value);
  if (base.empty()) return list_.AddRange(name, container, field.offset, field.length);
  path_.assign(base).append("/").append(field.value);
  HR_ASSIGN_OR_RETURN(FileInfo info, fs_->Stat(path_));
  return list_.AddFile(name, path_, info.size_bytes, info.mtime_ns);
}

void SourceLister::NoteLeftOut(const BuiltIndex& built, const std::string& path) {
  if (built.num_skipped == 0) return;
  list_.left_out.push_back(fmt::format("{}: {} files that are no samples, the first '{}'",
                                       EscapeText(path), built.num_skipped,
                                       EscapeText(built.first_skipped)));
}

Result<PackList> SourceLister::Finish(const std::string& first_source) {
  if (list_.num_samples() == 0)
    return Error(Code::kInvalidArgument,
                 "no sample in '{}'{}; expected files such as CLASS/NAME.jpg, or tars of them",
                 EscapeText(first_source),
                 list_.left_out.empty() ? "" : " (" + list_.left_out[0] + ")");
  HR_RETURN_IF_ERROR(list_.JoinEqualKeys());
  return std::move(list_);
}

}  // namespace

Result<PackList> ListSources(FileSystem* fs, const std::vector<std::string>& sources,
                             bool skip_damaged, const Context& ctx) {
  SourceLister lister(fs, skip_damaged, ctx);
  HR_RETURN_IF_ERROR(sources.size() == 1 ? lister.AddOne(sources[0]) : lister.AddTars(sources));
  return lister.Finish(sources[0]);
}

}  // namespace headrace::dataset
