// A file system in memory that knows what a power cut loses. For tests only. Thread-safe.
//
// The model is the strictest that POSIX allows. Of a file's bytes only those survive that were
// there at its last Sync; truncating an existing file (Create) is durable at once, its new bytes
// are not. Of a directory's names only those survive that were there at its last SyncDirectory: a
// new file, a removal and each side of a rename need a sync of *their* directory. A rename inside
// one directory survives whole or not at all; one between two directories can lose the file when
// only the source was synced.
//
// A write boundary is a place where a power cut can part two changes: each Create (which makes or
// truncates), Append, WriteAt, Sync, Rename, Remove, SyncDirectory, each directory made, and the
// making of a lock or shared-words file. They are numbered from 1 on. WriteAtomically and
// RemoveTree pass several. A test of a storage path runs it once for each boundary:
//
//   for (uint64_t k = 1;; ++k) {
//     MemoryFileSystem files;
//     Prepare(files);
//     files.CutPowerAt(files.boundaries() + k);
//     (void)Publish(files);                    // fails from the cut on, as a dead machine does
//     bool finished = !files.power_is_off();
//     files.PowerOn();
//     ExpectOldOrNew(files);
//     if (finished) break;
//   }
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "headrace/base/mutex.h"
#include "headrace/env/file.h"

namespace headrace {

// What of the changes that were not synced is still there after the cut.
enum class Survival {
  kNothing,     // the worst case of the contract
  kEverything,  // as when only the process dies
  kSome,  // a draw: a prefix of each directory's changes, part of each file's new bytes, whose
          // end may read as zeros
};

class MemoryFileSystem final : public FileSystem {
 public:
  MemoryFileSystem();
  ~MemoryFileSystem() override;

  // How many write boundaries were passed since the start.
  uint64_t boundaries() const;
  // What the boundaries were, for a test's message: "1 create /a", "2 append /a 5"...
  std::vector<std::string> boundary_log() const;

  // Lets the power fail just before boundary `number` takes effect. `seed` is for kSome.
  void CutPowerAt(uint64_t number, Survival survival = Survival::kNothing, uint64_t seed = 0);
  // Lets the power fail now.
  void PowerCut(Survival survival = Survival::kNothing, uint64_t seed = 0);
  bool power_is_off() const;
  // Starts the machine again. Objects opened before the cut stay dead (kUnavailable); locks are
  // free.
  void PowerOn();

  // From a cut until PowerOn() every call fails with kUnavailable.
  Result<std::unique_ptr<RandomAccessFile>> OpenForRead(const std::string& path) override;
  Result<std::unique_ptr<MappedFile>> Map(const std::string& path) override;
  Result<std::unique_ptr<SharedWords>> OpenSharedWords(const std::string& path,
                                                       size_t words) override;
  Result<std::string> ReadWhole(const std::string& path, uint64_t limit_bytes) override;
  Result<size_t> ReadInto(const std::string& path, MutableBytes out) override;
  Result<std::unique_ptr<WritableFile>> Create(const std::string& path) override;
  Result<std::unique_ptr<WritableFile>> OpenForAppend(const std::string& path) override;
  Result<std::unique_ptr<SharedFile>> OpenShared(const std::string& path) override;
  Status WriteAtomically(const std::string& path, Bytes content) override;
  Result<std::unique_ptr<WritableFile>> CreateTemporary(const std::string& directory,
                                                        std::string* path) override;
  Status Rename(const std::string& from, const std::string& to) override;
  Status RenameIfAbsent(const std::string& from, const std::string& to) override;
  Status Remove(const std::string& path) override;
  Status RemoveTree(const std::string& path) override;
  Status MakeDirectories(const std::string& path) override;
  Status SyncDirectory(const std::string& path) override;
  Result<FileInfo> Stat(const std::string& path) override;
  Result<uint64_t> FreeBytes(const std::string& path) override;
  Result<std::vector<DirectoryEntry>> List(const std::string& path) override;
  Result<std::unique_ptr<FileLock>> Lock(const std::string& path) override;

 private:
  struct Node;
  struct Machine;
  class File;
  class Mapped;
  class Words;
  class Writer;
  class Shared;
  class Held;

  const std::shared_ptr<Machine> machine_;  // shared with the objects opened here
};

}  // namespace headrace
