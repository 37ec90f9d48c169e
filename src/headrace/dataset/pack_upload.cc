#include "headrace/dataset/pack_upload.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "headrace/base/crc32c.h"
#include "headrace/base/json.h"
#include "headrace/base/text.h"
#include "headrace/dataset/crew.h"
#include "headrace/dataset/index_format.h"
#include "headrace/dataset/manifest.h"
#include "headrace/object/object_file_system.h"
#include "headrace/object/upload_sweep.h"

namespace headrace::dataset {
namespace {

constexpr uint64_t kMostManifestBytes = uint64_t{1} << 30;

// Without it a reader would take the shards that are there already for the whole.
std::string UnfinishedManifest() {
  return Json::MakeObject().Set("format", kUnfinishedFormat).Dump() + "\n";
}

class Uploader {
 public:
  Uploader(FileSystem* from, const std::string& folder, FileSystem* to_fs, const std::string& to,
           const UploadOptions& options, const Context& ctx)
      : from_(from), folder_(folder), to_fs_(to_fs), to_(to), options_(options), ctx_(ctx) {}

  Status Run() {
    const std::string manifest_path = JoinPath(folder_, kManifestName);
    auto text = from_->ReadWhole(manifest_path, kMostManifestBytes);
    if (!text.ok()) {
      if (text.status().code() != Code::kNotFound) return std::move(text).status();
      return Error(Code::kFailedPrecondition, "{} is no packed data set: it has no {}",
                   EscapeText(folder_), kManifestName);
    }
    HR_ASSIGN_OR_RETURN(manifest_, Manifest::FromJson(*text, manifest_path));
    for (const ManifestShard& shard : manifest_.shards) {
      files_.push_back({shard.name, shard.crc32c});
      files_.push_back({shard.index, {}});
    }
    HR_RETURN_IF_ERROR(CheckDestination());
    HR_RETURN_IF_ERROR(CountBytes());
    HR_RETURN_IF_ERROR(to_fs_->MakeDirectories(to_));
    HR_RETURN_IF_ERROR(
        to_fs_->WriteAtomically(JoinPath(to_, kManifestName), AsBytes(UnfinishedManifest())));
    Crew crew("hr-upload", options_.threads, files_.size());
    HR_RETURN_IF_ERROR(crew.Run([&]() -> Status {
      AlignedBuffer buffer;
      if (!buffer.Reserve(kPartBytes))
        return Status(Code::kResourceExhausted, "no memory for a buffer");
      while (auto number = crew.Take())
        HR_RETURN_IF_ERROR(Send(files_[*number], {buffer.data(), kPartBytes}));
      return OkStatus();
    }));
    HR_RETURN_IF_ERROR(to_fs_->SyncDirectory(to_));
    HR_RETURN_IF_ERROR(ctx_.Check());
    HR_RETURN_IF_ERROR(to_fs_->WriteAtomically(JoinPath(to_, kManifestName), AsBytes(*text)));
    SweepParts();
    return OkStatus();
  }

 private:
  static constexpr size_t kPartBytes = size_t{4} << 20;

  struct File {
    std::string name;
    std::optional<uint32_t> crc32c;
  };

  // Nothing may be there, but what an upload of this data set has left.
  Status CheckDestination() const {
    HR_RETURN_IF_ERROR(CheckUploadPlace(to_fs_, to_));
    auto entries = to_fs_->List(to_);
    if (!entries.ok())
      return entries.status().code() == Code::kNotFound ? OkStatus() : std::move(entries).status();
    std::set<std::string, std::less<>> names = {std::string(kManifestName)};
    for (const File& file : files_) names.insert(file.name);
    for (const DirectoryEntry& entry : *entries) {
      if (names.count(entry.name) > 0) continue;
      return Error(Code::kAlreadyExists,
                   "there are files in {} already, such as '{}': choose another place; what is "
                   "there is never replaced",
                   EscapeText(to_), EscapeText(entry.name));
    }
    return OkStatus();
  }

