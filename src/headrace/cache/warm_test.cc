#include "headrace/cache/warm.h"

#include <gtest/gtest.h>

#include "headrace/cache/testing/counting_origin.h"
#include "headrace/env/testing/faulty_file_system.h"
#include "headrace/env/testing/memory_file_system.h"

namespace headrace::cache {
namespace {

constexpr uint32_t kBlock = kPageBytes;

class WarmTest : public ::testing::Test {
 protected:
  std::shared_ptr<CachingStore> Open(uint64_t limit) {
    BlockCacheOptions options;
    options.fs = &files_;
    options.node.directory = "/cache";
    options.node.limit_bytes = limit;
    options.node.free_floor_bytes = 1;
    options.memory_bytes = 0;
    auto cache = ProcessCache::Create(options);
    EXPECT_TRUE(cache.ok());
    return *CachingStore::Create(origin_, *cache, {.block_bytes = kBlock});
  }
  std::vector<object::ObjectInfo> Objects(int count, uint64_t size) {
    std::vector<object::ObjectInfo> objects;
    for (int i = 0; i < count; ++i) {
      objects.push_back({"k" + std::to_string(i), size, "", 0});
      origin_->Add(objects.back().key, size);
    }
    return objects;
  }
  MemoryFileSystem memory_;
  FaultyFileSystem files_{&memory_};
  std::shared_ptr<CountingOrigin> origin_ = std::make_shared<CountingOrigin>(kBlock);
};

TEST_F(WarmTest, BringsAllAndASecondTimeNothing) {
  auto objects = Objects(5, 7 * kBlock + 100);
  auto store = Open(1 << 30);
  WarmProgress first, second;
  WarmOptions options{.in_flight_bytes = 4 * kBlock, .request_bytes = 2 * kBlock};
  ASSERT_TRUE(Warm(store.get(), objects, options, &first, {}).ok());
  EXPECT_EQ(first.total_bytes, 5 * (7 * kBlock + 100));
  EXPECT_EQ(first.done_bytes, first.total_bytes);
  EXPECT_EQ(first.fetched_bytes, first.total_bytes);
  ASSERT_TRUE(Warm(store.get(), objects, options, &second, {}).ok());
  EXPECT_EQ(second.done_bytes, second.total_bytes);
  EXPECT_EQ(second.fetched_bytes, 0u);
  EXPECT_EQ(origin_->bytes(), first.total_bytes);
}

TEST_F(WarmTest, GoesOnAfterAStop) {
  auto objects = Objects(4, 4 * kBlock);
  auto store = Open(1 << 30);
  std::atomic<bool> cancelled{false};
  std::atomic<int> reads{0};
  origin_->OnRead([&] {
    if (++reads == 2) cancelled = true;
  });
  Context ctx;
  ctx.cancelled = &cancelled;
  WarmOptions options{.in_flight_bytes = kBlock, .request_bytes = kBlock};
  WarmProgress progress;
  EXPECT_EQ(Warm(store.get(), objects, options, &progress, ctx).code(), Code::kCancelled);
  origin_->OnRead(nullptr);
  WarmProgress rest;
  EXPECT_TRUE(Warm(store.get(), objects, options, &rest, {}).ok());
  EXPECT_EQ(origin_->MostFetched(4), 1u);
  EXPECT_LT(rest.fetched_bytes, rest.total_bytes);
}

TEST_F(WarmTest, RefusesWhatCannotFit) {
  auto objects = Objects(2, 100 * kBlock);
  auto store = Open(50 * kBlock);
  WarmProgress progress;
  EXPECT_EQ(Warm(store.get(), objects, {}, &progress, {}).code(), Code::kResourceExhausted);
  EXPECT_EQ(origin_->bytes(), 0u);
}

TEST_F(WarmTest, SaysWhatTheOriginOrTheDiskSays) {
  auto objects = Objects(1, 8 * kBlock);
  auto store = Open(1 << 30);
  WarmProgress progress;
  origin_->FailReads(1, Error(Code::kPermissionDenied, "403"));
  EXPECT_EQ(Warm(store.get(), objects, {}, &progress, {}).code(), Code::kPermissionDenied);
  objects.push_back({"missing", 10, "", 0});
  EXPECT_EQ(Warm(store.get(), objects, {}, &progress, {}).code(), Code::kNotFound);
  objects = {{"more", 8 * kBlock, "", 0}};
  origin_->Add("more", 8 * kBlock);
  files_.FailNth(FileOperation::kCreate, 1, Error(Code::kIoError, "broken"), 1000);
  EXPECT_EQ(Warm(store.get(), objects, {}, &progress, {}).code(), Code::kResourceExhausted);
  EXPECT_EQ(Warm(store.get(), objects, {}, &progress, {}).code(), Code::kUnavailable);
}

}  // namespace
}  // namespace headrace::cache
