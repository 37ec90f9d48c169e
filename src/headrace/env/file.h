// The only door to files. A FileSystem opens, makes, renames and removes files; PosixFileSystem()
// is the real one, env/testing/ has doubles (in memory with power cut, and faulty).
// All objects here are thread-safe unless they say otherwise. Paths are bytes, as the kernel sees
// them; one with a NUL is kInvalidArgument. Every failure names the path. No descriptor made here
// survives an exec.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/bytes.h"
#include "headrace/base/context.h"
#include "headrace/base/status.h"

namespace headrace {

enum class FileKind : uint8_t { kRegular, kDirectory, kSymlink, kOther };

struct FileInfo {
  FileKind kind = FileKind::kRegular;
  uint64_t size_bytes = 0;
  int64_t mtime_ns = 0;  // since 1970
  uint64_t device = 0, inode = 0;
};

struct DirectoryEntry {
  std::string name;  // one path part, any bytes but '/' and NUL
  FileKind kind = FileKind::kRegular;
  std::optional<FileInfo> info = {};  // where the listing tells it: a bucket's does, of objects
};

// An open file that is read by position. Any number of threads may read at once.
class RandomAccessFile {
 public:
  virtual ~RandomAccessFile() = default;
  // Fills all of `out` from `offset`.
  //   kDataLoss  the file ends before offset + out.size(): names the file's size and the range.
  //   kIoError   the operating system's fault.
  virtual Status ReadAt(uint64_t offset, MutableBytes out, const Context& ctx) const = 0;
  // Reads up to out.size() bytes; fewer only at the end of the file. Returns how many.
  virtual Result<size_t> ReadSome(uint64_t offset, MutableBytes out, const Context& ctx) const = 0;
  // Fills `parts`, one after the other, from `offset` with what the system holds in memory, and
  // never waits for a disk; the system may begin to read what is missing. Returns how many bytes
  // came; 0 also where the system cannot tell.
  virtual Result<size_t> ReadResident(uint64_t /*offset*/,
                                      std::span<const MutableBytes> /*parts*/) const {
    return size_t{0};
  }
  // How many of the bytes from `offset` on the system holds in memory without a gap. Reads nothing.
  // 0 also where the system cannot tell.
  virtual uint64_t ResidentBytes(uint64_t /*offset*/, uint64_t /*bytes*/) const { return 0; }
  // For env itself (async_read.h): the open descriptor; -1 where there is none.
  virtual int descriptor() const { return -1; }
  // What was read from here does not match a checksum of the reader's: whoever remembers it on the
  // way (a cache) forgets it, so that the next read asks the source.
  virtual void Distrust(uint64_t /*offset*/, uint64_t /*bytes*/) const {}
  // Says that ReadAt will soon ask for this range or for parts of it. A hint, which returns at
  // once; most files do nothing about it.
  virtual void WillRead(uint64_t /*offset*/, uint64_t /*length*/, const Context&) const {}
  // The size when the file was opened, in bytes.
  virtual uint64_t size() const = 0;
  // What was opened, as Stat() told it then: of this file, whatever has its name now.
  virtual FileInfo info() const {
    FileInfo info;
    info.size_bytes = size();
    return info;
  }
  virtual const std::string& path() const = 0;
};

// A file mapped for reading. The bytes stay valid until this is destroyed. Only for files that are
// never changed once published (an index). Bytes that cannot be read any more, since the disk has
// failed, the mount has gone or the file was cut, are zeros, and Check says so from then on: to be
// asked after the bytes were used.
class MappedFile {
 public:
  virtual ~MappedFile() = default;
  virtual Bytes bytes() const = 0;
  // kIoError: what was read from bytes() since the last OK may be wrong. Cheap.
  virtual Status Check() const { return OkStatus(); }
};

// A shared array of 64-bit words in a file, mapped for reading and writing by several processes.
class SharedWords {
 public:
  virtual ~SharedWords() = default;
  // kIoError: the file cannot be read any more; all words were 0 then, and are no longer shared.
  // Open it again. Cheap.
  virtual Status Check() const { return OkStatus(); }
  virtual size_t size() const = 0;                  // words
  virtual uint64_t Load(size_t i) const = 0;        // i < size()
  virtual void Store(size_t i, uint64_t word) = 0;  // atomic; reaches the disk some time later
  // Adds `delta`, which may be the complement of what is to be taken away, in one atomic step.
  // Returns the new value.
  virtual uint64_t Add(size_t i, uint64_t delta) = 0;
};

// A file that several threads and processes read and write at once by position, each its own parts.
class SharedFile {
 public:
  virtual ~SharedFile() = default;
  // Reads up to out.size() bytes of what is in the file now, whoever wrote it; fewer only at its
  // end. Returns how many.
  virtual Result<size_t> ReadSome(uint64_t offset, MutableBytes out) const = 0;
  // Writes all of `data` at `offset`. What lies between the old end and `offset` reads as zeros.
  // Not synced. kResourceExhausted when the disk or a quota is full; part of `data` may then be in
  // the file.
  virtual Status WriteAt(uint64_t offset, Bytes data) = 0;
};

// A file being written from its start. One thread at a time. Destroying it without Close() closes
// it and ignores errors.
class WritableFile {
 public:
  virtual ~WritableFile() = default;
  // Appends all of `data`. kResourceExhausted when the disk or a quota is full; part of `data` may
  // then be in the file.
  virtual Status Append(Bytes data) = 0;
  // Makes everything appended so far durable (the bytes, not the file's entry in its directory).
  // A failed Append or Sync makes each later call fail too: what is on the disk is then unknown.
  virtual Status Sync() = 0;
  // Closing twice is OK; appending after it is kFailedPrecondition.
  virtual Status Close() = 0;
  virtual uint64_t size() const = 0;  // bytes appended
};

// A lock held on a file until destroyed (by the process that took it: a forked child's copy holds
// nothing); the kernel drops it when the process dies, or rather when its last forked child that
// still has the descriptor does. The (empty) file stays.
class FileLock {
 public:
  virtual ~FileLock() = default;
};

// How the name of a temporary file begins that WriteAtomically makes.
inline constexpr std::string_view kTemporaryPrefix = ".headrace-tmp-";

// What offsets, lengths and memory of reads and writes around the page cache are multiples of.
inline constexpr size_t kDirectAlignment = 4096;

class FileSystem {
 public:
  virtual ~FileSystem() = default;

