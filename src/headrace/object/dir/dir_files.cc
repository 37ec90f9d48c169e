#include "headrace/object/dir/dir_files.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "headrace/base/text.h"
#include "headrace/env/process.h"
#include "headrace/object/dir/key_path.h"
#include "headrace/object/object_key.h"
#include "headrace/object/pause.h"

namespace headrace::object {

namespace {

constexpr size_t kMaxRemembered = 10'000;  // folders

// A folder that is gone was empty: what is looked for in it was deleted meanwhile.
Status UnlessGone(Status status) {
  return status.code() == Code::kNotFound ? OkStatus() : std::move(status);
}

// A part of what the process may have open.
size_t MaxOpen(const DirStoreOptions& options) {
  return std::min<uint64_t>(options.open_files, OpenFileLimit() / 4);
}

}  // namespace

DirFiles::DirFiles(FileSystem* fs, std::string root, const DirStoreOptions& options)
    : fs_(fs),
      root_(std::move(root)),
      name_("file://" + root_),
      direct_(options.direct),
      handles_(
          [options] { return std::make_unique<DirHandles>(MaxOpen(options), options.believed); }) {}

std::string DirFiles::UploadsFolder() const {
  return JoinPath(root_, std::string(kReservedPrefix) + "uploads");
}

std::string DirFiles::PathOf(const std::string& key) const {
  return JoinPath(root_, PathOfKey(key));
}

ObjectInfo DirFiles::Describe(const std::string& key, const FileInfo& file) {
  return {.key = key,
          .size_bytes = file.size_bytes,
          .etag = fmt::format("{:x}-{:x}-{:x}", file.size_bytes, file.mtime_ns, file.inode),
          .mtime_ns = file.mtime_ns};
}

Result<ObjectInfo> DirFiles::Stat(const std::string& key, const std::string& path) const {
  Result<FileInfo> file = fs_->Stat(path);
  if (!file.ok() && file.status().code() == Code::kUnavailable) file = fs_->Stat(path);
  if (file.ok() && file->kind == FileKind::kRegular) return Describe(key, *file);
  if (file.ok() || file.status().code() == Code::kNotFound) return NoSuchObject(name_, key);
  return std::move(file).status();
}

Result<DirFiles::OpenObject> DirFiles::Open(const std::string& key, const std::string& if_match) {
  const std::string path = PathOf(key);
  DirHandles& handles = handles_.Get();
  const DirHandles::Found kept = handles.Find(path);
  if (!kept.file) return OpenAnew(key, path, if_match);
  ObjectInfo info = Describe(key, kept.file->info());
  // Who names the version may have what is open, whatever has the name now.
  const bool named = !if_match.empty() && info.etag == if_match;
  if (named && kept.believed) return OpenObject{kept.file, std::move(info)};
  Result<ObjectInfo> there = Stat(key, path);
  if (!there.ok()) handles.Forget(path);
  if (!there.ok()) return std::move(there).status();
  if (there->etag != info.etag) {
    handles.Forget(path);
    return OpenAnew(key, path, if_match);
  }
  handles.Confirm(path, kept.file);
  if (!if_match.empty() && !named) return ObjectReplaced(name_, key);
  return OpenObject{kept.file, std::move(info)};
}

Result<DirFiles::OpenObject> DirFiles::OpenAnew(const std::string& key, const std::string& path,
                                                const std::string& if_match) {
  DirHandles& handles = handles_.Get();
  const uint64_t turn = handles.Turn();
  auto opened = direct_ ? fs_->OpenDirect(path) : fs_->OpenForRead(path);
  if (!opened.ok()) {
    Code code = opened.status().code();
    // Invalid: a folder has the name, which is no object.
    if (code == Code::kNotFound || code == Code::kInvalidArgument) return NoSuchObject(name_, key);
    return std::move(opened).status();
  }
  OpenObject object{*std::move(opened), {}};
  object.info = Describe(key, object.file->info());
  handles.Keep(path, object.file, turn);
  if (!if_match.empty() && object.info.etag != if_match) return ObjectReplaced(name_, key);
  return object;
}

// A folder that another machine made a moment ago may take a while to show here.
Result<std::unique_ptr<WritableFile>> DirFiles::CreateBeside(const std::string& key,
                                                             const std::string& path,
                                                             const Context& ctx,
                                                             std::string* temporary) {
  constexpr int kAttempts = 12;
  constexpr std::chrono::milliseconds kLongestPause(500);
  std::string folder(DirectoryName(path));
  std::chrono::milliseconds pause(1);
  for (int attempt = 1;; ++attempt) {
    auto file = fs_->CreateTemporary(folder, temporary);
    if (file.ok() || file.status().code() != Code::kNotFound || attempt == kAttempts) return file;
    if (attempt > 2) HR_RETURN_IF_ERROR(PauseFor(pause, ctx));
    if (attempt > 2) pause = std::min(pause * 2, kLongestPause);
    // Not there yet, or removed since with the last object in it.
    Forget(folder);
    Status made = fs_->MakeDirectories(folder);
    if (made.code() == Code::kAlreadyExists || made.code() == Code::kNotFound)
      return Error(Code::kInvalidArgument,
                   "the object {} cannot be kept in a folder: an object has the name of a part of "
                   "its path; choose another key",
                   ObjectName(name_, key));
    HR_RETURN_IF_ERROR(made);
  }
}

Result<std::string> DirFiles::Publish(const std::string& key, const PutOptions& options,
                                      const Context& ctx,
                                      const std::function<Status(WritableFile*)>& write) {
  const std::string path = PathOf(key);
  std::string temporary;
  auto created = CreateBeside(key, path, ctx, &temporary);
  if (!created.ok()) return std::move(created).status();
  WritableFile* file = created->get();
  Status status = write(file);
  if (status.ok()) status = file->Sync();
  if (status.ok()) status = file->Close();
  Result<FileInfo> info = status.ok() ? fs_->Stat(temporary) : Result<FileInfo>(status);
  if (info.ok()) status = Rename(key, temporary, *info, path, options, ctx);
  handles_.Get().Forget(path);
  if (!status.ok() || !info.ok()) {
    (void)fs_->Remove(temporary);
    return status.ok() ? std::move(info).status() : std::move(status);
  }
  HR_RETURN_IF_ERROR(MakeNamesDurable(std::string(DirectoryName(path))));
  return Describe(key, *info).etag;
}

// Is the file that was written the one that has the name?
bool DirFiles::IsThere(const std::string& path, const FileInfo& written) const {
  Result<FileInfo> there = fs_->Stat(path);
  return there.ok() && there->kind == FileKind::kRegular && there->device == written.device &&
         there->inode == written.inode && there->size_bytes == written.size_bytes;
}

// A network file system sends a request again whose answer was lost: then what was done the first
// time is told as "there already" or "not there". The file itself says which it was.
Status DirFiles::Rename(const std::string& key, const std::string& temporary,
                        const FileInfo& written, const std::string& path, const PutOptions& options,
                        const Context& ctx) {
  HR_RETURN_IF_ERROR(ctx.Check());
  Status renamed;
  if (options.if_absent) {
    renamed = fs_->RenameIfAbsent(temporary, path);
    if (renamed.code() == Code::kAlreadyExists && IsThere(path, written)) {
      (void)fs_->Remove(temporary);
      return OkStatus();
    }
    if (renamed.code() == Code::kAlreadyExists && Stat(key, path).ok())
      return ObjectTaken(name_, key);
    if (renamed.code() == Code::kAlreadyExists)
      renamed = Error(Code::kInvalidArgument, "a folder is there");
  } else if (!options.if_match.empty()) {
    HR_ASSIGN_OR_RETURN(std::unique_ptr<FileLock> lock, LockForMatch(ctx));
    Result<ObjectInfo> there = Stat(key, path);
    if (!there.ok() && there.status().code() != Code::kNotFound) return std::move(there).status();
    if (!there.ok() || there->etag != options.if_match) return ObjectReplaced(name_, key);
    HR_ASSIGN_OR_RETURN(bool is_so, ServerHas(key, path, options.if_match, temporary));
    if (!is_so) return ObjectReplaced(name_, key);
    renamed = fs_->Rename(temporary, path);
  } else {
    renamed = fs_->Rename(temporary, path);
  }
  if (renamed.code() == Code::kNotFound && IsThere(path, written)) return OkStatus();
  if (renamed.code() != Code::kInvalidArgument) return renamed;
  return Error(Code::kInvalidArgument,
               "the object {} cannot be kept in a folder: other objects are below its name; choose "
               "another key",
               ObjectName(name_, key));
}

// This machine may remember what another one has replaced. The server gives a second name to the
// file that it has, and to no other. True also where there are no second names.
Result<bool> DirFiles::ServerHas(const std::string& key, const std::string& path,
                                 const std::string& etag, const std::string& temporary) const {
  const std::string second = temporary + "-seen";
  Status linked = fs_->Link(path, second);
  if (linked.code() == Code::kUnimplemented) return true;
  if (linked.code() == Code::kNotFound || linked.code() == Code::kUnavailable) return false;
  HR_RETURN_IF_ERROR(linked);
  Result<ObjectInfo> named = Stat(key, second);
  (void)fs_->Remove(second);
  if (!named.ok()) return std::move(named).status();
  return named->etag == etag;
}

Result<std::unique_ptr<FileLock>> DirFiles::LockForMatch(const Context& ctx) {
  constexpr std::chrono::milliseconds kLongestPause(20);
  const std::string path = JoinPath(root_, std::string(kReservedPrefix) + "lock");
  for (std::chrono::milliseconds pause(1);; pause = std::min(pause * 2, kLongestPause)) {
    auto lock = fs_->Lock(path);
    if (lock.ok() || lock.status().code() != Code::kFailedPrecondition) return lock;
    HR_RETURN_IF_ERROR(PauseFor(pause, ctx));
  }
}

Status DirFiles::Remove(const std::string& key) {
  const std::string path = PathOf(key);
  Result<ObjectInfo> there = Stat(key, path);
  Status removed = there.ok() ? fs_->Remove(path) : std::move(there).status();
  handles_.Get().Forget(path);
  if (removed.code() == Code::kNotFound) return OkStatus();
  HR_RETURN_IF_ERROR(removed);
  std::string folder(DirectoryName(path));
  HR_RETURN_IF_ERROR(UnlessGone(fs_->SyncDirectory(folder)));
  // Folders that are empty now go too, so that their names are free for objects.
  while (folder.size() > root_.size() && folder.starts_with(root_) && fs_->Remove(folder).ok()) {
    Forget(folder);
    folder = DirectoryName(folder);
  }
  return OkStatus();
}

Status DirFiles::MakeFolder(const std::string& folder) {
  HR_RETURN_IF_ERROR(fs_->MakeDirectories(folder));
  return MakeNamesDurable(folder);
}

// Syncs `folder`, and where this process has not done it yet, those above it up to the root.
Status DirFiles::MakeNamesDurable(const std::string& folder) {
  HR_RETURN_IF_ERROR(UnlessGone(fs_->SyncDirectory(folder)));
  {
    MutexLock lock(&mu_);
    if (durable_.count(folder) > 0) return OkStatus();
  }
  for (std::string above = folder; above.size() > root_.size() && above.starts_with(root_);) {
    above = DirectoryName(above);
    HR_RETURN_IF_ERROR(UnlessGone(fs_->SyncDirectory(above)));
  }
  MutexLock lock(&mu_);
  if (durable_.size() >= kMaxRemembered) durable_.clear();
  durable_.insert(folder);
  return OkStatus();
}

// A folder that was removed is another one when it is there again; so may be those below and above.
void DirFiles::Forget(const std::string& folder) {
  MutexLock lock(&mu_);
  for (std::string above = folder; above.size() > root_.size() && above.starts_with(root_);) {
    above = DirectoryName(above);
    durable_.erase(above);
  }
  auto begin = durable_.lower_bound(folder);
  auto end = begin;
  while (end != durable_.end() && end->starts_with(folder)) ++end;
  durable_.erase(begin, end);
}

}  // namespace headrace::object