  // Parts of these files that a killed run of this has left. The set is there whole and is never
  // replaced, so whoever still sends parts of it sends them in vain. Only the bucket's owner loses
  // something where it cannot be done, or not be asked for.
  void SweepParts() const {
    auto place = object::FindObject(to_fs_, JoinPath(to_, kManifestName));
    if (!place.ok()) return;
    const std::string prefix = place->key.substr(0, place->key.size() - kManifestName.size());
    std::set<std::string, std::less<>> keys;
    for (const File& file : files_) keys.insert(prefix + file.name);
    auto is_ours = [&](const object::PendingUpload& upload) { return keys.count(upload.key) > 0; };
    (void)object::SweepUploads(place->store.get(), prefix, is_ours, ctx_);
  }

  Status CountBytes() const {
    if (!options_.progress) return OkStatus();
    uint64_t bytes = 0;
    for (const File& file : files_) {
      HR_ASSIGN_OR_RETURN(FileInfo info, from_->Stat(JoinPath(folder_, file.name)));
      bytes += info.size_bytes;
    }
    options_.progress->total_bytes = bytes;
    options_.progress->total_samples = manifest_.num_samples();
    options_.progress->total_shards = manifest_.shards.size();
    return OkStatus();
  }

  Status Send(const File& file, MutableBytes buffer) const {
    const std::string path = JoinPath(folder_, file.name);
    HR_ASSIGN_OR_RETURN(auto from, from_->OpenForRead(path));
    HR_ASSIGN_OR_RETURN(auto to, to_fs_->Create(JoinPath(to_, file.name)));
    uint32_t crc = 0;
    for (uint64_t offset = 0; offset < from->size();) {
      MutableBytes part = buffer.first(std::min<uint64_t>(buffer.size(), from->size() - offset));
      HR_RETURN_IF_ERROR(from->ReadAt(offset, part, ctx_));
      HR_RETURN_IF_ERROR(ctx_.Check());
      crc = Crc32c(part, crc);
      HR_RETURN_IF_ERROR(to->Append(part));
      offset += part.size();
      if (options_.progress) options_.progress->bytes.fetch_add(part.size());
    }
    // Before it is closed: a file in a bucket is not there until then.
    if (file.crc32c && crc != *file.crc32c)
      return Error(
          Code::kFailedPrecondition,
          "{} has CRC32C {:08x}, its manifest says {:08x}: it was damaged or changed after "
          "it was packed; pack again",
          EscapeText(path), crc, *file.crc32c);
    HR_RETURN_IF_ERROR(to->Sync());
    HR_RETURN_IF_ERROR(to->Close());
    if (options_.progress && file.crc32c) options_.progress->shards.fetch_add(1);
    return OkStatus();
  }

  FileSystem* const from_;
  const std::string& folder_;
  FileSystem* const to_fs_;
  const std::string& to_;
  const UploadOptions& options_;
  const Context& ctx_;
  Manifest manifest_;
  std::vector<File> files_;
};

}  // namespace

Status CheckUploadPlace(FileSystem* to_fs, const std::string& to) {
  Result<std::string> there = to_fs->ReadWhole(JoinPath(to, kManifestName), kMostManifestBytes);
  if (there.ok() && *there == UnfinishedManifest()) return OkStatus();
  if (there.ok())
    return Error(Code::kAlreadyExists,
                 "there is a data set in {} already: choose another place; what is there is never "
                 "replaced",
                 EscapeText(to));
  // Who may write and not list is told "not allowed" of what is not there.
  Code code = there.status().code();
  if (code == Code::kNotFound || code == Code::kPermissionDenied) return OkStatus();
  return std::move(there).status();
}

Status UploadDataset(FileSystem* from, const std::string& folder, FileSystem* to_fs,
                     const std::string& to, const UploadOptions& options, const Context& ctx) {
  return Uploader(from, folder, to_fs, to, options, ctx).Run();
}

}  // namespace headrace::dataset
