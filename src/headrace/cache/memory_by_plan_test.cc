// A cache of memory alone, without a directory: what plans are held there, in which bounds, and
// what is read past it.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "headrace/base/keyed_random.h"
#include "headrace/cache/prefetch.h"
#include "headrace/cache/testing/counting_origin.h"
#include "headrace/object/testing/conformance.h"
#include "headrace/object/testing/memory_store.h"

namespace headrace::cache {
namespace {

constexpr uint32_t kBlock = kPageBytes;

// Waits until `ready`; a test that waits in vain ends by its time limit.
void Until(const std::function<bool()>& ready) {
  while (!ready()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

// A part of one object, read between two positions of a plan.
struct Piece {
  uint64_t first_block = 0, blocks = 0;
  uint64_t first_use = 0, last_use = 0;
};

class PiecePlan final : public PlanSource {
 public:
  explicit PiecePlan(std::vector<Piece> pieces) : pieces_(std::move(pieces)) {}
  bool Next(PlannedRead* read) override {
    if (next_ == pieces_.size()) return false;
    const Piece& piece = pieces_[next_++];
    *read = {.key = "a",
             .offset = piece.first_block * kBlock,
             .length = piece.blocks * kBlock,
             .first_use = piece.first_use,
             .last_use = piece.last_use};
    return true;
  }

 private:
  const std::vector<Piece> pieces_;
  size_t next_ = 0;
};

class MemoryByPlanTest : public ::testing::Test {
 protected:
  std::shared_ptr<CachingStore> Open(uint64_t memory_bytes, bool planned_alone = true) {
    BlockCacheOptions options;
    options.memory_bytes = memory_bytes;
    options.threads = 3;
    options.max_request_bytes = 4 * kBlock;
    options.hedge = false;
    cache_ = *ProcessCache::Create(options);
    return *CachingStore::Create(origin_, cache_,
                                 {.block_bytes = kBlock, .planned_alone = planned_alone});
  }
  // Reads a range of the version that is there, as files do.
  Status Read(CachingStore* store, uint64_t offset, uint64_t length,
              Caching caching = Caching::kKeepIfRoom) {
    Context ctx;
    ctx.caching = caching;
    std::string out(length, '\0');
    HR_ASSIGN_OR_RETURN(object::ObjectInfo info, store->Head("a", {}));
    Status status = store
                        ->Get({.key = "a",
                               .offset = offset,
                               .out = std::as_writable_bytes(std::span(out)),
                               .if_match = info.etag},
                              ctx)
                        .status();
    if (status.ok()) {
      EXPECT_TRUE(CountingOrigin::IsContent("a", 1, offset, AsBytes(out)));
    }
    return status;
  }
  // Expects one block and lets it be brought; returns what became of it.
  BlockCache::Fetched Bring(CachingStore* store, uint64_t number) {
    auto object = *store->Find("a", {});
    store->cache()->Expect(object->Block(number), {}, Displace::kFarther, 1);
    auto how = std::make_shared<std::atomic<int>>(-1);
    store->cache()->Prefetch({{.object = object, .number = number, .use = {}}},
                             [how](size_t, BlockCache::Fetched fetched, const Status&) {
                               *how = static_cast<int>(fetched);
                             });
    Until([&] { return *how != -1; });
    return static_cast<BlockCache::Fetched>(how->load());
  }
  void Release(CachingStore* store, uint64_t number) {
    store->cache()->Release((*store->Find("a", {}))->Block(number), {});
  }

  std::shared_ptr<CountingOrigin> origin_ = std::make_shared<CountingOrigin>(kBlock);
  std::shared_ptr<ProcessCache> cache_;
};

TEST_F(MemoryByPlanTest, WithoutAPlanItIsAsIfThereWereNone) {
  origin_->Add("a", 8 * kBlock);
  auto store = Open(8 * kBlock);
  for (Caching caching : {Caching::kKeep, Caching::kPass}) {
    origin_->ResetCounts();
    for (int round = 0; round < 2; ++round)
      ASSERT_TRUE(Read(store.get(), kBlock + 7, 1000, caching).ok());
    EXPECT_EQ(origin_->bytes(), 2000u);
    EXPECT_EQ(origin_->requests(), 2u);
  }
  EXPECT_EQ(cache_->made(), nullptr);
}

TEST_F(MemoryByPlanTest, WhatIsReadPastAPlanIsCounted) {
  origin_->Add("a", 8 * kBlock);
  auto store = Open(8 * kBlock);
  ASSERT_NE(store->cache(), nullptr);
  ASSERT_TRUE(Read(store.get(), 2 * kBlock - 10, 1000, Caching::kPass).ok());
  const CacheCounters counts = store->cache()->counters();
  EXPECT_EQ(counts.misses, 2u);
  EXPECT_EQ(counts.origin_requests, 1u);
  EXPECT_EQ(counts.origin_bytes, 1000u);
  EXPECT_EQ(counts.streamed_bytes, 1000u);
  EXPECT_EQ(store->cache()->memory_bytes(), 0u);
}

TEST_F(MemoryByPlanTest, WhatAPlanHoldsServesAll) {
  origin_->Add("a", 8 * kBlock);
  auto store = Open(8 * kBlock);
  EXPECT_EQ(Bring(store.get(), 3), BlockCache::Fetched::kFetched);
  EXPECT_EQ(Bring(store.get(), 3), BlockCache::Fetched::kWasHere);
  ASSERT_TRUE(Read(store.get(), 3 * kBlock + 5, 100).ok());
  ASSERT_TRUE(Read(store.get(), 3 * kBlock + 500, 100, Caching::kKeep).ok());
  EXPECT_EQ(origin_->bytes(), kBlock);
  EXPECT_EQ(store->cache()->counters().memory_hits, 2u);
  // One that goes beyond it is read as it is asked for.
  ASSERT_TRUE(Read(store.get(), 4 * kBlock - 50, 100, Caching::kKeep).ok());
  EXPECT_EQ(origin_->bytes(), kBlock + 100);
}

TEST_F(MemoryByPlanTest, ABlockThatNoPlanExpectsTakesOnlyWhatRoomIsLeft) {
  origin_->Add("a", 8 * kBlock);
  auto store = Open(2 * kBlock);
  EXPECT_EQ(Bring(store.get(), 0), BlockCache::Fetched::kFetched);
  ASSERT_TRUE(Read(store.get(), 2 * kBlock, 10).ok());
  EXPECT_EQ(origin_->bytes(), 2 * kBlock);
  EXPECT_EQ(Bring(store.get(), 1), BlockCache::Fetched::kFetched);
  EXPECT_EQ(origin_->bytes(), 3 * kBlock);
  ASSERT_TRUE(Read(store.get(), 4 * kBlock, 10).ok());
  EXPECT_EQ(origin_->bytes(), 3 * kBlock + 10);
  ASSERT_TRUE(store->cache()->WaitUntilIdle(std::chrono::minutes(1)));
  EXPECT_EQ(store->cache()->held_bytes(), 2 * kBlock);
  EXPECT_LE(store->cache()->memory_bytes(), 2 * kBlock);
  // Those that are expected are there, whatever was read meanwhile.
  ASSERT_TRUE(Read(store.get(), 0, 2 * kBlock).ok());
  EXPECT_EQ(origin_->bytes(), 3 * kBlock + 10);
}

TEST_F(MemoryByPlanTest, NothingIsBroughtThatNoPlanExpects) {
  origin_->Add("a", 2 * kBlock);
  auto store = Open(8 * kBlock);
  std::atomic<int> how{-1};
  store->cache()->Prefetch({{.object = *store->Find("a", {}), .number = 1, .use = {}}},
                           [&how](size_t, BlockCache::Fetched fetched, const Status&) {
                             how = static_cast<int>(fetched);
                           });
  Until([&] { return how != -1; });
  EXPECT_EQ(how, static_cast<int>(BlockCache::Fetched::kRefused));
  EXPECT_EQ(origin_->bytes(), 0u);
}

TEST_F(MemoryByPlanTest, WhatIsGivenUpOnItsWayIsUnusedAndNotKept) {
  origin_->Add("a", 2 * kBlock);
  auto store = Open(8 * kBlock);
  origin_->OnRead([&] { Release(store.get(), 1); });
  Bring(store.get(), 1);
  ASSERT_TRUE(store->cache()->WaitUntilIdle(std::chrono::minutes(1)));
  EXPECT_EQ(store->cache()->counters().unused_bytes, kBlock);
  EXPECT_EQ(store->cache()->memory_bytes(), 0u);
  EXPECT_EQ(store->cache()->held_bytes(), 0u);
}

TEST_F(MemoryByPlanTest, WhatIsLeftBehindGoesWithTheLastPlan) {
  origin_->Add("a", 4 * kBlock);
  auto store = Open(4 * kBlock);
  BlockCache* cache = store->cache();
  EXPECT_EQ(cache->Lend(3 * kBlock), 3 * kBlock);
  EXPECT_EQ(cache->Lend(3 * kBlock), kBlock);
  EXPECT_EQ(cache->Lend(1), 0u);
  Bring(store.get(), 0);
  ASSERT_TRUE(Read(store.get(), 0, 10).ok());
  Release(store.get(), 0);
  cache->GiveBack(3 * kBlock);
  EXPECT_EQ(Bring(store.get(), 0), BlockCache::Fetched::kWasHere);  // another plan goes on
  Release(store.get(), 0);
  cache->GiveBack(kBlock);
  EXPECT_EQ(cache->memory_bytes(), 0u);
  EXPECT_EQ(cache->Lend(UINT64_MAX), 4 * kBlock);
}

TEST_F(MemoryByPlanTest, BytesThatAreWrongAreFetchedAnew) {
  origin_->Add("a", 2 * kBlock);
  auto store = Open(4 * kBlock);
  Bring(store.get(), 0);
  store->Distrust(*store->Head("a", {}), 100, 100);
  ASSERT_TRUE(Read(store.get(), 100, 100).ok());
  EXPECT_EQ(origin_->fetched(0), 2u);
  ASSERT_TRUE(Read(store.get(), 100, 100).ok());
  EXPECT_EQ(origin_->fetched(0), 2u);
}

TEST_F(MemoryByPlanTest, AFailureIsTheReadersToMeetAndNotForEver) {
  origin_->Add("a", 2 * kBlock);
  auto store = Open(4 * kBlock);
  origin_->FailReads(2, Error(Code::kPermissionDenied, "not now"));
  EXPECT_EQ(Bring(store.get(), 0), BlockCache::Fetched::kFailed);
  EXPECT_EQ(Read(store.get(), 0, 10).code(), Code::kPermissionDenied);
  EXPECT_TRUE(Read(store.get(), 0, 10).ok());
}

TEST_F(MemoryByPlanTest, AReadersDeadlineEndsItsWaitOnly) {
  origin_->Add("a", 2 * kBlock);
  std::atomic<bool> go{false};
  auto store = Open(4 * kBlock);
  ASSERT_TRUE(store->Head("a", {}).ok());
  origin_->OnRead([&] { Until([&] { return go.load(); }); });
  std::jthread patient([&] { EXPECT_TRUE(Read(store.get(), 0, 100).ok()); });
  Until([&] { return store->cache()->held_bytes() == kBlock; });
  Context ctx;
  ctx.caching = Caching::kKeepIfRoom;
  ctx.deadline = Context::Clock::now() + std::chrono::milliseconds(10);
  std::string out(10, '\0');
  const object::ObjectInfo info = *store->Head("a", {});
  EXPECT_EQ(store
                ->Get({.key = "a",
                       .offset = 20,
                       .out = std::as_writable_bytes(std::span(out)),
                       .if_match = info.etag},
                      ctx)
                .status()
                .code(),
            Code::kDeadlineExceeded);
  go = true;
  patient.join();
  EXPECT_EQ(origin_->fetched(0), 1u);
}

TEST_F(MemoryByPlanTest, AnObjectThatWasReplacedIsNeverMixed) {
  origin_->Add("a", 2 * kBlock);
  auto store = Open(4 * kBlock);
  Bring(store.get(), 0);
  const object::ObjectInfo old = *store->Head("a", {});
  origin_->Add("a", 2 * kBlock, 2);
  Context ctx;
  ctx.caching = Caching::kKeepIfRoom;
  std::string out(2 * kBlock, '\0');
  EXPECT_EQ(store
                ->Get({.key = "a",
                       .offset = 0,
                       .out = std::as_writable_bytes(std::span(out)),
                       .if_match = old.etag},
                      ctx)
                .status()
                .code(),
            Code::kFailedPrecondition);
}

TEST_F(MemoryByPlanTest, ManyReadersOfOneBlockShareOneFetch) {
  constexpr uint64_t kBlocks = 8;
  for (int round = 0; round < 10; ++round) {
    origin_ = std::make_shared<CountingOrigin>(kBlock);
    origin_->Add("a", kBlocks * kBlock);
    auto store = Open(kBlocks * kBlock);
    std::vector<std::jthread> readers;
    for (uint64_t i = 0; i < 8; ++i)
      readers.emplace_back([&, i] {
        for (uint64_t j = 0; j < kBlocks; ++j)
          EXPECT_TRUE(Read(store.get(), (i / 2 + j) % kBlocks * kBlock + i, 999).ok());
      });
    for (uint64_t number = 0; number < kBlocks; ++number) Bring(store.get(), number);
    readers.clear();
    EXPECT_EQ(origin_->MostFetched(kBlocks), 1u);
  }
}

// Pieces of random sizes, mixed in windows of several, as shards are; the plan, readers on several
// threads, and a memory that holds two windows. However the threads take turns: each block is
// fetched once, and what is in memory keeps to the limit.
class Windows : public MemoryByPlanTest, public ::testing::WithParamInterface<uint64_t> {};

TEST_P(Windows, ThatFitAreFetchedOnce) {
  constexpr uint64_t kWindows = 6;
  KeyedRandom random(GetParam());
  std::vector<Piece> pieces;
  uint64_t blocks = 0, position = 0, largest = 0;
  std::vector<uint64_t> ends, planned;  // of each window: its end; blocks planned up to there
  for (uint64_t w = 0; w < kWindows; ++w) {
    uint64_t of_window = 0;
    const uint64_t first = position, last = position + 4 + random.NextBelow(10);
    for (uint64_t n = random.NextBelow(3) + 1; n > 0; --n) {
      const uint64_t size = random.NextBelow(6) + 1;
      pieces.push_back({blocks, size, first, last});
      blocks += size;
      of_window += size;
    }
    largest = std::max(largest, of_window);
    position = last + 1;
    ends.push_back(position);
    planned.push_back(blocks);
  }
  origin_->Add("a", blocks * kBlock);
  const uint64_t limit = (2 * largest + random.NextBelow(4)) * kBlock;
  auto store = Open(limit);
  BlockCache* cache = store->cache();
  ASSERT_EQ(cache->Lend(limit), limit);
  auto prefetcher = *Prefetcher::Start(
      store, std::make_unique<PiecePlan>(pieces),
      {.limits = {.ahead_bytes = random.NextBelow(20) * kBlock}, .memory_bytes = limit});
  std::atomic<bool> all_right{true};
  for (uint64_t w = 0, p = 0; w < kWindows; ++w) {
    const uint64_t begin = w == 0 ? 0 : planned[w - 1];
    for (; p < ends[w]; ++p) {
      prefetcher->Reach(p + 1);
      Until([&] { return prefetcher->counters().planned_blocks >= planned[w]; });
      std::vector<std::jthread> readers;
      for (uint64_t r = 0; r < 3; ++r) {
        const uint64_t block = begin + random.NextBelow(planned[w] - begin);
        // The last position reads what is left, so that all is used.
        const uint64_t offset = p + 1 == ends[w] ? begin * kBlock : block * kBlock + 11;
        const uint64_t length = p + 1 == ends[w] ? (planned[w] - begin) * kBlock : 1000;
        readers.emplace_back([&, offset, length] {
          if (!Read(store.get(), offset, length).ok()) all_right = false;
        });
      }
      readers.clear();
      ASSERT_LE(cache->memory_bytes(), limit);
      prefetcher->Advance(p + 1);
    }
  }
  ASSERT_TRUE(all_right);
  ASSERT_EQ(origin_->LeastFetched(blocks), 1u);
  ASSERT_EQ(origin_->MostFetched(blocks), 1u);
  const CacheCounters counts = cache->counters();
  ASSERT_EQ(counts.origin_bytes, blocks * kBlock);
  ASSERT_EQ(counts.streamed_bytes, 0u);
  ASSERT_EQ(counts.unused_bytes, 0u);
  prefetcher.reset();
  ASSERT_TRUE(cache->WaitUntilIdle(std::chrono::minutes(1)));
  ASSERT_EQ(cache->held_bytes(), 0u);
  cache->GiveBack(limit);
  ASSERT_EQ(cache->memory_bytes(), 0u);
}

// Plans and readers that keep to nothing, in a memory that holds next to nothing: the bytes are
// right, and the limit is kept.
TEST_P(Windows, ThatDoNotFitKeepToTheLimit) {
  constexpr uint64_t kBlocks = 24;
  KeyedRandom random(GetParam());
  origin_->Add("a", kBlocks * kBlock);
  const uint64_t limit = random.NextBelow(5 * kBlock) + 1;
  auto store = Open(limit, random.NextBelow(2) == 0);
  std::vector<Piece> pieces;
  for (uint64_t i = 0; i < 12; ++i) {
    const uint64_t first = random.NextBelow(kBlocks);
    pieces.push_back({first, random.NextBelow(std::min<uint64_t>(kBlocks - first, 6)) + 1, i * 3,
                      i * 3 + random.NextBelow(9)});
  }
  auto prefetcher =
      *Prefetcher::Start(store, std::make_unique<PiecePlan>(pieces), {.memory_bytes = limit});
  for (uint64_t p = 0; p < 40; ++p) {
    prefetcher->Reach(p + random.NextBelow(3));
    const uint64_t offset = random.NextBelow(kBlocks * kBlock);
    const uint64_t length =
        random.NextBelow(std::min<uint64_t>(3 * kBlock, kBlocks * kBlock - offset)) + 1;
    const Caching caching =
        std::array{Caching::kKeep, Caching::kKeepIfRoom, Caching::kPass}[random.NextBelow(3)];
    ASSERT_TRUE(Read(store.get(), offset, length, caching).ok());
    ASSERT_LE(store->cache()->memory_bytes(), limit);
    prefetcher->Advance(p);
  }
}

INSTANTIATE_TEST_SUITE_P(Random, Windows, ::testing::Range(uint64_t{1}, uint64_t{16}));

// The suite of all stores, past such a memory.
const bool kSuite = object::RegisterObjectStoreSuite(
    "planned", {.abilities = object::MemoryStoreOptions().abilities, .open = [] {
                  auto cache = ProcessCache::Create({});
                  std::shared_ptr<CachingStore> store = *CachingStore::Create(
                      object::MakeMemoryStore(), *cache,
                      {.block_bytes = kBlock, .head_ttl_ms = 0, .planned_alone = true});
                  return object::StoreUnderTest{.store = store};
                }});

}  // namespace
}  // namespace headrace::cache
