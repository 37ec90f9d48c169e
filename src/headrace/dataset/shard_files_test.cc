#include "headrace/dataset/shard_files.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "headrace/base/mutex.h"

namespace headrace::dataset {
namespace {

class NamedFile : public RandomAccessFile {
 public:
  explicit NamedFile(uint32_t shard) : path_(std::to_string(shard)) {}
  Status ReadAt(uint64_t, MutableBytes, const Context&) const override { return OkStatus(); }
  Result<size_t> ReadSome(uint64_t, MutableBytes, const Context&) const override {
    return size_t{0};
  }
  uint64_t size() const override { return 0; }
  const std::string& path() const override { return path_; }

 private:
  std::string path_;
};

// Opens files of a given weight each, and counts.
struct Opener {
  uint64_t memory_bytes = 0;
  std::vector<int> opened = std::vector<int>(10);
  ShardFiles::Opener function() {
    return [this](uint32_t shard) -> Result<ShardFiles::Opened> {
      ++opened[shard];
      return ShardFiles::Opened{std::make_unique<NamedFile>(shard), memory_bytes};
    };
  }
};

void Use(ShardFiles* files, std::initializer_list<uint32_t> shards) {
  for (uint32_t shard : shards) {
    auto file = files->Get(shard);
    ASSERT_TRUE(file.ok());
    EXPECT_EQ((*file)->path(), std::to_string(shard));
  }
}

TEST(ShardFiles, TheLeastRecentlyUsedFileGoesFirst) {
  Opener opener;
  ShardFiles files(10, {.open_files = 3, .memory_bytes = 0}, opener.function());
  Use(&files, {0, 1, 2, 0, 3, 0, 2, 1});
  EXPECT_EQ(files.num_open(), 3u);
  EXPECT_EQ(opener.opened[0], 1);
  EXPECT_EQ(opener.opened[1], 2);
  EXPECT_EQ(opener.opened[2], 1);
  EXPECT_EQ(opener.opened[3], 1);
}

TEST(ShardFiles, MemoryIsBoundedByTheLeastRecentlyUsedToo) {
  Opener opener;
  opener.memory_bytes = 100;
  ShardFiles files(10, {.open_files = 10, .memory_bytes = 250}, opener.function());
  Use(&files, {0, 1});
  EXPECT_EQ(files.memory_bytes(), 200u);
  Use(&files, {0, 2});  // 1 goes
  EXPECT_EQ(files.memory_bytes(), 200u);
  Use(&files, {0, 2, 1});  // 0 goes
  EXPECT_EQ(opener.opened[0], 1);
  EXPECT_EQ(opener.opened[1], 2);
  Use(&files, {0});
  EXPECT_EQ(opener.opened[0], 2);
  for (int round = 0; round < 3; ++round) Use(&files, {3, 4, 5, 6, 7, 8, 9});
  EXPECT_EQ(files.num_open(), 2u);
  EXPECT_EQ(files.memory_bytes(), 200u);
}

TEST(ShardFiles, OneFileIsHeldWhateverItsSize) {
  Opener opener;
  opener.memory_bytes = 1000;
  ShardFiles files(10, {.open_files = 10, .memory_bytes = 1}, opener.function());
  Use(&files, {0, 0, 1, 1, 0});
  EXPECT_EQ(files.num_open(), 1u);
  EXPECT_EQ(opener.opened[0], 2);
  EXPECT_EQ(opener.opened[1], 1);
}

TEST(ShardFiles, AFileIsOpenedOnceHoweverManyThreadsWantIt) {
  std::atomic<int> opened{0};
  Mutex mu;
  mu.Lock();  // the first to open waits here until all threads have had time to ask
  ShardFiles files(1, {}, [&](uint32_t shard) -> Result<ShardFiles::Opened> {
    ++opened;
    MutexLock lock(&mu);
    return ShardFiles::Opened{std::make_unique<NamedFile>(shard), 1};
  });
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) threads.emplace_back([&] { EXPECT_TRUE(files.Get(0).ok()); });
  while (opened == 0) std::this_thread::yield();
  mu.Unlock();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(opened, 1);
}

TEST(ShardFiles, AFailureIsOfWhoAskedAndTheNextOneTriesAgain) {
  int calls = 0;
  ShardFiles files(1, {}, [&](uint32_t shard) -> Result<ShardFiles::Opened> {
    if (calls++ == 0) return Status(Code::kNotFound, "not yet");
    return ShardFiles::Opened{std::make_unique<NamedFile>(shard), 0};
  });
  EXPECT_EQ(files.Get(0).status().code(), Code::kNotFound);
  EXPECT_TRUE(files.Get(0).ok());
}

TEST(ShardFiles, WithoutDescriptorsOrMemoryAllOthersAreClosed) {
  ShardFiles* self = nullptr;
  ShardFiles files(3, {}, [&](uint32_t shard) -> Result<ShardFiles::Opened> {
    if (shard == 2 && self->num_open() > 0) return Status(Code::kResourceExhausted, "too many");
    return ShardFiles::Opened{std::make_unique<NamedFile>(shard), 5};
  });
  self = &files;
  Use(&files, {0, 1, 2, 0});
  EXPECT_EQ(files.num_open(), 2u);
  EXPECT_EQ(files.memory_bytes(), 10u);
}

}  // namespace
}  // namespace headrace::dataset
