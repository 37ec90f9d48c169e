// Dataset::Open: finds out what a path is and gathers the parts of an OpenDataset.
#include <algorithm>
#include <map>
#include <set>

#include "headrace/base/crc32c.h"
#include "headrace/base/text.h"
#include "headrace/dataset/file_checksum.h"
#include "headrace/dataset/index_build.h"
#include "headrace/dataset/open_dataset.h"
#include "headrace/dataset/tfrecord.h"

namespace headrace::dataset {
namespace {

using Parts = OpenDataset::Parts;

// Names of a folder's entries; each folder is listed once.
class Listings {
 public:
  explicit Listings(FileSystem* fs) : fs_(fs) {}
  // Where files cannot be listed each one is looked for when it is first read: then that is taken
  // for yes.
  Result<bool> Has(const std::string& path) {
    HR_ASSIGN_OR_RETURN(std::optional<bool> known, Look(path));
    return known.value_or(true);
  }
  // Empty: that cannot be told without asking for the file itself.
  Result<std::optional<bool>> Look(const std::string& path) {
    std::string folder(DirectoryName(path));
    auto it = names_.find(folder);
    if (it == names_.end()) {
      std::set<std::string, std::less<>> names;
      auto entries = fs_->List(folder);
      if (!entries.ok() && (entries.status().code() == Code::kUnimplemented ||
                            (IsUrl(folder) && entries.status().code() == Code::kPermissionDenied)))
        return std::optional<bool>();
      if (!entries.ok() && entries.status().code() != Code::kNotFound)
        return std::move(entries).status();
      if (entries.ok())
        for (DirectoryEntry& entry : *entries) names.insert(std::move(entry.name));
      it = names_.emplace(std::move(folder), std::move(names)).first;
    }
    return std::optional<bool>(it->second.count(BaseName(path)) > 0);
  }

