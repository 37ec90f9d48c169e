#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "headrace/base/fault_point.h"
#include "headrace/base/text.h"
#include "headrace/env/posix_descriptor.h"
#include "headrace/env/posix_direct_file.h"
#include "headrace/env/posix_file_system.h"
#include "headrace/env/process.h"

namespace headrace {

namespace {

class PosixWritableFile final : public WritableFile {
 public:
  PosixWritableFile(std::string path, Descriptor file)
      : path_(std::move(path)), file_(std::move(file)) {}

  Status Append(Bytes data) override {
    HR_RETURN_IF_ERROR(CheckUsable());
    while (!data.empty()) {
      ssize_t n = ::write(file_.get(), data.data(), data.size());
      if (n >= 0) {
        size_ += static_cast<uint64_t>(n);
        data = data.subspan(static_cast<size_t>(n));
      } else if (errno != EINTR) {
        return Fail(errno, "write");
      }
    }
    return OkStatus();
  }

  Status Sync() override {
    HR_RETURN_IF_ERROR(CheckUsable());
    int result;
    do {
      result = ::fdatasync(file_.get());
    } while (result != 0 && errno == EINTR);
    return result == 0 ? OkStatus() : Fail(errno, "sync");
  }

  Status Close() override {
    int error = file_.Close();
    if (failure_.ok() && error != 0) return Fail(error, "close");
    return failure_;
  }

  uint64_t size() const override { return size_; }

 private:
  Status CheckUsable() const {
    if (!failure_.ok() || file_.valid()) return failure_;
    return Error(Code::kFailedPrecondition, "cannot write {}: it is closed", EscapeText(path_));
  }

  // The kernel tells of a lost write once only; this keeps it, so that no later Sync looks good.
  Status Fail(int error, std::string_view verb) {
    failure_ = PathError(error, verb, path_).At({path_, size_, {}, {}});
    return failure_;
  }

  const std::string path_;
  Descriptor file_;
  uint64_t size_ = 0;
  Status failure_;
};

class PosixSharedFile final : public SharedFile {
 public:
  PosixSharedFile(std::string path, Descriptor file)
      : path_(std::move(path)), file_(std::move(file)) {}

  Result<size_t> ReadSome(uint64_t offset, MutableBytes out) const override {
    return ReadByPosition(file_, path_, offset, out, Context());
  }

  Status WriteAt(uint64_t offset, Bytes data) override {
    if (offset > kMaxOffset || data.size() > kMaxOffset - offset)
      return PathError(EFBIG, "write", path_);
    while (!data.empty()) {
      ssize_t n = ::pwrite(file_.get(), data.data(), data.size(), static_cast<off_t>(offset));
      if (n >= 0) {
        offset += static_cast<uint64_t>(n);
        data = data.subspan(static_cast<size_t>(n));
      } else if (errno != EINTR) {
        return PathError(errno, "write", path_).At({path_, offset, {}, {}});
      }
    }
    return OkStatus();
  }

