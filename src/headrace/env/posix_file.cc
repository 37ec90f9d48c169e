#include <dirent.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <new>

#include "headrace/base/text.h"
#include "headrace/env/mapping_guard.h"
#include "headrace/env/posix_descriptor.h"
#include "headrace/env/posix_file_system.h"

namespace headrace {

namespace {

FileKind KindFromMode(mode_t mode) {
  if (S_ISREG(mode)) return FileKind::kRegular;
  if (S_ISDIR(mode)) return FileKind::kDirectory;
  return S_ISLNK(mode) ? FileKind::kSymlink : FileKind::kOther;
}

Status NotAFile(const std::string& path, FileKind kind) {
  std::string_view found =
      kind == FileKind::kDirectory ? "a directory" : "a pipe, socket or device";
  return Error(Code::kInvalidArgument, "cannot read {}: expected a file, found {}",
               EscapeText(path), found);
}

FileInfo InfoOf(const struct stat& stat) {
  FileInfo info;
  info.kind = KindFromMode(stat.st_mode);
  info.size_bytes = static_cast<uint64_t>(stat.st_size);
  info.mtime_ns = stat.st_mtim.tv_sec * int64_t{1'000'000'000} + stat.st_mtim.tv_nsec;
  info.device = stat.st_dev;
  info.inode = stat.st_ino;
  return info;
}

// Opens a regular file and tells what it is. Does not wait for the other end of a pipe.
Result<Descriptor> OpenRegular(const std::string& path, FileInfo* info, int flags = 0) {
  HR_ASSIGN_OR_RETURN(Descriptor file, OpenDescriptor(path, O_RDONLY | O_NONBLOCK | flags, "read"));
  struct stat stat;
  if (::fstat(file.get(), &stat) != 0) return PathError(errno, "read", path);
  *info = InfoOf(stat);
  if (info->kind != FileKind::kRegular) return NotAFile(path, info->kind);
  return file;
}

// Reads until `out` is full or the file ends. Returns how many bytes were read.
Result<size_t> ReadLoop(int fd, const std::string& path, MutableBytes out) {
  size_t done = 0;
  while (done < out.size()) {
    ssize_t n = ::read(fd, out.data() + done, out.size() - done);
    if (n == 0) break;
    if (n > 0) {
      done += static_cast<size_t>(n);
    } else if (errno == EISDIR) {
      return NotAFile(path, FileKind::kDirectory);
    } else if (errno != EINTR) {
      return PathError(errno, "read", path).At({path, done, {}, {}});
    }
  }
  return done;
}

class PosixRandomAccessFile final : public RandomAccessFile {
 public:
  static constexpr size_t kMaxParts = 8;  // of ReadResident
  PosixRandomAccessFile(std::string path, Descriptor file, const FileInfo& info,
                        bool direct = false)
      : path_(std::move(path)), file_(std::move(file)), info_(info), direct_(direct) {}

  Status ReadAt(uint64_t offset, MutableBytes out, const Context& ctx) const override {
    HR_ASSIGN_OR_RETURN(size_t done, ReadSome(offset, out, ctx));
    if (done == out.size()) return OkStatus();
    return Error(
               Code::kDataLoss,
               "the file ends at byte {}, expected {} bytes from byte {} on; it was cut short, or "
               "what points into it belongs to another file",
               done > 0 ? offset + done : std::min(offset, size()), out.size(), offset)
        .At({path_, offset, {}, {}});
  }

  Result<size_t> ReadSome(uint64_t offset, MutableBytes out, const Context& ctx) const override {
    return ReadByPosition(file_, path_, offset, out, ctx, direct_);
  }

  Result<size_t> ReadResident(uint64_t offset, std::span<const MutableBytes> parts) const override {
    if (parts.size() > kMaxParts || offset > kMaxOffset) return size_t{0};
    std::array<struct iovec, kMaxParts> vectors;
    for (size_t i = 0; i < parts.size(); ++i) vectors[i] = {parts[i].data(), parts[i].size()};
    ssize_t n = ::preadv2(file_.get(), vectors.data(), static_cast<int>(parts.size()),
                          static_cast<off_t>(offset), RWF_NOWAIT);
    if (n >= 0) return static_cast<size_t>(n);
    // Not in memory, or the file system or the kernel cannot tell.
    if (errno == EAGAIN || errno == EOPNOTSUPP || errno == ENOSYS || errno == EINVAL ||
        errno == EINTR)
      return size_t{0};
    return PathError(errno, "read", path_).At({path_, offset, {}, {}});
  }

  // A mapping that nobody touches costs no page and cannot fault.
  uint64_t ResidentBytes(uint64_t offset, uint64_t bytes) const override {
    static const auto page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
    if (offset >= size() || bytes == 0) return 0;
    uint64_t begin = offset / page * page, end = offset + std::min(bytes, size() - offset);
    size_t length = end - begin;
    void* start =
        ::mmap(nullptr, length, PROT_READ, MAP_SHARED, file_.get(), static_cast<off_t>(begin));
    if (start == MAP_FAILED) return 0;
    std::vector<unsigned char> pages((length + page - 1) / page);
    bool told = ::mincore(start, length, pages.data()) == 0;
    ::munmap(start, length);
    auto missing =
        std::find_if(pages.begin(), pages.end(), [](auto one) { return (one & 1) == 0; });
    uint64_t known = begin + static_cast<uint64_t>(missing - pages.begin()) * page;
    return told && known > offset ? std::min(known, end) - offset : 0;
  }

  int descriptor() const override { return file_.get(); }
  uint64_t size() const override { return info_.size_bytes; }
  FileInfo info() const override { return info_; }
  const std::string& path() const override { return path_; }

 private:
  const std::string path_;
  const Descriptor file_;
  const FileInfo info_;
  const bool direct_;
};

// Pages mapped into memory, unmapped when destroyed. They outlive their disk as zeros.
class Mapping {
 public:
  Mapping() = default;
  ~Mapping() {
    guard_.reset();
    if (bytes_ > 0) ::munmap(start_, bytes_);
  }
  Mapping(Mapping&& other) noexcept
      : path_(std::move(other.path_)),
        start_(std::exchange(other.start_, nullptr)),
        bytes_(std::exchange(other.bytes_, 0)),
        guard_(std::move(other.guard_)) {}
  Mapping& operator=(Mapping&&) = delete;

  static Result<Mapping> Of(const Descriptor& file, size_t bytes, int protection,
                            const std::string& path) {
    Mapping mapping;
    if (bytes == 0) return mapping;  // the kernel refuses to map nothing
    void* start = ::mmap(nullptr, bytes, protection, MAP_SHARED, file.get(), 0);
    if (start == MAP_FAILED) return PathError(errno, "map", path);
    mapping.path_ = path;
    mapping.start_ = start;
    mapping.bytes_ = bytes;
    mapping.guard_ = std::make_unique<GuardedRange>(start, bytes, protection);
    return mapping;
  }

  void* start() const { return start_; }
  size_t bytes() const { return bytes_; }
  Status Check() const {
    if (!guard_ || !guard_->failed()) return OkStatus();
    return Error(Code::kIoError,
                 "{} cannot be read any more: its disk has failed, its mount has gone, or the file "
                 "was cut; look at that, and open it again",
                 EscapeText(path_))
        .At({path_, {}, {}, {}});
  }

 private:
  std::string path_;
  void* start_ = nullptr;
  size_t bytes_ = 0;
  std::unique_ptr<GuardedRange> guard_;
};

class PosixMappedFile final : public MappedFile {
 public:
  explicit PosixMappedFile(Mapping mapping) : mapping_(std::move(mapping)) {}
  Bytes bytes() const override {
    return {static_cast<const std::byte*>(mapping_.start()), mapping_.bytes()};
  }
  Status Check() const override { return mapping_.Check(); }

 private:
  const Mapping mapping_;
};

class PosixSharedWords final : public SharedWords {
 public:
  PosixSharedWords(Mapping mapping, size_t words) : mapping_(std::move(mapping)), words_(words) {}
  size_t size() const override { return words_; }
  Status Check() const override { return mapping_.Check(); }
  uint64_t Load(size_t i) const override { return Word(i).load(std::memory_order_relaxed); }
  void Store(size_t i, uint64_t word) override { Word(i).store(word, std::memory_order_relaxed); }
  uint64_t Add(size_t i, uint64_t delta) override {
    return Word(i).fetch_add(delta, std::memory_order_relaxed) + delta;
  }

 private:
  std::atomic_ref<uint64_t> Word(size_t i) const {
    return std::atomic_ref<uint64_t>(static_cast<uint64_t*>(mapping_.start())[i]);
  }
  const Mapping mapping_;
  const size_t words_;
};

// Gives an empty file its size, with disk space behind each byte: a store into a hole on a full
// disk would end the process. Processes that arrive together wait for the first one's lock.
Status GiveSize(const Descriptor& file, size_t bytes, const std::string& path) {
  while (::flock(file.get(), LOCK_EX) != 0 && errno == EINTR) {
  }
  struct stat info;
  if (::fstat(file.get(), &info) != 0) return PathError(errno, "open", path);
  int error = 0;
  if (info.st_size == 0) {
    error = ::posix_fallocate(file.get(), 0, static_cast<off_t>(bytes));
    if (error != 0 && ::ftruncate(file.get(), 0) != 0) error = errno;
  } else if (static_cast<uint64_t>(info.st_size) != bytes) {
    return Error(Code::kFailedPrecondition,
                 "{} has {} bytes, expected {}: it belongs to another dataset; remove it",
                 EscapeText(path), info.st_size, bytes);
  }
  ::flock(file.get(), LOCK_UN);
  return error == 0 ? OkStatus() : PathError(error, "make", path);
}

FileKind KindOfEntry(int directory, const dirent& entry) {
  switch (entry.d_type) {
    case DT_REG:
      return FileKind::kRegular;
    case DT_DIR:
      return FileKind::kDirectory;
    case DT_LNK:
      return FileKind::kSymlink;
    case DT_UNKNOWN:
      break;  // this file system keeps no kinds in its directories
    default:
      return FileKind::kOther;
  }
  struct stat info;
  if (::fstatat(directory, entry.d_name, &info, AT_SYMLINK_NOFOLLOW) != 0) return FileKind::kOther;
  return KindFromMode(info.st_mode);
}

struct CloseDirectory {
  void operator()(DIR* directory) const { ::closedir(directory); }
};

}  // namespace

Result<std::unique_ptr<RandomAccessFile>> PosixFiles::OpenForRead(const std::string& path) {
  FileInfo info;
  HR_ASSIGN_OR_RETURN(Descriptor file, OpenRegular(path, &info));
  return std::make_unique<PosixRandomAccessFile>(path, std::move(file), info);
}

Result<std::unique_ptr<RandomAccessFile>> PosixFiles::OpenDirect(const std::string& path) {
  FileInfo info;
  auto file = OpenRegular(path, &info, O_DIRECT);
  // EINVAL: the file system has only the usual way (or the path is a directory's, as it says then).
  if (!file.ok() && file.status().code() == Code::kInvalidArgument) return OpenForRead(path);
  HR_RETURN_IF_ERROR(file.status());
  return std::make_unique<PosixRandomAccessFile>(path, *std::move(file), info, /*direct=*/true);
}

Result<std::unique_ptr<MappedFile>> PosixFiles::Map(const std::string& path) {
  FileInfo info;
  HR_ASSIGN_OR_RETURN(Descriptor file, OpenRegular(path, &info));
  HR_ASSIGN_OR_RETURN(Mapping mapping, Mapping::Of(file, info.size_bytes, PROT_READ, path));
  return std::make_unique<PosixMappedFile>(std::move(mapping));
}

Result<std::unique_ptr<SharedWords>> PosixFiles::OpenSharedWords(const std::string& path,
                                                                 size_t words) {
  if (words == 0 || words > kMaxOffset / sizeof(uint64_t))
    return Error(Code::kInvalidArgument, "cannot share {} words in {}: expected at least 1", words,
                 EscapeText(path));
  HR_ASSIGN_OR_RETURN(Descriptor file, OpenDescriptor(path, O_RDWR | O_CREAT, "open"));
  size_t bytes = words * sizeof(uint64_t);
  HR_RETURN_IF_ERROR(GiveSize(file, bytes, path));
  HR_ASSIGN_OR_RETURN(Mapping mapping, Mapping::Of(file, bytes, PROT_READ | PROT_WRITE, path));
  return std::make_unique<PosixSharedWords>(std::move(mapping), words);
}

Result<std::string> PosixFiles::ReadWhole(const std::string& path, uint64_t limit_bytes) {
  FileInfo info;
  HR_ASSIGN_OR_RETURN(Descriptor file, OpenRegular(path, &info));
  const uint64_t size_bytes = info.size_bytes;
  std::string content;
  try {
    // The size is a hint only: files under /proc say 0, and a file may grow while it is read.
    size_t want = std::max<uint64_t>(std::min(size_bytes, limit_bytes), 4095) + 1;
    for (size_t done = 0;; want *= 2) {
      content.resize(want);
      MutableBytes rest = std::as_writable_bytes(std::span(content)).subspan(done);
      HR_ASSIGN_OR_RETURN(size_t n, ReadLoop(file.get(), path, rest));
      done += n;
      if (done > limit_bytes)
        return Error(Code::kResourceExhausted,
                     "{} has {} bytes, expected at most {}: it is not the kind of file expected",
                     EscapeText(path), std::max<uint64_t>(size_bytes, done), limit_bytes);
      if (n == rest.size()) continue;
      content.resize(done);
      return content;
    }
  } catch (const std::bad_alloc&) {
    return PathError(ENOMEM, "read", path);
  }
}

Result<size_t> PosixFiles::ReadInto(const std::string& path, MutableBytes out) {
  HR_ASSIGN_OR_RETURN(Descriptor file, OpenDescriptor(path, O_RDONLY | O_NONBLOCK, "read"));
  return ReadLoop(file.get(), path, out);
}

Result<FileInfo> PosixFiles::Stat(const std::string& path) {
  HR_RETURN_IF_ERROR(CheckPath(path));
  struct stat info;
  if (::stat(path.c_str(), &info) != 0) return PathError(errno, "find", path);
  return InfoOf(info);
}

Result<uint64_t> PosixFiles::FreeBytes(const std::string& path) {
  HR_RETURN_IF_ERROR(CheckPath(path));
  struct statvfs info;
  if (::statvfs(path.c_str(), &info) != 0) return PathError(errno, "find", path);
  if ((info.f_flag & ST_RDONLY) != 0) return PathError(EROFS, "write to", path);
  // Some network and overlay file systems have nothing to tell and say 0 of 0.
  if (info.f_blocks == 0) return FileSystem::FreeBytes(path);
  return static_cast<uint64_t>(info.f_bavail) * info.f_frsize;
}

Result<std::vector<DirectoryEntry>> PosixFiles::List(const std::string& path) {
  HR_ASSIGN_OR_RETURN(Descriptor opened, OpenDescriptor(path, O_RDONLY | O_DIRECTORY, "list"));
  std::unique_ptr<DIR, CloseDirectory> directory(::fdopendir(opened.get()));
  if (!directory) return PathError(errno, "list", path);
  int fd = opened.Release();  // the DIR owns it now
  std::vector<DirectoryEntry> entries;
  while (true) {
    errno = 0;
    const dirent* entry = ::readdir(directory.get());
    if (!entry && errno != 0) return PathError(errno, "list", path);
    if (!entry) break;
    std::string_view name = entry->d_name;
    if (name != "." && name != "..")
      entries.push_back({std::string(name), KindOfEntry(fd, *entry)});
  }
  std::sort(entries.begin(), entries.end(),
            [](const DirectoryEntry& a, const DirectoryEntry& b) { return a.name < b.name; });
  return entries;
}

FileSystem* PosixFileSystem() {
  static auto* files = new PosixFiles;  // never destroyed: threads may use it at exit
  return files;
}

}  // namespace headrace
