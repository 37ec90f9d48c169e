// Reads of block files from memory and from the disk, by each driver, with and without the page
// cache.
#include "headrace/cache/block_reader.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <string>
#include <tuple>
#include <vector>

#include "headrace/base/keyed_random.h"
#include "headrace/cache/node_cache.h"
#include "headrace/cache/testing/counting_origin.h"
#include "headrace/env/testing/temporary_directory.h"

namespace headrace::cache {
namespace {

using Driver = AsyncReader::Driver;

constexpr uint32_t kBlock = 20 * kPageBytes;  // three pieces
const ObjectVersion kVersion{"test://origin", "key", "v1", 50 * uint64_t{kBlock} - 70'001};

MutableBytes Writable(std::string* text) { return std::as_writable_bytes(std::span(*text)); }

BlockId Id(uint64_t number) {
  return BlockOf(IdentifyObject(kVersion, kBlock), kVersion.size_bytes, kBlock, number);
}

// Forgets what the system holds of a file in memory, where it can.
void MakeCold(const std::string& path) {
  int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_GE(fd, 0);
  ::fsync(fd);
  ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
  ::close(fd);
}

class BlockReaderTest : public ::testing::TestWithParam<std::tuple<Driver, DirectReads>> {
 protected:
  void SetUp() override {
    options_.io.driver = std::get<0>(GetParam());
    options_.direct_reads = std::get<1>(GetParam());
    options_.directory = directory_ / "cache";
    options_.limit_bytes = uint64_t{1} << 30;
    options_.free_floor_bytes = 1;
    if (AsyncReader::Create(options_.io).status().code() == Code::kUnimplemented)
      GTEST_SKIP() << "no io_uring here";
    Reopen();
    for (uint64_t number : {0, 7, 49}) ASSERT_NO_FATAL_FAILURE(Admit(number));
  }
  void Reopen() {
    cache_.reset();
    auto cache = NodeCache::Open(PosixFileSystem(), options_, Context());
    ASSERT_TRUE(cache.ok()) << cache.status().ToString();
    cache_ = *std::move(cache);
  }
  void Admit(uint64_t number) {
    auto claim = cache_->ClaimBlock(Id(number));
    ASSERT_TRUE(claim.ok());
    std::string data = Content(Id(number), 0, Id(number).length);
    ASSERT_TRUE((*claim)->Admit(kVersion, kBlock, AsBytes(data), {}).ok());
  }
  static std::string Content(const BlockId& id, uint64_t offset, uint64_t length) {
    return CountingOrigin::Content("key", 1, id.number * kBlock + offset, length);
  }
  std::string PathOf(uint64_t number) const {
    return cache_->paths().Block(Id(number), BlockFileKind::kBlock);
  }
  void MakeAllCold() {
    for (uint64_t number : {0, 7, 49}) ASSERT_NO_FATAL_FAILURE(MakeCold(PathOf(number)));
  }
  Status ReadAll(uint64_t number) {
    std::string out(Id(number).length, '\0');
    Status status = cache_->Read(Id(number), 0, Writable(&out), Context());
    if (status.ok()) {
      EXPECT_TRUE(out == Content(Id(number), 0, out.size()));
    }
    return status;
  }

  TemporaryDirectory directory_;
  NodeCacheOptions options_;
  std::unique_ptr<NodeCache> cache_;
};

TEST_P(BlockReaderTest, AnyRangeColdAndWarm) {
  KeyedRandom random(5);
  for (int i = 0; i < 60; ++i) {
    if (i % 4 == 0) {
      ASSERT_NO_FATAL_FAILURE(MakeAllCold());
    }
    BlockId id = Id(std::vector<uint64_t>{0, 7, 49}[random.NextBelow(3)]);
    auto offset = static_cast<uint32_t>(random.NextBelow(id.length));
    uint64_t longest = i % 2 ? 100'000 : id.length;
    uint64_t length = random.NextBelow(std::min<uint64_t>(id.length - offset, longest)) + 1;
    std::string out(length, '\0');
    Status status = cache_->Read(id, offset, Writable(&out), Context());
    ASSERT_TRUE(status.ok()) << status.ToString();
    ASSERT_TRUE(out == Content(id, offset, length)) << offset << " " << length;
  }
}

TEST_P(BlockReaderTest, ManyAtOnceTakeTurnsForMemory) {
  ASSERT_NO_FATAL_FAILURE(MakeAllCold());
  constexpr int kReads = 60;  // more pieces than may be read at once
  std::vector<std::string> out(kReads);
  std::atomic<int> pending{kReads}, failed{0};
  for (int i = 0; i < kReads; ++i) {
    BlockId id = Id(i % 2 ? 7 : 49);
    out[static_cast<size_t>(i)].resize(id.length);
    ASSERT_TRUE(cache_
                    ->StartRead(id, 0, Writable(&out[static_cast<size_t>(i)]), Context(),
                                [&](const Status& status) {
                                  failed += !status.ok();
                                  --pending;
                                })
                    .ok());
  }
  cache_.reset();  // waits
  EXPECT_EQ(pending, 0);
  EXPECT_EQ(failed, 0);
  for (int i = 0; i < kReads; ++i) {
    const std::string& one = out[static_cast<size_t>(i)];
    ASSERT_TRUE(one == Content(Id(i % 2 ? 7 : 49), 0, one.size())) << i;
  }
}

TEST_P(BlockReaderTest, ShortAndPutOffAnswersChangeNothing) {
  std::atomic<int> answers{0};
  options_.io.alter_answer = [&](int64_t answer) {
    int n = answers++ % 4;
    // Never short at the same place twice: that is what the end of a file looks like.
    return n == 0 ? -EAGAIN : n == 1 && answer > 100'000 ? answer - 20'000 : answer;
  };
  ASSERT_NO_FATAL_FAILURE(Reopen());
  for (int i = 0; i < 5; ++i) {
    ASSERT_NO_FATAL_FAILURE(MakeAllCold());
    Status status = ReadAll(7);
    ASSERT_TRUE(status.ok()) << status.ToString();
    EXPECT_TRUE(ReadAll(49).ok());
  }
}

TEST_P(BlockReaderTest, AFaultOfTheDiskSuspendsIt) {
  std::atomic<bool> broken{false};
  options_.io.alter_answer = [&](int64_t answer) { return broken ? -EIO : answer; };
  ASSERT_NO_FATAL_FAILURE(Reopen());
  EXPECT_TRUE(ReadAll(7).ok());
  ASSERT_NO_FATAL_FAILURE(MakeAllCold());
  broken = true;
  Status status = ReadAll(7);
  if (status.ok()) GTEST_SKIP() << "this file system keeps the file in memory";
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_FALSE(cache_->healthy());
  EXPECT_EQ(cache_->counters().read_failures, 1u);
}

TEST_P(BlockReaderTest, DamageIsFoundColdAndWarm) {
  for (bool cold : {false, true}) {
    EXPECT_TRUE(ReadAll(7).ok());
    int fd = ::open(PathOf(7).c_str(), O_WRONLY | O_CLOEXEC);
    ASSERT_GE(fd, 0);
    ASSERT_EQ(::pwrite(fd, "?!", 2, BlockHeaderBytes(kBlock) + 13 * kPageBytes + 5), 2);
    ::close(fd);
    if (cold) {
      ASSERT_NO_FATAL_FAILURE(MakeCold(PathOf(7)));
    }
    std::string out(1000, '\0');
    EXPECT_TRUE(cache_->Read(Id(7), 12 * kPageBytes, Writable(&out), Context()).ok());
    EXPECT_EQ(cache_->Read(Id(7), 13 * kPageBytes + 30'000, Writable(&out), Context()).code(),
              Code::kDataLoss);
    EXPECT_EQ(ReadAll(7).code(), Code::kNotFound) << "it was dropped";
    ASSERT_NO_FATAL_FAILURE(Admit(7));
  }
}

TEST_P(BlockReaderTest, WhatAnotherProcessDropsIsNoLongerRead) {
  EXPECT_TRUE(ReadAll(7).ok());
  auto other = NodeCache::Open(PosixFileSystem(), options_, Context());
  ASSERT_TRUE(other.ok());
  EXPECT_TRUE((*other)->Drop(Id(7)));
  EXPECT_EQ(ReadAll(7).code(), Code::kNotFound);
  ASSERT_NO_FATAL_FAILURE(Admit(7));
  EXPECT_TRUE(ReadAll(7).ok());
}

TEST_P(BlockReaderTest, ACancelledReadEnds) {
  std::atomic<bool> cancelled{true};
  Context ctx;
  ctx.cancelled = &cancelled;
  std::string out(1000, '\0');
  EXPECT_EQ(cache_->Read(Id(7), 0, Writable(&out), ctx).code(), Code::kCancelled);
  EXPECT_TRUE(cache_->healthy());
}

TEST_P(BlockReaderTest, ReadsNothingAndRefusesWhatIsOutside) {
  EXPECT_TRUE(cache_->Read(Id(7), 5, {}, Context()).ok());
  std::string out(10, '\0');
  EXPECT_EQ(cache_->Read(Id(8), 5, {}, Context()).code(), Code::kNotFound);
  auto reader = BlockReader::Create(PosixFileSystem(), &cache_->paths(), {});
  ASSERT_TRUE(reader.ok());
  BlockReader::Wanted wanted{Id(7), kBlock - 5, Writable(&out)};
  EXPECT_EQ((*reader)->Start(wanted, Context(), [](const Status&) {}).code(), Code::kInternal);
}

std::string NameOf(const ::testing::TestParamInfo<std::tuple<Driver, DirectReads>>& info) {
  auto [driver, direct] = info.param;
  return std::string(DriverName(driver)) + (direct == DirectReads::kAlways ? "Direct" : "Cached");
}

INSTANTIATE_TEST_SUITE_P(Drivers, BlockReaderTest,
                         ::testing::Combine(::testing::Values(Driver::kUring, Driver::kThreads),
                                            ::testing::Values(DirectReads::kAlways,
                                                              DirectReads::kNever)),
                         NameOf);

TEST(LruTable, KeepsWhatWasUsedLastWithinItsBounds) {
  LruTable<int> table(3);
  auto id = [](uint64_t number) { return BlockId{{1, 2}, number, 10}; };
  for (int i = 0; i < 3; ++i) table.Insert(id(static_cast<uint64_t>(i)), i, 10);
  ASSERT_TRUE(table.Find(id(0)));
  table.Insert(id(3), 3, 10);  // 1 goes
  EXPECT_EQ(table.Find(id(1)), nullptr);
  EXPECT_EQ(*table.Find(id(0)), 0);
  table.Insert(id(0), 7, 5);  // another value
  EXPECT_EQ(*table.Find(id(0)), 7);
  table.Shrink(20);
  EXPECT_EQ(table.size(), 2u);
  EXPECT_TRUE(table.Find(id(0)));
  EXPECT_TRUE(table.Find(id(3)));
  table.Erase(id(3));
  table.Erase(id(3));
  table.Shrink(4);
  EXPECT_EQ(table.size(), 0u);
}

}  // namespace
}  // namespace headrace::cache