 private:
  const std::string path_;
  const Descriptor file_;
};

// A name left by a killed process with the same number, or used on another machine, is passed over,
// never reused.
Result<std::unique_ptr<WritableFile>> MakeTemporary(std::string_view directory, std::string* name) {
  static std::atomic<uint64_t> counter{0};
  constexpr int kAttempts = 1000;
  Status last;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    *name = JoinPath(directory, fmt::format("{}{}-{}", kTemporaryPrefix, ::getpid(),
                                            counter.fetch_add(1, std::memory_order_relaxed)));
    Result<Descriptor> file = OpenDescriptor(*name, O_WRONLY | O_CREAT | O_EXCL, "write");
    if (file.ok()) return std::make_unique<PosixWritableFile>(*name, std::move(file).value());
    last = std::move(file).status();
    if (last.code() != Code::kAlreadyExists) break;
  }
  return last;
}

Status FillAndRename(WritableFile& file, const std::string& temporary, const std::string& path,
                     Bytes content) {
  HR_RETURN_IF_ERROR(file.Append(content));
  HR_RETURN_IF_ERROR(FaultPoint("env.write_atomically.before_sync"));
  HR_RETURN_IF_ERROR(file.Sync());
  HR_RETURN_IF_ERROR(file.Close());
  HR_RETURN_IF_ERROR(FaultPoint("env.write_atomically.before_rename"));
  if (::rename(temporary.c_str(), path.c_str()) != 0) return PathError(errno, "replace", path);
  return OkStatus();
}

// Makes one directory whose parent is there. OK when it is there already.
Status MakeDirectory(const std::string& path) {
  if (::mkdir(path.c_str(), 0777) == 0) return OkStatus();
  int error = errno;
  struct stat info;
  bool there = error == EEXIST || error == EROFS || error == EACCES || error == EPERM;
  if (there && ::stat(path.c_str(), &info) == 0) {
    if (S_ISDIR(info.st_mode)) return OkStatus();
    return Error(Code::kAlreadyExists, "cannot make the directory {}: a file is there; remove it",
                 EscapeText(path));
  }
  return PathError(error, "make the directory", path);
}

// Does the system, or this file system, not know the call?
bool IsUnknown(int error) {
  // NOLINTNEXTLINE(misc-redundant-expression): two names of one number on Linux
  return error == EINVAL || error == ENOSYS || error == ENOTSUP || error == EOPNOTSUPP;
}

// A second name for `from` where `to` is free, then the first one goes. A network file system may
// say that the name is taken when its answer to the first try was lost: then it is this file's.
Status LinkAndRemove(const std::string& from, const std::string& to) {
  struct stat mine, there;
  if (::link(from.c_str(), to.c_str()) != 0) {
    int error = errno;
    bool linked = error == EEXIST && ::stat(from.c_str(), &mine) == 0 &&
                  ::lstat(to.c_str(), &there) == 0 && mine.st_dev == there.st_dev &&
                  mine.st_ino == there.st_ino;
    if (!linked && (error == EPERM || IsUnknown(error)))
      return Error(Code::kUnimplemented,
                   "cannot give {} a name only if it is free: the file system there has no hard "
                   "links; use another place",
                   EscapeText(to));
    if (!linked) return PathError(error, "rename", fmt::format("{} to {}", from, to));
  }
  if (::unlink(from.c_str()) != 0 && errno != ENOENT) return PathError(errno, "remove", from);
  return OkStatus();
}

class PosixFileLock final : public FileLock {
 public:
  explicit PosixFileLock(Descriptor file) : file_(std::move(file)), generation_(ForkGeneration()) {}
  // Unlocks and not only closes: a child forked meanwhile still has the descriptor. In that child
  // only the copy is closed.
  ~PosixFileLock() override {
    if (generation_ == ForkGeneration()) ::flock(file_.get(), LOCK_UN);
  }

 private:
  const Descriptor file_;
  const uint64_t generation_;
};

}  // namespace

Result<std::unique_ptr<WritableFile>> PosixFiles::Create(const std::string& path) {
  HR_ASSIGN_OR_RETURN(Descriptor file, OpenDescriptor(path, O_WRONLY | O_CREAT | O_TRUNC, "write"));
  return std::make_unique<PosixWritableFile>(path, std::move(file));
}

Result<std::unique_ptr<WritableFile>> PosixFiles::CreateDirect(const std::string& path) {
  auto direct = CreatePosixDirectFile(path);
  return direct.ok() ? std::move(direct) : Create(path);
}

Status PosixFiles::WriteDirect(const std::string& path, std::span<const Bytes> parts) {
  return WritePosixDirect(path, parts).ok() ? OkStatus() : FileSystem::WriteDirect(path, parts);
}

Result<std::unique_ptr<WritableFile>> PosixFiles::OpenForAppend(const std::string& path) {
  HR_ASSIGN_OR_RETURN(Descriptor file,
                      OpenDescriptor(path, O_WRONLY | O_CREAT | O_APPEND, "append to"));
  return std::make_unique<PosixWritableFile>(path, std::move(file));
}

Result<std::unique_ptr<SharedFile>> PosixFiles::OpenShared(const std::string& path) {
  HR_ASSIGN_OR_RETURN(Descriptor file, OpenDescriptor(path, O_RDWR | O_CREAT, "open"));
  return std::make_unique<PosixSharedFile>(path, std::move(file));
}

// 1. make a temporary file beside the target, 2. write and sync it, 3. rename it over the target,
// 4. sync the directory. A power cut before 3 is durable leaves the old content, after it the new.
Status PosixFiles::WriteAtomically(const std::string& path, Bytes content) {
  HR_RETURN_IF_ERROR(CheckPath(path));
  std::string temporary;
  Result<std::unique_ptr<WritableFile>> file = MakeTemporary(DirectoryName(path), &temporary);
  if (!file.ok()) return std::move(file).status().Prefix("replacing " + EscapeText(path));
  Status status = FillAndRename(**file, temporary, path, content);
  if (!status.ok()) {
    ::unlink(temporary.c_str());
    return std::move(status).Prefix("replacing " + EscapeText(path));
  }
  HR_RETURN_IF_ERROR(FaultPoint("env.write_atomically.before_directory_sync"));
  return SyncDirectory(std::string(DirectoryName(path)));
}

