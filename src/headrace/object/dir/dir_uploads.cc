#include "headrace/object/dir/dir_uploads.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "headrace/base/text.h"
#include "headrace/object/object_key.h"

namespace headrace::object {

namespace {

constexpr uint32_t kMaxParts = 10'000;
constexpr size_t kCopyBytes = 4 << 20;

std::string KeyFile(const DirFiles& files, std::string_view id) {
  return JoinPath(files.UploadsFolder(), fmt::format("{}.key", id));
}

std::string PartFile(const DirFiles& files, std::string_view id, uint32_t number) {
  return JoinPath(files.UploadsFolder(), fmt::format("{}.{}", id, number));
}

// Writes `content` to a file that has its name only once it is whole and on the disk.
Status WriteWhole(const DirFiles& files, Bytes content, std::string* temporary) {
  HR_ASSIGN_OR_RETURN(auto file, files.fs()->CreateTemporary(files.UploadsFolder(), temporary));
  Status status = file->Append(content);
  if (status.ok()) status = file->Sync();
  if (status.ok()) status = file->Close();
  if (!status.ok()) (void)files.fs()->Remove(*temporary);
  return status;
}

// Appends a whole file.
Status AppendFile(FileSystem* fs, const std::string& path, const Context& ctx, WritableFile* to) {
  HR_ASSIGN_OR_RETURN(auto from, fs->OpenForRead(path));
  AlignedBuffer buffer;
  if (!buffer.Reserve(std::min<uint64_t>(kCopyBytes, from->size())))
    return Status(Code::kResourceExhausted, "no memory for copying a part");
  for (uint64_t offset = 0; offset < from->size();) {
    MutableBytes part(buffer.data(), std::min<uint64_t>(kCopyBytes, from->size() - offset));
    HR_RETURN_IF_ERROR(from->ReadAt(offset, part, ctx));
    HR_RETURN_IF_ERROR(to->Append(part));
    offset += part.size();
  }
  return OkStatus();
}

class DirUpload final : public Upload {
 public:
  DirUpload(std::shared_ptr<DirFiles> files, std::string key, std::string id)
      : files_(std::move(files)), key_(std::move(key)), id_(std::move(id)) {}
  ~DirUpload() override { (void)Abort(Context()); }

  Status PutPart(uint32_t number, Bytes data, const Context& ctx) override {
    HR_RETURN_IF_ERROR(ctx.Check());
    if (number == 0 || number > kMaxParts)
      return Error(Code::kInvalidArgument, "the parts of {} are numbered from 1 to {}, found {}",
                   Name(), kMaxParts, number);
    HR_RETURN_IF_ERROR(CheckRunning());
    std::string temporary;
    HR_RETURN_IF_ERROR(WriteWhole(*files_, data, &temporary));
    Status renamed = files_->fs()->Rename(temporary, PartFile(*files_, id_, number));
    if (!renamed.ok()) (void)files_->fs()->Remove(temporary);
    HR_RETURN_IF_ERROR(std::move(renamed));
    Status running = CheckRunning();  // it may have ended meanwhile, and nobody would look for this
    if (!running.ok()) (void)files_->fs()->Remove(PartFile(*files_, id_, number));
    return running;
  }

  Result<std::string> Complete(uint32_t num_parts, const Context& ctx) override {
    HR_RETURN_IF_ERROR(ctx.Check());
    if (num_parts == 0 || num_parts > kMaxParts)
      return Error(Code::kInvalidArgument, "an upload has 1 to {} parts, found {}: {}", kMaxParts,
                   num_parts, Name());
    HR_RETURN_IF_ERROR(CheckRunning());
    HR_RETURN_IF_ERROR(CheckParts(num_parts));
    HR_ASSIGN_OR_RETURN(
        std::string etag, files_->Publish(key_, {}, ctx, [&](WritableFile* file) -> Status {
          for (uint32_t number = 1; number <= num_parts; ++number)
            HR_RETURN_IF_ERROR(AppendFile(files_->fs(), PartFile(*files_, id_, number), ctx, file));
          return OkStatus();
        }));
    (void)Abort(Context());  // what is left of it is found by ListUploads
    return etag;
  }