 private:
  FileSystem* fs_;
  std::map<std::string, std::set<std::string, std::less<>>> names_;
};

// Is a file there? What cannot be told is an error, never "no": a manifest that is passed over
// makes another dataset of the same files.
Result<bool> IsThere(FileSystem* fs, const std::string& path) {
  Result<FileInfo> info = fs->Stat(path);
  if (info.ok()) return true;
  if (info.status().code() == Code::kNotFound) return false;
  return std::move(info).status();
}

Status CheckPresent(const Parts& parts, const std::string& manifest_path) {
  Listings listings(parts.fs);
  uint64_t num_missing = 0;
  std::string first;
  auto look = [&](const std::string& path) -> Status {
    HR_ASSIGN_OR_RETURN(bool there, listings.Has(path));
    if (!there && num_missing++ == 0) first = path;
    return OkStatus();
  };
  for (const ManifestShard& shard : parts.manifest.shards) {
    if (parts.manifest.kind == "tar" || parts.manifest.kind == "tfrecord")
      HR_RETURN_IF_ERROR(look(JoinPath(parts.data_folder, shard.name)));
    HR_RETURN_IF_ERROR(look(JoinPath(parts.index_folder, shard.index)));
  }
  if (num_missing == 0) return OkStatus();
  return Error(Code::kFailedPrecondition,
               "the manifest {} names {} file(s) that are not there, first {}. Copy them to it, or "
               "make the manifest again with `headrace index`",
               manifest_path, num_missing, first)
      .At({.file = first, .offset = {}, .key = {}, .field = {}});
}

// A list that is read in place may have been edited after it was indexed.
Status CheckListUnchanged(const Parts& parts) {
  if (parts.manifest.kind != "list" || parts.manifest.shards.size() != 1) return OkStatus();
  const ManifestShard& shard = parts.manifest.shards[0];
  std::string list = JoinPath(parts.data_folder, shard.name);
  HR_ASSIGN_OR_RETURN(uint32_t crc, ChecksumOfFile(parts.fs, list, Context()));
  if (crc == shard.crc32c) return OkStatus();
  return Error(
             Code::kFailedPrecondition,
             "the list {} changed after it was indexed; make its index again with `headrace index`",
             list)
      .At({.file = list, .offset = {}, .key = {}, .field = {}});
}

// Reads index.json again, since it says how shards are compressed, and holds it against the
// manifest.
Status AddMdsContent(Parts* parts) {
  const std::string path = JoinPath(parts->data_folder, kMdsIndexName);
  HR_ASSIGN_OR_RETURN(std::string text, ReadMdsIndexText(parts->fs, parts->data_folder));
  if (text.empty())
    return Error(Code::kFailedPrecondition,
                 "{} is gone, or no index of MDS shards any more: copy it to the dataset again",
                 path)
        .At({.file = path, .offset = {}, .key = {}, .field = {}});
  Listings listings(parts->fs);
  auto content = MdsContent::Open(parts->fs, parts->data_folder, text,
                                  [&](const std::string& file) { return listings.Look(file); });
  if (!content.ok()) return std::move(content).status();
  parts->mds = *std::move(content);
  const std::vector<MdsShard>& found = parts->mds->index().shards;
  const std::vector<ManifestShard>& named = parts->manifest.shards;
  if (std::equal(named.begin(), named.end(), found.begin(), found.end(),
                 [](const ManifestShard& a, const MdsShard& b) {
                   // Fewer where damage was left out.
                   return a.name == b.raw.name && a.samples <= b.samples && a.bytes == b.raw.bytes;
                 }))
    return OkStatus();
  return Error(Code::kFailedPrecondition,
               "{} has other shards than when it was indexed: make the index again with `headrace "
               "index`",
               path)
      .At({.file = path, .offset = {}, .key = {}, .field = {}});
}

Status OpenManifest(const std::string& manifest_path, Parts* parts) {
  HR_ASSIGN_OR_RETURN(parts->manifest, Manifest::Load(parts->fs, manifest_path));
  parts->index_folder = DirectoryName(manifest_path);
  HR_ASSIGN_OR_RETURN(parts->data_folder, parts->manifest.DataFolder(parts->index_folder));
  HR_RETURN_IF_ERROR(CheckPresent(*parts, manifest_path));
  return parts->manifest.kind == "mds" ? AddMdsContent(parts) : CheckListUnchanged(*parts);
}

// Adds a shard that no manifest names: by its sidecar index if it has one, else from its headers.
Status AddShardInPlace(const std::string& name, Parts* parts, std::set<std::string>* fields) {
  std::string path = JoinPath(parts->data_folder, name);
  std::string index_name = name + std::string(kIndexSuffix);
  std::string index_path = JoinPath(parts->index_folder, index_name);
  ManifestShard shard{.name = name, .index = {}, .samples = 0, .bytes = 0, .crc32c = {}};
  std::unique_ptr<IndexReader> index;
  HR_ASSIGN_OR_RETURN(bool has_index, IsThere(parts->fs, index_path));
  if (has_index) {
    HR_ASSIGN_OR_RETURN(auto mapped, parts->fs->Map(index_path));
    HR_ASSIGN_OR_RETURN(index, IndexReader::Open(std::move(mapped), index_path));
    shard.index = index_name;
  } else {
    HR_ASSIGN_OR_RETURN(auto file, parts->fs->OpenForRead(path));
    HR_ASSIGN_OR_RETURN(BuiltIndex built, BuildShardIndex(*file, parts->manifest.kind, name,
                                                          BuildOptions(), Context()));
    HR_ASSIGN_OR_RETURN(index, IndexReader::FromBytes(std::move(built.bytes), path + " (headers)"));
  }
  shard.samples = index->num_samples();
  shard.bytes = index->identity().size_bytes;
  shard.SetIndex(*index);
  fields->insert(index->field_names().begin(), index->field_names().end());
  parts->manifest.shards.push_back(std::move(shard));
  parts->indexes.push_back(std::move(index));
  return OkStatus();
}

Status OpenShards(const ShardList& shards, Parts* parts) {
  std::set<std::string> fields;
  parts->manifest.kind = shards.kind;
  for (const std::string& name : shards.names)
    HR_RETURN_IF_ERROR(AddShardInPlace(name, parts, &fields));
  parts->manifest.fields.assign(fields.begin(), fields.end());
  if (parts->manifest.num_samples() > 0) return OkStatus();
  return NoSamplesIn(parts->path, shards.kind);
}

// Opens the MDS dataset in `folder` by its index.json alone: a shard's own index is made when it is
// first needed.
Status OpenMds(const std::string& folder, std::string_view index_text, Parts* parts) {
  parts->data_folder = parts->index_folder = folder;
  Listings listings(parts->fs);
  HR_ASSIGN_OR_RETURN(
      parts->mds, MdsContent::Open(parts->fs, parts->data_folder, index_text,
                                   [&](const std::string& file) { return listings.Look(file); }));
  parts->manifest = ManifestOf(parts->mds->index());
  return parts->manifest.num_samples() > 0 ? OkStatus() : NoSamplesIn(parts->path, "mds");
}

Status OpenBuilt(BuiltIndex built, std::string kind, const std::string& name, Parts* parts) {
  parts->manifest.kind = std::move(kind);
  parts->manifest.fields = std::move(built.fields);
  parts->manifest.classes = std::move(built.classes);
  HR_ASSIGN_OR_RETURN(
      auto index, IndexReader::FromBytes(std::move(built.bytes), parts->path + " (read in place)"));
  parts->manifest.shards.push_back({.name = name,
                                    .index = {},
                                    .samples = built.num_samples,
                                    .bytes = built.size_bytes,
                                    .crc32c = built.shard_crc32c,
                                    .index_header_crc32c = index->header_crc32c()});
  parts->indexes.push_back(std::move(index));
  return OkStatus();
}

// The manifest of a folder; empty when there is none. A bucket that may be read and not listed says
// "not allowed" of what is not there: then the next place is looked at before that is told.
Result<std::string> FindManifest(FileSystem* fs, const std::string& path) {
  Status refused;
  for (const std::string& folder : {path, JoinPath(path, kInPlaceFolder)}) {
    std::string manifest = JoinPath(folder, kManifestName);
    Result<bool> there = IsThere(fs, manifest);
    if (there.ok() && *there) return manifest;
    if (there.ok()) continue;
    if (!IsUrl(path) || there.status().code() != Code::kPermissionDenied)
      return std::move(there).status();
    refused = std::move(there).status();
  }
  if (!refused.ok()) return refused;
  return std::string();
}

// Before its manifest is there, what a pack has moved to its place is some of the shards. (A pack
// into a bucket has its staging folder elsewhere, and says so in the manifest.)
Status CheckNotBeingPacked(FileSystem* fs, const std::string& folder) {
  if (IsUrl(folder)) return OkStatus();
  HR_ASSIGN_OR_RETURN(bool unfinished, IsThere(fs, JoinPath(folder, kStagingFolder)));
  if (!unfinished) return OkStatus();
  return Error(Code::kFailedPrecondition,
               "{} holds a pack that is not finished: wait for it to end or, if it was broken off, "
               "give the same `headrace pack` command again, which goes on with it",
               EscapeText(folder));
}

Status OpenFolder(const std::string& path, Parts* parts) {
  HR_ASSIGN_OR_RETURN(std::string manifest, FindManifest(parts->fs, path));
  if (!manifest.empty()) return OpenManifest(manifest, parts);
  HR_RETURN_IF_ERROR(CheckNotBeingPacked(parts->fs, path));
  parts->data_folder = parts->index_folder = path;
  HR_ASSIGN_OR_RETURN(std::string mds, ReadMdsIndexText(parts->fs, path));
  if (!mds.empty()) return OpenMds(path, mds, parts);
  HR_ASSIGN_OR_RETURN(ShardList shards, ListShards(parts->fs, path));
  if (!shards.names.empty()) return OpenShards(shards, parts);
  HR_ASSIGN_OR_RETURN(BuiltIndex built,
                      BuildFolderIndex(parts->fs, path, BuildOptions(), Context()));
  return OpenBuilt(std::move(built), "folder", "files", parts);
}

Status OpenFile(const std::string& path, Parts* parts) {
  parts->data_folder = parts->index_folder = DirectoryName(path);
  std::string name(BaseName(path));
  if (name == kMdsIndexName) return OpenFolder(parts->data_folder, parts);
  if (path.ends_with(".json")) return OpenManifest(path, parts);
  if (!IsListName(path)) {
    HR_ASSIGN_OR_RETURN(bool is_record, IsTfRecordFile(parts->fs, path));
    return OpenShards({is_record ? "tfrecord" : "tar", {name}}, parts);
  }
  std::string manifest = JoinPath(InPlaceFolderOfList(path), kManifestName);
  HR_ASSIGN_OR_RETURN(bool has_manifest, IsThere(parts->fs, manifest));
  if (has_manifest) return OpenManifest(manifest, parts);
  HR_ASSIGN_OR_RETURN(BuiltIndex built, BuildListIndex(parts->fs, path, BuildOptions(), Context()));
  return OpenBuilt(std::move(built), "list", name, parts);
}

// Does the name say that it is a file that a dataset can be?
bool IsFileName(std::string_view path) {
  return path.ends_with(".tar") || path.ends_with(".json") || IsListName(path) ||
         IsTfRecordName(path);
}

Status ExplainNotFound(Status status, const std::string& path) {
  if (status.code() == Code::kNotFound && path.find_first_of("*?[{") != std::string::npos)
    return std::move(status).Prefix(
        "patterns are not expanded: give the folder that holds the shards");
  return status;
}

Status OpenParts(const std::string& path, Parts* parts) {
  // At a URL a folder shows best by its manifest: a web server may answer for the folder's own name
  // with a page, or with nothing.
  if (IsUrl(path) && !IsFileName(path)) {
    auto manifest = FindManifest(parts->fs, path);
    if (manifest.ok() && !manifest->empty()) return OpenManifest(*manifest, parts);
    if (!manifest.ok() && manifest.status().code() != Code::kPermissionDenied)
      return std::move(manifest).status();
    HR_ASSIGN_OR_RETURN(std::string mds, ReadMdsIndexText(parts->fs, path));
    if (!mds.empty()) return OpenMds(path, mds, parts);
  }
  auto info = parts->fs->Stat(path);
  if (!info.ok()) return ExplainNotFound(std::move(info).status(), path);
  return info->kind == FileKind::kDirectory ? OpenFolder(path, parts) : OpenFile(path, parts);
}

}  // namespace

Result<std::shared_ptr<const Dataset>> Dataset::Open(FileSystem* fs, const std::string& path,
                                                     const OpenOptions& options) {
  Parts parts;
  parts.fs = fs;
  parts.path = path;
  parts.options = options;
  HR_RETURN_IF_ERROR(OpenParts(path, &parts));
  auto dataset = std::make_shared<OpenDataset>(std::move(parts));
  HR_RETURN_IF_ERROR(dataset->AdoptIndexes());
  return std::shared_ptr<const Dataset>(std::move(dataset));
}

}  // namespace headrace::dataset
