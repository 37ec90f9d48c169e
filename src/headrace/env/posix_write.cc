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

// Makes a new file beside `path`. A name left by a killed process with the same number is passed
// over, never reused.
Result<std::unique_ptr<WritableFile>> CreateTemporary(const std::string& path, std::string* name) {
  static std::atomic<uint64_t> counter{0};
  constexpr int kAttempts = 1000;
  Status last;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    *name =
        JoinPath(DirectoryName(path), fmt::format("{}{}-{}", kTemporaryPrefix, ::getpid(),
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

Result<std::unique_ptr<WritableFile>> PosixFiles::OpenForAppend(const std::string& path) {
  HR_ASSIGN_OR_RETURN(Descriptor file,
                      OpenDescriptor(path, O_WRONLY | O_CREAT | O_APPEND, "append to"));
  return std::make_unique<PosixWritableFile>(path, std::move(file));
}

// 1. make a temporary file beside the target, 2. write and sync it, 3. rename it over the target,
// 4. sync the directory. A power cut before 3 is durable leaves the old content, after it the new.
Status PosixFiles::WriteAtomically(const std::string& path, Bytes content) {
  HR_RETURN_IF_ERROR(CheckPath(path));
  std::string temporary;
  Result<std::unique_ptr<WritableFile>> file = CreateTemporary(path, &temporary);
  if (!file.ok()) return std::move(file).status().Prefix("replacing " + EscapeText(path));
  Status status = FillAndRename(**file, temporary, path, content);
  if (!status.ok()) {
    ::unlink(temporary.c_str());
    return std::move(status).Prefix("replacing " + EscapeText(path));
  }
  HR_RETURN_IF_ERROR(FaultPoint("env.write_atomically.before_directory_sync"));
  return SyncDirectory(std::string(DirectoryName(path)));
}

Status PosixFiles::Rename(const std::string& from, const std::string& to) {
  HR_RETURN_IF_ERROR(CheckPath(from));
  HR_RETURN_IF_ERROR(CheckPath(to));
  if (::rename(from.c_str(), to.c_str()) == 0) return OkStatus();
  return PathError(errno, "rename", fmt::format("{} to {}", from, to));
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
