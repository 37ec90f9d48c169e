// A file system around another one that fails when a test says so. With nothing set it behaves as
// the other one does. For tests only. Thread-safe.
//
//   FaultyFileSystem files(PosixFileSystem());
//   files.FailNth(FileOperation::kAppend, 3, Error(Code::kIoError, "the disk is broken"));
//   files.LimitBytes(1000);        // the disk is full after 1,000 more bytes
//   files.EndFilesAt(".tar", 512); // tars read as if they were cut short
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "headrace/env/file.h"

namespace headrace {

enum class FileOperation : uint8_t {
  kOpenForRead,
  kRead,
  kMap,
  kOpenSharedWords,
  kReadWhole,
  kReadInto,
  kStat,
  kList,
  kCreate,
  kAppend,
  kSync,
  kClose,
  kWriteAtomically,
  kRename,
  kRemove,
  kRemoveTree,
  kMakeDirectories,
  kSyncDirectory,
  kLock,
  kOpenForAppend,
  kFreeBytes,
};
inline constexpr size_t kNumFileOperations = 21;
// "open for read" for kOpenForRead, and so on.
std::string_view FileOperationName(FileOperation operation);

class FaultyFileSystem : public FileSystem {
 public:
  // `base` is not owned and must outlive this and all objects opened here.
  explicit FaultyFileSystem(FileSystem* base);
  ~FaultyFileSystem() override;

  // Lets the `nth` call of `operation` from now on (1 = the next) return `status` without being
  // done, and the `times` - 1 calls after it too. kRead stands for ReadAt and ReadSome, kAppend for
  // Append and WriteAt, kOpenForAppend for OpenShared too, kCreate for CreateDirect and
  // CreateTemporary, kRename for RenameIfAbsent too. WriteAtomically is one operation of its own.
  void FailNth(FileOperation operation, uint64_t nth, Status status, uint64_t times = 1);
  // Lets the `nth` rename or removal be done and return `status`, as when a server's answer was
  // lost and the system asked again. For kRename and kRemove.
  void LoseNth(FileOperation operation, uint64_t nth, Status status);
  // Lets the disk be full after `bytes` more: an Append writes what still fits and fails with
  // kResourceExhausted, a WriteAtomically fails whole. FreeBytes tells what is left.
  void LimitBytes(uint64_t bytes);
  // Lets files whose path ends in `suffix` read as if they ended at byte `size_bytes`, as a file
  // does that was cut short after it was measured: size() and Stat() say the old size.
  void EndFilesAt(std::string suffix, uint64_t size_bytes);
  // Flips the lowest bit of byte `offset` in whatever is read from files whose path ends in
  // `suffix`. Mapped files too.
  void FlipBit(std::string suffix, uint64_t offset);
  // Takes all of this back, and forgets the counts.
  void Heal();
  // How often `operation` was asked for, failures included.
  uint64_t count(FileOperation operation) const;

  Result<std::unique_ptr<RandomAccessFile>> OpenForRead(const std::string& path) override;
  Result<std::unique_ptr<MappedFile>> Map(const std::string& path) override;
  Result<std::unique_ptr<SharedWords>> OpenSharedWords(const std::string& path,
                                                       size_t words) override;
  Result<std::string> ReadWhole(const std::string& path, uint64_t limit_bytes) override;
  Result<size_t> ReadInto(const std::string& path, MutableBytes out) override;
  Result<std::unique_ptr<WritableFile>> Create(const std::string& path) override;
  Result<std::unique_ptr<WritableFile>> CreateDirect(const std::string& path) override;
  Result<std::unique_ptr<WritableFile>> OpenForAppend(const std::string& path) override;
  Result<std::unique_ptr<SharedFile>> OpenShared(const std::string& path) override;
  Status WriteAtomically(const std::string& path, Bytes content) override;
  Result<std::unique_ptr<WritableFile>> CreateTemporary(const std::string& directory,
                                                        std::string* path) override;
  Status Rename(const std::string& from, const std::string& to) override;
  Status RenameIfAbsent(const std::string& from, const std::string& to) override;
  Status Link(const std::string& from, const std::string& to) override {
    return base_->Link(from, to);
  }
  Status Remove(const std::string& path) override;
  Status RemoveTree(const std::string& path) override;
  Status MakeDirectories(const std::string& path) override;
  Status SyncDirectory(const std::string& path) override;
  Result<FileInfo> Stat(const std::string& path) override;
  Result<uint64_t> FreeBytes(const std::string& path) override;
  Result<std::vector<DirectoryEntry>> List(const std::string& path) override;
  Result<std::unique_ptr<FileLock>> Lock(const std::string& path) override;

 private:
  class Faults;
  class Reader;
  class Mapped;
  class Writer;
  class Shared;

  FileSystem* const base_;
  const std::shared_ptr<Faults> faults_;  // shared with the files opened here
};

}  // namespace headrace
