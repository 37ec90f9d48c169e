// The files of a DirStore that are kept open, so that a read needs no look at their names: at most
// a given number, the least recently used goes first. Internal to object/dir. Thread-safe.
//
// A kept file is the version that was opened, whatever has its name now: who wants that version may
// read it. Whether the name still stands for it is asked again when the last look was longer ago
// than `believed`.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <unordered_map>

#include "headrace/base/mutex.h"
#include "headrace/env/file.h"

namespace headrace::object {

class DirHandles {
 public:
  using File = std::shared_ptr<const RandomAccessFile>;
  using Clock = std::chrono::steady_clock;

  DirHandles(size_t max_open, std::chrono::nanoseconds believed)
      : max_open_(max_open), believed_(believed) {}

  struct Found {
    File file;              // null: none is kept
    bool believed = false;  // its name was looked at lately
  };
  Found Find(const std::string& path);
  // The number to give to Keep, taken before the file was opened.
  uint64_t Turn() const;
  // Keeps a file that was opened now, unless a name was forgotten since `turn`: it may be the one.
  void Keep(const std::string& path, File file, uint64_t turn);
  // The name was looked at now, and stands for `file`.
  void Confirm(const std::string& path, const File& file);
  // The name stands for something else, or the file can no longer be read.
  void Forget(const std::string& path);
  size_t num_open() const;

 private:
  struct Entry {
    std::string path;
    File file;
    Clock::time_point looked;
  };
  using Entries = std::list<Entry>;

  const size_t max_open_;
  const std::chrono::nanoseconds believed_;
  mutable Mutex mu_;  // leaf; no I/O under it
  uint64_t turn_ HR_GUARDED_BY(mu_) = 0;
  Entries entries_ HR_GUARDED_BY(mu_);  // in order of use, the last used first
  std::unordered_map<std::string, Entries::iterator> by_path_ HR_GUARDED_BY(mu_);
};

}  // namespace headrace::object