  // kNotFound, kPermissionDenied, kResourceExhausted (too many open files: says so), and
  // kInvalidArgument when `path` is a directory.
  // Also kInvalidArgument for pipes, sockets and devices.
  virtual Result<std::unique_ptr<RandomAccessFile>> OpenForRead(const std::string& path) = 0;
  // As OpenForRead, for large reads that go around the page cache where the file system can do
  // that: of kDirectAlignment, but for what is cut off by the file's end.
  virtual Result<std::unique_ptr<RandomAccessFile>> OpenDirect(const std::string& path) {
    return OpenForRead(path);
  }
  virtual Result<std::unique_ptr<MappedFile>> Map(const std::string& path) = 0;
  // Opens or makes a file of exactly `words` zero-initialised words. kPermissionDenied when the
  // place cannot be written; kFailedPrecondition when the file has another size.
  virtual Result<std::unique_ptr<SharedWords>> OpenSharedWords(const std::string& path,
                                                               size_t words) = 0;
  // Reads a whole small file (at most `limit_bytes`; kResourceExhausted beyond).
  virtual Result<std::string> ReadWhole(const std::string& path, uint64_t limit_bytes) = 0;
  // Reads a whole file into `out` from its start; returns how many bytes were read. Reads at most
  // out.size() bytes: a result equal to out.size() means there may be more. One open, no stat.
  virtual Result<size_t> ReadInto(const std::string& path, MutableBytes out) = 0;

