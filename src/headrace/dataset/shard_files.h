// The data files of a dataset's shards that are open now: at most a given number, the least
// recently used one is closed first. Thread-safe. Safe across fork(): a child starts with a table
// of its own, since another thread of the parent may have held the lock.
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
  using Opener = std::function<Result<std::unique_ptr<RandomAccessFile>>(uint32_t shard)>;

  ShardFiles(uint32_t num_shards, uint32_t max_open_files, Opener open);
  ~ShardFiles();
  ShardFiles(const ShardFiles&) = delete;
  ShardFiles& operator=(const ShardFiles&) = delete;

  // The open file of a shard. Opens it when need be, outside the lock; fails as the opener does.
  // When there are no more descriptors, all others are closed and the opener is asked once more.
  Result<File> Get(uint32_t shard);
  // Files open in this table now.
  uint32_t num_open();

 private:
  struct Table;
  Table& Current();

  const uint32_t num_shards_, max_open_files_;
  const Opener open_;
  std::atomic<Table*> table_;
};

}  // namespace headrace::dataset
