// Blocks brought ahead by plan, over whole epochs through the real store.
#include "headrace/cache/prefetch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <thread>

#include "headrace/base/keyed_random.h"
#include "headrace/cache/testing/counting_origin.h"
#include "headrace/env/testing/faulty_file_system.h"
#include "headrace/env/testing/memory_file_system.h"

namespace headrace::cache {
namespace {

constexpr uint32_t kBlock = kPageBytes;
const uint64_t kCost = BlockCost(kBlock);

// The order in which `blocks` blocks are read in each epoch.
std::vector<uint64_t> OrderOf(uint64_t epoch, uint64_t blocks) {
  std::vector<uint64_t> order(blocks);
  std::iota(order.begin(), order.end(), 0);
  KeyedRandom random(HashKey(epoch));
  for (uint64_t i = blocks; i > 1; --i) std::swap(order[i - 1], order[random.NextBelow(i)]);
  return order;
}

// One block a position.
class EpochPlan final : public PlanSource {
 public:
  EpochPlan(uint64_t blocks, uint64_t epochs) : blocks_(blocks), epochs_(epochs) {}
  bool Next(PlannedRead* read) override {
    if (position_ == blocks_ * epochs_) return false;
    if (position_ % blocks_ == 0) order_ = OrderOf(position_ / blocks_, blocks_);
    read->key = "a";
    read->offset = order_[position_ % blocks_] * kBlock;
    read->length = kBlock;
    read->first_use = read->last_use = position_++;
    return true;
  }