  // Makes a new file; an existing one is truncated.
  virtual Result<std::unique_ptr<WritableFile>> Create(const std::string& path) = 0;
  // As Create, for a large file that is synced and not read again soon: its bytes go around the
  // page cache where the system can do that. Append may take a copy (up to 6 MiB) that a thread
  // of the file's own writes while the caller goes on; a fault of the disk is then told by a later
  // Append, Sync or Close. Only what was appended before a Sync or Close that succeeded is in the
  // file: destroying it earlier drops the rest.
  virtual Result<std::unique_ptr<WritableFile>> CreateDirect(const std::string& path) {
    return Create(path);
  }
  // As Create, Append of each part and Close. Parts that begin at multiples of kDirectAlignment in
  // memory and in the file go around the page cache where the system can do that, without a copy.
  virtual Status WriteDirect(const std::string& path, std::span<const Bytes> parts);
  // Opens a log: makes the file when it is missing; each Append goes to the end, in one write
  // unless the disk is filling up, so that several processes can append lines. size() counts what
  // this object appended.
  virtual Result<std::unique_ptr<WritableFile>> OpenForAppend(const std::string& path) = 0;
  // Opens a file for reading and writing by position, and makes it when it is missing.
  // kUnimplemented where files are not written in place.
  virtual Result<std::unique_ptr<SharedFile>> OpenShared(const std::string& path) {
    return Error(Code::kUnimplemented, "{} cannot be written in place", path);
  }
  // Replaces `path` with `content` in one atomic step that survives a power cut once it returns:
  // writes a temporary file beside it, syncs it, renames it, syncs the directory. On failure the
  // temporary file is removed and `path` is as it was, unless only the last sync failed. A process
  // killed in the middle leaves a file whose name begins with kTemporaryPrefix.
  virtual Status WriteAtomically(const std::string& path, Bytes content) = 0;
  // Makes a new file in `directory` whose name begins with kTemporaryPrefix, and puts its path into
  // `path`. No other process has the name, on this machine or on one that shares the directory.
  virtual Result<std::unique_ptr<WritableFile>> CreateTemporary(const std::string& directory,
                                                                std::string* path) = 0;
  // Replaces the file or empty directory `to`. Atomic; survives a power cut only once the
  // directories of both are synced.
  virtual Status Rename(const std::string& from, const std::string& to) = 0;
  // Renames the file `from` where nothing has the name `to`: of several callers one succeeds, the
  // others get kAlreadyExists and keep their `from`. kUnimplemented where the file system has
  // neither such a rename nor hard links.
  virtual Status RenameIfAbsent(const std::string& from, const std::string& to) = 0;
  // Gives the file `from` a second name where nothing has the name `to` (else kAlreadyExists). On a
  // network file system its server decides: kNotFound or kUnavailable where this machine only
  // remembers that `from` was there. kUnimplemented where there are no hard links.
  virtual Status Link(const std::string& from, const std::string& to) {
    return Error(Code::kUnimplemented, "{} cannot get a second name, {}", from, to);
  }
  // Removes a file, a symbolic link or an empty directory. kAlreadyExists when it is not empty.
  virtual Status Remove(const std::string& path) = 0;
  // Removes `path` and all below it; OK when nothing is there. Does not follow symbolic links.
  virtual Status RemoveTree(const std::string& path) = 0;
  // Makes a directory and its parents; OK when it is there. kAlreadyExists when a part of `path`
  // is a file.
  virtual Status MakeDirectories(const std::string& path) = 0;
  // Makes the entries of a directory durable: names made, renamed and removed in it.
  virtual Status SyncDirectory(const std::string& path) = 0;
  // Follows symbolic links. kNotFound when nothing is there.
  virtual Result<FileInfo> Stat(const std::string& path) = 0;
  // Entries without "." and "..", sorted by bytes. Symbolic links are reported as kSymlink.
  virtual Result<std::vector<DirectoryEntry>> List(const std::string& path) = 0;
  // Takes an exclusive lock without waiting; makes the file when need be. kFailedPrecondition when
  // another holder, in this process or another one, has it.
  virtual Result<std::unique_ptr<FileLock>> Lock(const std::string& path) = 0;
  // Bytes that this process may still write to the file system of `path`. kPermissionDenied where
  // that can only be read; kUnavailable when the file system does not tell, which says nothing
  // about its being full.
  virtual Result<uint64_t> FreeBytes(const std::string& path) {
    return Error(Code::kUnavailable, "the file system of {} does not tell its free space", path);
  }

  bool Exists(const std::string& path) { return Stat(path).ok(); }
};

// The operating system's file system. Lives for ever.
FileSystem* PosixFileSystem();

// The functions below know two kinds of paths: of files, and URLs such as "s3://bucket/a", whose
// root is "s3://bucket" as '/' is that of the others.

// True for "SCHEME://...".
bool IsUrl(std::string_view path);
// "s3://bucket/a" -> "s3://bucket"; "" for what is no URL.
std::string_view UrlRoot(std::string_view path);
// True for a path from the root, and for a URL.
bool IsAbsolutePath(std::string_view path);
// Joins two path parts with one '/'; an absolute `name` is not special, an empty part adds nothing.
std::string JoinPath(std::string_view directory, std::string_view name);
// "a/b/c" -> "c"; "a/b/" -> "b"; "/" -> "/"; "" -> "".
std::string_view BaseName(std::string_view path);
// "a/b/c" -> "a/b"; "a/b/" -> "a"; "/a" -> "/"; "c" -> "."; "/" -> "/"; "s3://b/a" -> "s3://b"
// -> "s3://b".
std::string_view DirectoryName(std::string_view path);

}  // namespace headrace
