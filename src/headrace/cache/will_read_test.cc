// Ranges that a cache was told of before their readers come, and which it does not keep.
#include <gtest/gtest.h>

#include <functional>
#include <span>
#include <string>
#include <thread>

#include "headrace/cache/caching_store.h"
#include "headrace/cache/testing/counting_origin.h"
#include "headrace/env/testing/memory_file_system.h"

namespace headrace::cache {
namespace {

constexpr uint64_t kBlock = kPageBytes, kBlocks = 10;

class WillReadTest : public ::testing::Test {
 protected:
  WillReadTest() {
    origin_->Add("a", kBlocks * kBlock);
    BlockCacheOptions options;
    options.fs = &files_;
    options.node.directory = "/cache";
    options.node.limit_bytes = BlockCost(kBlock) + kDescriptorCost;  // one block
    options.node.free_floor_bytes = 1;
    options.memory_bytes = 0;
    options.max_ahead_bytes = 1000;
    options.hedge = false;
    cache_ = *ProcessCache::Create(options);
    store_ = *CachingStore::Create(origin_, cache_, {.block_bytes = kPageBytes});
    ctx_.caching = Caching::kKeepIfRoom;
    EXPECT_TRUE(Get(0, 10).ok());  // the one block
    EXPECT_TRUE(store_->cache()->WaitUntilIdle(std::chrono::minutes(4)));
    origin_->ResetCounts();
  }
  void WillGet(uint64_t offset, uint64_t length) {
    store_->WillGet(*store_->Head("a", {}), offset, length, ctx_);
  }
  Status Get(uint64_t offset, uint64_t length) {
    std::string out(length, '\0');
    auto info = store_->Get({.key = "a",
                             .offset = offset,
                             .out = std::as_writable_bytes(std::span(out)),
                             .if_match = ""},
                            ctx_);
    if (!info.ok()) return info.status();
    EXPECT_TRUE(CountingOrigin::IsContent("a", 1, offset, AsBytes(out)));
    return info.status();
  }
  // Waits until `ready`; a test that waits in vain ends by its time limit.
  static void Until(const std::function<bool()>& ready) {
    while (!ready()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

  MemoryFileSystem files_;
  std::shared_ptr<CountingOrigin> origin_ = std::make_shared<CountingOrigin>(kBlock);
  std::shared_ptr<ProcessCache> cache_;
  std::shared_ptr<CachingStore> store_;
  Context ctx_;
};

TEST_F(WillReadTest, IsFetchedOnceAndNoMoreThanWasAskedFor) {
  WillGet(3 * kBlock + 100, 200);
  WillGet(3 * kBlock + 100, 200);
  Until([&] { return origin_->bytes() == 200; });
  EXPECT_TRUE(Get(3 * kBlock + 100, 50).ok());
  EXPECT_TRUE(Get(3 * kBlock + 250, 50).ok());
  EXPECT_TRUE(Get(3 * kBlock + 150, 100).ok());
  EXPECT_EQ(origin_->bytes(), 200u);
  EXPECT_TRUE(Get(3 * kBlock + 100, 50).ok());  // read whole, and so gone
  EXPECT_EQ(origin_->bytes(), 250u);
}

TEST_F(WillReadTest, AReaderThatComesEarlyWaitsForIt) {
  origin_->Delay(std::chrono::milliseconds(20));
  for (int i = 0; i < 10; ++i) WillGet(kBlock * 2 + i * 100, 100);
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(Get(kBlock * 2 + i * 100, 100).ok());
  EXPECT_EQ(origin_->bytes(), 1000u);
}

TEST_F(WillReadTest, WhatIsOnTheDiskIsNotReadTwice) {
  WillGet(10, 100);
  EXPECT_TRUE(Get(10, 100).ok());
  EXPECT_EQ(origin_->bytes(), 0u);
}

TEST_F(WillReadTest, AFailureIsTheReadersToMeet) {
  origin_->FailReads(1, Error(Code::kPermissionDenied, "not now"));
  WillGet(5 * kBlock, 100);
  Until([&] { return origin_->requests() >= 1; });
  EXPECT_TRUE(Get(5 * kBlock, 100).ok());
}

TEST_F(WillReadTest, TooMuchIsLeftToTheReaders) {
  for (uint64_t i = 0; i < kBlocks - 1; ++i) WillGet((i + 1) * kBlock, 300);  // room for three
  for (uint64_t i = 0; i < kBlocks - 1; ++i) EXPECT_TRUE(Get((i + 1) * kBlock, 300).ok());
  EXPECT_EQ(origin_->bytes(), (kBlocks - 1) * 300);
}

TEST_F(WillReadTest, TheCacheEndsWhileRangesAreUnderWay) {
  origin_->Delay(std::chrono::milliseconds(5));
  for (uint64_t i = 1; i < 4; ++i) WillGet(i * kBlock, 300);
}

}  // namespace
}  // namespace headrace::cache
