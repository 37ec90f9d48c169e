// The data files of a dataset's shards that are open now: at most a given number, and of those that
// are held in memory at most a given number of bytes; the least recently used one is closed first.
// A shard is opened once, however many threads want it. Thread-safe. Safe across fork(): a child
// starts with a table of its own, since another thread of the parent may have held the lock.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>

#include "headrace/base/status.h"
#include "headrace/env/file.h"

namespace headrace::dataset {

class ShardFiles {
 public:
  using File = std::shared_ptr<const RandomAccessFile>;
  struct Opened {
    std::unique_ptr<RandomAccessFile> file;
    uint64_t memory_bytes = 0;  // that it holds
  };
  using Opener = std::function<Result<Opened>(uint32_t shard)>;
  struct Limits {
    uint32_t open_files = 256;
    // One file may have more. A file that is dropped while it is read goes when that read ends.
    uint64_t memory_bytes = uint64_t{8} << 30;
  };

  ShardFiles(uint32_t num_shards, const Limits& limits, Opener open);
  ~ShardFiles();
  ShardFiles(const ShardFiles&) = delete;
  ShardFiles& operator=(const ShardFiles&) = delete;

  // The open file of a shard. Opens it when need be, outside the lock; who wants it meanwhile
  // waits. Fails as the opener does. When there are no more descriptors or memory, all others are
  // closed and the opener is asked once more.
  Result<File> Get(uint32_t shard);
  // Lets go of a shard's file, if it is still this one: the next Get opens it anew.
  void Forget(uint32_t shard, const File& file);
  // The same where it is open already; else null.
  File GetIfOpen(uint32_t shard);
  // Files open in this table now.
  uint32_t num_open();
  // Bytes that they hold in memory.
  uint64_t memory_bytes();

 private:
  struct Table;
  Table& Current();

  const uint32_t num_shards_;
  const Limits limits_;
  const Opener open_;
  std::atomic<Table*> table_;
};

}  // namespace headrace::dataset
