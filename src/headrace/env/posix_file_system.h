// The operating system's file system behind FileSystem. Internal to env: others call
// PosixFileSystem(). Holds no state, so it is thread-safe and works in forked children.
// Reading, listing and mapping are in posix_file.cc; what changes the disk is in posix_write.cc.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "headrace/env/file.h"

namespace headrace {

class PosixFiles final : public FileSystem {
 public:
  Result<std::unique_ptr<RandomAccessFile>> OpenForRead(const std::string& path) override;
  Result<std::unique_ptr<RandomAccessFile>> OpenDirect(const std::string& path) override;
  Result<std::unique_ptr<MappedFile>> Map(const std::string& path) override;
  Result<std::unique_ptr<SharedWords>> OpenSharedWords(const std::string& path,
                                                       size_t words) override;
  Result<std::string> ReadWhole(const std::string& path, uint64_t limit_bytes) override;
  Result<size_t> ReadInto(const std::string& path, MutableBytes out) override;
  Result<FileInfo> Stat(const std::string& path) override;
  Result<uint64_t> FreeBytes(const std::string& path) override;
  Result<std::vector<DirectoryEntry>> List(const std::string& path) override;

  Result<std::unique_ptr<WritableFile>> Create(const std::string& path) override;
  Result<std::unique_ptr<WritableFile>> CreateDirect(const std::string& path) override;
  Status WriteDirect(const std::string& path, std::span<const Bytes> parts) override;
  Result<std::unique_ptr<WritableFile>> OpenForAppend(const std::string& path) override;
  Result<std::unique_ptr<SharedFile>> OpenShared(const std::string& path) override;
  Status WriteAtomically(const std::string& path, Bytes content) override;
  Result<std::unique_ptr<WritableFile>> CreateTemporary(const std::string& directory,
                                                        std::string* path) override;
  Status Rename(const std::string& from, const std::string& to) override;
  Status RenameIfAbsent(const std::string& from, const std::string& to) override;
  Status Link(const std::string& from, const std::string& to) override;
  Status Remove(const std::string& path) override;
  Status RemoveTree(const std::string& path) override;
  Status MakeDirectories(const std::string& path) override;
  Status SyncDirectory(const std::string& path) override;
  Result<std::unique_ptr<FileLock>> Lock(const std::string& path) override;
};

}  // namespace headrace
