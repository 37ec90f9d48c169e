#include "headrace/dataset/pack_source.h"

#include <algorithm>
#include <memory>

#include "headrace/base/text.h"
#include "headrace/dataset/index.h"
#include "headrace/dataset/index_build.h"
#include "headrace/dataset/manifest.h"
#include "headrace/dataset/mds.h"
#include "headrace/dataset/mds_content.h"
#include "headrace/dataset/shard_files.h"

namespace headrace::dataset {
namespace {

bool EndsWith(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

// Of a field in a shard of another kind, as a part of a member's name.
std::string MemberField(std::string_view name) {
  std::string field(name);
  std::replace(field.begin(), field.end(), '/', '.');
  return field;
}

class SourceLister {
 public:
  SourceLister(FileSystem* fs, bool skip_damaged, const Context& ctx) : fs_(fs), ctx_(ctx) {
    options_.allow_damage = skip_damaged;
    options_.repeated_keys = RepeatedKeys::kSeparate;  // joined below, over all tars
  }

  Status AddOne(const std::string& source);
  Status AddShards(const std::vector<std::string>& paths);
  Result<PackList> Finish(const std::string& first_source);

 private:
  Status AddFolder(const std::string& path);
  // A tar or TFRecord; `name` is for the keys of records.
  Status AddShard(const std::string& path, const std::string& name);
  Status AddTar(const std::string& path);
  Status AddTfRecord(const std::string& path, const std::string& name);
  Status AddMds(const std::string& folder, std::string_view index_text);
  Status AddDataset(const std::string& path, const Manifest& manifest);
  Status AddBuilt(BuiltIndex built, const std::string& name, const std::string& base,
                  uint32_t container);
  // Adds the samples of an index: files below `base`, or ranges of `container`.
  Status AddIndex(const IndexReader& index, const std::string& base, uint32_t container);
  Status AddField(const IndexField& field, std::string_view name, const std::string& base,
                  uint32_t container);
  bool IsDamaged(const IndexReader& index, const IndexSample& sample) const;
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
    if (BaseName(source) == kMdsIndexName) return AddFolder(std::string(DirectoryName(source)));
    return AddShard(source, std::string(BaseName(source)));
  }
  HR_ASSIGN_OR_RETURN(BuiltIndex built, BuildListIndex(fs_, source, options_, ctx_));
  return AddBuilt(std::move(built), source, std::string(DirectoryName(source)), 0);
}

Status SourceLister::AddFolder(const std::string& path) {
  std::string manifest_path = JoinPath(path, kManifestName);
  auto manifest_info = fs_->Stat(manifest_path);
  if (!manifest_info.ok() && manifest_info.status().code() != Code::kNotFound)
    return std::move(manifest_info).status();
  if (manifest_info.ok()) {
    HR_ASSIGN_OR_RETURN(Manifest manifest, Manifest::Load(fs_, manifest_path));
    return AddDataset(path, manifest);
  }
  HR_ASSIGN_OR_RETURN(std::string mds, ReadMdsIndexText(fs_, path));
  if (!mds.empty()) return AddMds(path, mds);
  HR_ASSIGN_OR_RETURN(ShardList shards, ListShards(fs_, path));
  for (const std::string& name : shards.names)
    HR_RETURN_IF_ERROR(AddShard(JoinPath(path, name), name));
  if (!shards.names.empty()) return OkStatus();
  HR_ASSIGN_OR_RETURN(BuiltIndex built, BuildFolderIndex(fs_, path, options_, ctx_));
  list_.classes = built.classes;
  return AddBuilt(std::move(built), path, path, 0);
}

// Tars are scanned, in the manifest's order; an index of plain files is used as it is.
Status SourceLister::AddDataset(const std::string& path, const Manifest& manifest) {
  HR_ASSIGN_OR_RETURN(std::string base, manifest.DataFolder(path));
  list_.classes = manifest.classes;
  if (manifest.kind == "mds") {
    HR_ASSIGN_OR_RETURN(std::string text, ReadMdsIndexText(fs_, base));
    if (!text.empty()) return AddMds(base, text);
    return Error(Code::kFailedPrecondition,
                 "'{}' is gone, or no index of MDS shards any more: copy it to the dataset again",
                 EscapeText(JoinPath(base, kMdsIndexName)));
  }
  for (const ManifestShard& shard : manifest.shards) {
    if (manifest.kind == "tar" || manifest.kind == "tfrecord") {
      HR_RETURN_IF_ERROR(AddShard(JoinPath(base, shard.name), shard.name));
      continue;
    }
    std::string index_path = JoinPath(path, shard.index);
    HR_ASSIGN_OR_RETURN(auto mapped, fs_->Map(index_path));
    HR_ASSIGN_OR_RETURN(auto index, IndexReader::Open(std::move(mapped), index_path));
    HR_RETURN_IF_ERROR(AddIndex(*index, base, 0));
  }
  return OkStatus();
}

Status SourceLister::AddShards(const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    HR_ASSIGN_OR_RETURN(FileInfo info, fs_->Stat(path));
    if (info.kind == FileKind::kDirectory)
      return Error(Code::kInvalidArgument,
                   "'{}' is a folder; several sources must all be tar or TFRecord files: pack one "
                   "folder at a time",
                   EscapeText(path));
    HR_RETURN_IF_ERROR(AddShard(path, std::string(BaseName(path))));
  }
  return OkStatus();
}

Status SourceLister::AddShard(const std::string& path, const std::string& name) {
  HR_ASSIGN_OR_RETURN(bool is_record, IsTfRecordFile(fs_, path));
  return is_record ? AddTfRecord(path, name) : AddTar(path);
}

// Each record is held against its checksum here: once its bytes are in a tar nobody could.
Status SourceLister::AddTfRecord(const std::string& path, const std::string& name) {
  HR_ASSIGN_OR_RETURN(FileInfo info, fs_->Stat(path));
  HR_ASSIGN_OR_RETURN(auto file, fs_->OpenForRead(path));
  uint32_t container = list_.AddContainer({path, file->size(), info.mtime_ns});
  BuildOptions checked = options_;
  checked.checksums = true;
  HR_ASSIGN_OR_RETURN(BuiltIndex built, BuildTfRecordIndex(*file, name, checked, ctx_));
  return AddBuilt(std::move(built), path, "", container);
}

Status SourceLister::AddMds(const std::string& folder, std::string_view index_text) {
  HR_ASSIGN_OR_RETURN(auto opened,
                      MdsContent::Open(fs_, folder, index_text, [this](const std::string& path) {
                        return Result<std::optional<bool>>(fs_->Exists(path));
                      }));
  std::shared_ptr<const MdsContent> content = std::move(opened);
  // What is unpacked is shared by all who write, and goes when the list does.
  auto unpacked = std::make_shared<ShardFiles>(
      static_cast<uint32_t>(content->index().shards.size()), ShardFiles::Limits(),
      [content](uint32_t shard) -> Result<ShardFiles::Opened> {
        HR_ASSIGN_OR_RETURN(auto file, content->OpenShard(shard, Context()));
        const uint64_t bytes = content->is_packed(shard) ? file->size() : 0;
        return ShardFiles::Opened{std::move(file), bytes};
      });
  for (uint32_t i = 0; i < content->index().shards.size(); ++i) {
    if (!content->is_packed(i)) HR_RETURN_IF_ERROR(content->CheckHashes(i, ctx_));
    HR_ASSIGN_OR_RETURN(FileInfo info, fs_->Stat(content->FilePath(i)));
    HR_ASSIGN_OR_RETURN(ShardFiles::File file, unpacked->Get(i));
    uint32_t container = list_.AddContainer({content->FilePath(i), file->size(), info.mtime_ns,
                                             [unpacked, i] { return unpacked->Get(i); }});
    HR_ASSIGN_OR_RETURN(BuiltIndex built,
                        BuildMdsIndex(*file, content->index().shards[i], options_, ctx_));
    HR_RETURN_IF_ERROR(AddBuilt(std::move(built), content->FilePath(i), "", container));
  }
  return OkStatus();
}

Status SourceLister::AddTar(const std::string& path) {
  HR_ASSIGN_OR_RETURN(FileInfo info, fs_->Stat(path));
  HR_ASSIGN_OR_RETURN(auto file, fs_->OpenForRead(path));
  uint32_t container = list_.AddContainer({path, file->size(), info.mtime_ns});
  HR_ASSIGN_OR_RETURN(BuiltIndex built, BuildTarIndex(*file, options_, ctx_));
  return AddBuilt(std::move(built), path, "", container);
}

Status SourceLister::AddBuilt(BuiltIndex built, const std::string& name, const std::string& base,
                              uint32_t container) {
  for (const TarDamage& damage : built.scan.damage)
    list_.left_out.push_back(
        fmt::format("{}: damage at byte {}: {}", EscapeText(name), damage.offset, damage.reason));
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
    if (IsDamaged(index, sample)) {
      list_.left_out.push_back(fmt::format("{}: the record of sample {} is damaged",
                                           EscapeText(index.name()), EscapeText(sample.key)));
      continue;
    }
    HR_RETURN_IF_ERROR(list_.BeginSample(sample.key));
    for (const IndexField& field : sample.fields)
      HR_RETURN_IF_ERROR(AddField(field, index.field_names()[field.name], base, container));
  }
  return OkStatus();
}

// A record that does not match its checksum was indexed without checksums of its fields.
bool SourceLister::IsDamaged(const IndexReader& index, const IndexSample& sample) const {
  if (index.kind() != ShardKind::kRecords) return false;
  return std::any_of(sample.fields.begin(), sample.fields.end(),
                     [](const IndexField& field) { return !field.in_index && !field.crc32c; });
}

Status SourceLister::AddField(const IndexField& field, std::string_view given_name,
                              const std::string& base, uint32_t container) {
  const std::string name = MemberField(given_name);
  if (field.in_index) return list_.AddText(name, field.value);
  if (field.is_array)
    return list_.AddArray(name, container, field.offset, field.length, field.value);
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
  HR_RETURN_IF_ERROR(sources.size() == 1 ? lister.AddOne(sources[0]) : lister.AddShards(sources));
  return lister.Finish(sources[0]);
}

}  // namespace headrace::dataset