 private:
  const uint64_t blocks_, epochs_;
  uint64_t position_ = 0;
  std::vector<uint64_t> order_;
};

class PrefetchTest : public ::testing::Test {
 protected:
  std::shared_ptr<CachingStore> Open(uint64_t limit, const std::string& directory = "/cache") {
    BlockCacheOptions options;
    options.fs = &files_;
    options.node.directory = directory;
    options.node.limit_bytes = limit;
    options.node.free_floor_bytes = 1;
    options.memory_bytes = 0;
    options.threads = 2;
    options.hedge = false;
    auto cache = ProcessCache::Create(options);
    EXPECT_TRUE(cache.ok());
    return *CachingStore::Create(origin_, *cache, {.block_bytes = kBlock});
  }
  void Read(CachingStore* store, uint64_t block) {
    std::string out(kBlock, '\0');
    auto info = store->Get({.key = "a",
                            .offset = block * kBlock,
                            .out = std::as_writable_bytes(std::span(out)),
                            .if_match = ""},
                           {});
    ASSERT_TRUE(info.ok()) << info.status().ToString();
    ASSERT_EQ(out, CountingOrigin::Content("a", 1, block * kBlock, kBlock));
  }
  // Waits until `ready`; a test that waits in vain ends by its time limit.
  static void Until(const std::function<bool()>& ready) {
    while (!ready()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

  MemoryFileSystem memory_;
  FaultyFileSystem files_{&memory_};
  std::shared_ptr<CountingOrigin> origin_ = std::make_shared<CountingOrigin>(kBlock);
};

TEST_F(PrefetchTest, BringsBlocksBeforeTheReaderAndNoFurtherThanAllowed) {
  constexpr uint64_t kBlocks = 100;
  origin_->Add("a", kBlocks * kBlock);
  auto store = Open(1 << 30);
  auto prefetcher = Prefetcher::Start(store, std::make_unique<EpochPlan>(kBlocks, 1),
                                      {.ahead_bytes = 10 * kBlock});
  ASSERT_TRUE(prefetcher.ok()) << prefetcher.status().ToString();
  Until([&] { return (*prefetcher)->counters().fetched_blocks == 10; });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(origin_->bytes(), 10 * kBlock);
  std::vector<uint64_t> order = OrderOf(0, kBlocks);
  for (uint64_t i = 0; i < kBlocks; ++i) {
    Read(store.get(), order[i]);
    (*prefetcher)->Advance(i + 1);
  }
  Until([&] {
    PrefetchCounters counts = (*prefetcher)->counters();
    return counts.fetched_blocks + counts.present_blocks <= kBlocks &&
           counts.planned_blocks == kBlocks;
  });
  EXPECT_EQ(origin_->MostFetched(kBlocks), 1u);
  CacheCounters counts = store->cache()->counters();
  EXPECT_EQ(counts.unused_bytes, 0u);
  EXPECT_EQ(counts.origin_bytes, kBlocks * kBlock);
}

TEST_F(PrefetchTest, WhatIsNeverReadIsCounted) {
  origin_->Add("a", 20 * kBlock);
  auto store = Open(1 << 30);
  auto prefetcher = Prefetcher::Start(store, std::make_unique<EpochPlan>(20, 1), {});
  ASSERT_TRUE(prefetcher.ok());
  Until([&] { return (*prefetcher)->counters().fetched_blocks == 20; });
  Read(store.get(), OrderOf(0, 20)[0]);
  (*prefetcher)->Advance(8);  // 7 were skipped
  Until([&] { return store->cache()->counters().unused_bytes == 7 * kBlock; });
}

TEST_F(PrefetchTest, TheOriginsOverloadHalvesTheRequests) {
  origin_->Add("a", 200 * kBlock);
  origin_->FailReads(8, Error(Code::kUnavailable, "503"));
  auto store = Open(1 << 30);
  auto prefetcher =
      Prefetcher::Start(store, std::make_unique<EpochPlan>(200, 1), {.first_requests = 8});
  ASSERT_TRUE(prefetcher.ok());
  Until([&] { return (*prefetcher)->counters().failed_blocks == 8; });
  // How far the limit has grown again since is a question of time.
  EXPECT_GE((*prefetcher)->counters().overloads, 1u);
  EXPECT_EQ((*prefetcher)->last_failure().code(), Code::kUnavailable);
  std::vector<uint64_t> order = OrderOf(0, 200);
  for (uint64_t i = 0; i < 200; ++i) {
    Read(store.get(), order[i]);
    (*prefetcher)->Advance(i + 1);
  }
}

TEST_F(PrefetchTest, AMissingObjectIsForTheReaderToMeet) {
  auto store = Open(1 << 30);
  auto prefetcher = Prefetcher::Start(store, std::make_unique<EpochPlan>(3, 1), {});
  ASSERT_TRUE(prefetcher.ok());
  Until([&] { return (*prefetcher)->counters().failed_blocks == 3; });
  EXPECT_EQ((*prefetcher)->last_failure().code(), Code::kNotFound);
}

TEST_F(PrefetchTest, AFailingDiskIsNoTroubleToTheReader) {
  constexpr uint64_t kBlocks = 50;
  origin_->Add("a", kBlocks * kBlock);
  auto store = Open(1 << 30);
  files_.FailNth(FileOperation::kCreate, 5, Error(Code::kIoError, "broken"), UINT64_MAX);
  auto prefetcher = Prefetcher::Start(store, std::make_unique<EpochPlan>(kBlocks, 1), {});
  ASSERT_TRUE(prefetcher.ok());
  std::vector<uint64_t> order = OrderOf(0, kBlocks);
  for (uint64_t i = 0; i < kBlocks; ++i) {
    Read(store.get(), order[i]);
    (*prefetcher)->Advance(i + 1);
  }
}

TEST_F(PrefetchTest, EndsWhileFetchesAreUnderWay) {
  origin_->Add("a", 100 * kBlock);
  origin_->Delay(std::chrono::milliseconds(5));
  for (int i = 0; i < 5; ++i) {
    auto store = Open(1 << 30, "/cache" + std::to_string(i));
    auto prefetcher = Prefetcher::Start(store, std::make_unique<EpochPlan>(100, 1), {});
    ASSERT_TRUE(prefetcher.ok());
    if (i % 2) std::this_thread::sleep_for(std::chrono::milliseconds(i));
    *prefetcher = nullptr;
    store.reset();
  }
}

// The rule of the design: with one pass an epoch, each in another order, the hit ratio is the
// cached fraction from the second epoch on, and nothing is fetched that is not used.
TEST_F(PrefetchTest, TheHitRatioIsTheCachedFraction) {
  constexpr uint64_t kBlocks = 300, kEpochs = 3;
  origin_->Add("a", kBlocks * kBlock);
  for (int tenth : {1, 3, 5, 7, 9}) {
    double fraction = tenth / 10.0;
    auto capacity = static_cast<uint64_t>(fraction * kBlocks);
    auto store = Open(capacity * kCost + kDescriptorCost, "/cache" + std::to_string(tenth));
    auto prefetcher =
        Prefetcher::Start(store, std::make_unique<EpochPlan>(kBlocks, kEpochs),
                          {.ahead_bytes = 2 * kBlock, .positions_per_epoch = kBlocks});
    ASSERT_TRUE(prefetcher.ok());
    uint64_t before = 0;
    for (uint64_t epoch = 0; epoch < kEpochs; ++epoch) {
      if (epoch == 1) before = store->cache()->counters().origin_bytes;
      std::vector<uint64_t> order = OrderOf(epoch, kBlocks);
      for (uint64_t i = 0; i < kBlocks; ++i) {
        // A reader that computes: what it needs next is there by then.
        uint64_t position = epoch * kBlocks + i;
        Until([&] {
          PrefetchCounters counts = (*prefetcher)->counters();
          return counts.fetched_blocks + counts.present_blocks > position;
        });
        Read(store.get(), order[i]);
        (*prefetcher)->Advance(position + 1);
      }
    }
    uint64_t fetched = store->cache()->counters().origin_bytes - before;
    double hits =
        1 - static_cast<double>(fetched) / static_cast<double>((kEpochs - 1) * kBlocks * kBlock);
    EXPECT_NEAR(hits, fraction, 0.015) << fraction;  // some blocks of 300 are always on their way
    EXPECT_EQ(store->cache()->counters().unused_bytes, 0u);
  }
}

}  // namespace
}  // namespace headrace::cache