  Status Abort(const Context& ctx) override {
    HR_RETURN_IF_ERROR(ctx.Check());
    return AbortDirUpload(*files_, id_);
  }

 private:
  std::string Name() const { return ObjectName(files_->name(), key_); }

  Status CheckRunning() const {
    Result<FileInfo> there = files_->fs()->Stat(KeyFile(*files_, id_));
    if (there.ok()) return OkStatus();
    if (there.status().code() != Code::kNotFound) return std::move(there).status();
    return Error(Code::kFailedPrecondition, "the upload of {} has ended", Name());
  }

  Status CheckParts(uint32_t num_parts) const {
    for (uint32_t number = 1; number <= num_parts; ++number) {
      Result<FileInfo> there = files_->fs()->Stat(PartFile(*files_, id_, number));
      if (there.ok()) continue;
      if (there.status().code() != Code::kNotFound) return std::move(there).status();
      return Error(Code::kFailedPrecondition, "part {} of {} was not sent: {}", number, num_parts,
                   Name());
    }
    return OkStatus();
  }

  const std::shared_ptr<DirFiles> files_;
  const std::string key_, id_;
};

}  // namespace

Result<std::unique_ptr<Upload>> StartDirUpload(std::shared_ptr<DirFiles> files,
                                               const std::string& key) {
  constexpr int kAttempts = 100;
  HR_RETURN_IF_ERROR(files->MakeFolder(files->UploadsFolder()));
  Status last;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    std::string temporary;
    HR_RETURN_IF_ERROR(WriteWhole(*files, AsBytes(key), &temporary));
    std::string id(BaseName(temporary).substr(kTemporaryPrefix.size()));
    last = files->fs()->RenameIfAbsent(temporary, KeyFile(*files, id));
    if (last.ok()) return std::make_unique<DirUpload>(std::move(files), key, std::move(id));
    (void)files->fs()->Remove(temporary);
    // An upload left by a process with the same number has the name.
    if (last.code() != Code::kAlreadyExists) break;
  }
  return last;
}

Result<std::vector<PendingUpload>> ListDirUploads(const DirFiles& files, const std::string& prefix,
                                                  const Context& ctx) {
  std::vector<PendingUpload> pending;
  auto entries = files.fs()->List(files.UploadsFolder());
  if (!entries.ok() && entries.status().code() == Code::kNotFound) return pending;
  if (!entries.ok()) return std::move(entries).status();
  for (const DirectoryEntry& entry : *entries) {
    HR_RETURN_IF_ERROR(ctx.Check());
    if (!entry.name.ends_with(".key")) continue;
    std::string id = entry.name.substr(0, entry.name.size() - 4);
    std::string path = KeyFile(files, id);
    Result<FileInfo> info = files.fs()->Stat(path);
    Result<std::string> key = files.fs()->ReadWhole(path, kMaxKeyBytes);
    if (!info.ok() || !key.ok()) continue;  // it has ended
    if (key->starts_with(prefix))
      pending.push_back({*std::move(key), std::move(id), info->mtime_ns});
  }
  return pending;
}

Status AbortDirUpload(const DirFiles& files, const std::string& id) {
  if (id.empty() || id.find_first_not_of("0123456789-") != std::string::npos)
    return Error(Code::kInvalidArgument, "no upload of {} has the id '{}'", files.name(),
                 EscapeText(id));
  FileSystem* fs = files.fs();
  // The key goes first: from then on the upload has ended.
  Status removed = fs->Remove(KeyFile(files, id));
  if (!removed.ok() && removed.code() != Code::kNotFound) return removed;
  auto entries = fs->List(files.UploadsFolder());
  if (!entries.ok())
    return entries.status().code() == Code::kNotFound ? OkStatus() : std::move(entries).status();
  for (const DirectoryEntry& entry : *entries) {
    if (!entry.name.starts_with(id + ".")) continue;
    removed = fs->Remove(JoinPath(files.UploadsFolder(), entry.name));
    if (!removed.ok() && removed.code() != Code::kNotFound) return removed;
  }
  return OkStatus();
}

}  // namespace headrace::object