Result<std::unique_ptr<WritableFile>> PosixFiles::CreateTemporary(const std::string& directory,
                                                                  std::string* path) {
  return MakeTemporary(directory, path);
}

Status PosixFiles::Rename(const std::string& from, const std::string& to) {
  HR_RETURN_IF_ERROR(CheckPath(from));
  HR_RETURN_IF_ERROR(CheckPath(to));
  if (::rename(from.c_str(), to.c_str()) == 0) return OkStatus();
  return PathError(errno, "rename", fmt::format("{} to {}", from, to));
}

Status PosixFiles::RenameIfAbsent(const std::string& from, const std::string& to) {
  HR_RETURN_IF_ERROR(CheckPath(from));
  HR_RETURN_IF_ERROR(CheckPath(to));
  // Network file systems have no such rename; they have links.
  if (!FaultPoint("env.rename_if_absent.rename").ok()) return LinkAndRemove(from, to);
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0)
    return OkStatus();
  if (IsUnknown(errno)) return LinkAndRemove(from, to);
  return PathError(errno, "rename", fmt::format("{} to {}", from, to));
}

Status PosixFiles::Link(const std::string& from, const std::string& to) {
  HR_RETURN_IF_ERROR(CheckPath(from));
  HR_RETURN_IF_ERROR(CheckPath(to));
  if (::link(from.c_str(), to.c_str()) == 0) return OkStatus();
  if (errno == EPERM || IsUnknown(errno)) return FileSystem::Link(from, to);
  return PathError(errno, "link", fmt::format("{} to {}", from, to));
}

Status PosixFiles::Remove(const std::string& path) {
  HR_RETURN_IF_ERROR(CheckPath(path));
  if (::remove(path.c_str()) == 0) return OkStatus();
  return PathError(errno, "remove", path);
}

Status PosixFiles::RemoveTree(const std::string& path) {
  HR_RETURN_IF_ERROR(CheckPath(path));
  struct stat info;
  if (::lstat(path.c_str(), &info) != 0)
    return errno == ENOENT ? OkStatus() : PathError(errno, "remove", path);
  if (S_ISDIR(info.st_mode)) {
    HR_ASSIGN_OR_RETURN(std::vector<DirectoryEntry> entries, List(path));
    for (const DirectoryEntry& entry : entries) {
      std::string child = JoinPath(path, entry.name);
      HR_RETURN_IF_ERROR(entry.kind == FileKind::kDirectory ? RemoveTree(child) : Remove(child));
    }
  }
  Status removed = Remove(path);
  return removed.code() == Code::kNotFound ? OkStatus() : std::move(removed);
}

Status PosixFiles::MakeDirectories(const std::string& path) {
  HR_RETURN_IF_ERROR(CheckPath(path));
  Status made = MakeDirectory(path);
  if (made.code() != Code::kNotFound) return made;
  std::string parent(DirectoryName(path));
  if (parent == path || path.empty()) return made;
  HR_RETURN_IF_ERROR(MakeDirectories(parent));
  return MakeDirectory(path);
}

Status PosixFiles::SyncDirectory(const std::string& path) {
  HR_ASSIGN_OR_RETURN(Descriptor directory, OpenDescriptor(path, O_RDONLY | O_DIRECTORY, "sync"));
  int result;
  do {
    result = ::fsync(directory.get());
  } while (result != 0 && errno == EINTR);
  // Some network file systems cannot sync a directory and keep it in order themselves.
  if (result == 0 || errno == EINVAL || errno == ENOTSUP) return OkStatus();
  return PathError(errno, "sync", path);
}

Result<std::unique_ptr<FileLock>> PosixFiles::Lock(const std::string& path) {
  HR_ASSIGN_OR_RETURN(Descriptor file, OpenDescriptor(path, O_RDWR | O_CREAT, "lock"));
  int result;
  do {
    result = ::flock(file.get(), LOCK_EX | LOCK_NB);
  } while (result != 0 && errno == EINTR);
  if (result == 0) {
    // A holder may remove its lock file last of all: then this lock is on a file without a name,
    // and the next caller would lock another one.
    struct stat held, named;
    if (::fstat(file.get(), &held) != 0) return PathError(errno, "lock", path);
    bool same = ::stat(path.c_str(), &named) == 0 && named.st_ino == held.st_ino &&
                named.st_dev == held.st_dev;
    return same ? std::make_unique<PosixFileLock>(std::move(file)) : Lock(path);
  }
  if (errno != EWOULDBLOCK) return PathError(errno, "lock", path);
  return Error(Code::kFailedPrecondition,
               "{} is locked: another run works here; wait for it to end, or stop it",
               EscapeText(path));
}

}  // namespace headrace
