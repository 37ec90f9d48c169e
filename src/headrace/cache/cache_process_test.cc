// Several processes on one cache: who fetches, and who dies.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <thread>

#include "headrace/base/fault_point.h"
#include "headrace/base/keyed_random.h"
#include "headrace/cache/cache_settings.h"
#include "headrace/cache/caching_store.h"
#include "headrace/cache/testing/counting_origin.h"
#include "headrace/env/testing/child_process.h"
#include "headrace/env/testing/temporary_directory.h"

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define HR_THREAD_SANITIZER 1
#endif
#endif
#ifndef HR_THREAD_SANITIZER
#define HR_THREAD_SANITIZER 0
#endif

namespace headrace::cache {
namespace {

constexpr uint32_t kBlock = kPageBytes;
const uint64_t kCost = BlockCost(kBlock);
constexpr uint64_t kBlocks = 64;

class CacheProcessTest : public ::testing::Test {
 protected:
  CacheProcessTest() { origin_->Add("a", kBlocks * kBlock); }

  std::shared_ptr<CachingStore> Open(uint64_t limit = 1 << 30) {
    BlockCacheOptions options;
    options.node.directory = dir_ / "cache";
    options.node.limit_bytes = limit;
    options.node.free_floor_bytes = 1;
    options.memory_bytes = 0;
    options.threads = 2;
    options.hedge = false;
    // However slow the machine is, none gives up waiting for the one that fetches.
    options.patience_ms = 3'600'000;
    auto cache = ProcessCache::Create(options);
    if (!cache.ok()) return nullptr;
    return *CachingStore::Create(origin_, *cache, {.block_bytes = kBlock});
  }
  // 0 when all is as it should be: for the exit code of a child.
  static int ReadBlock(CachingStore* store, uint64_t block) {
    std::string out(kBlock, '\0');
    auto info = store->Get({.key = "a",
                            .offset = block * kBlock,
                            .out = std::as_writable_bytes(std::span(out)),
                            .if_match = ""},
                           {});
    if (!info.ok()) return 2;
    return out == CountingOrigin::Content("a", 1, block * kBlock, kBlock) ? 0 : 3;
  }
  static int ReadAll(CachingStore* store, uint64_t seed) {
    KeyedRandom random(seed);
    std::vector<uint64_t> order;
    for (uint64_t i = 0; i < kBlocks; ++i) order.push_back(i);
    for (uint64_t i = kBlocks; i > 1; --i) std::swap(order[i - 1], order[random.NextBelow(i)]);
    for (uint64_t block : order)
      if (int bad = ReadBlock(store, block)) return bad;
    return 0;
  }

  TemporaryDirectory dir_;
  std::shared_ptr<CountingOrigin> origin_ = std::make_shared<CountingOrigin>(kBlock);
};

TEST_F(CacheProcessTest, WhereFilesMayNotGrowNothingIsGivenUp) {
  auto read = [this](uint64_t first, uint64_t end, uint64_t degraded) {
    auto store = Open();
    if (!store) return 1;
    for (uint64_t block = first; block < end; ++block)
      if (int bad = ReadBlock(store.get(), block)) return bad;
    if (!store->cache()->WaitUntilIdle(std::chrono::minutes(1))) return 5;
    return store->cache()->counters().node.degraded == degraded ? 0 : 6;
  };
  EXPECT_EQ(ChildProcess([&] { return read(0, 4, 0); }).Wait(), 0);
  ChildProcess child([&] {
    rlimit limit{4096, 4096};
    if (std::signal(SIGXFSZ, SIG_IGN) == SIG_ERR || ::setrlimit(RLIMIT_FSIZE, &limit) != 0)
      return 4;
    return read(10, 20, 1);
  });
  EXPECT_EQ(child.Wait(), 0);
  origin_->ResetCounts();
  auto store = Open();
  ASSERT_TRUE(store);
  for (uint64_t block = 0; block < 4; ++block) EXPECT_EQ(ReadBlock(store.get(), block), 0);
  EXPECT_EQ(origin_->bytes(), 0u);
}

// The shared words are mapped: here their files are cut, as if the disk had gone.
TEST_F(CacheProcessTest, AProcessOutlivesTheDiskUnderItsSharedWords) {
  auto store = Open();
  ASSERT_TRUE(store);
  ASSERT_EQ(ReadBlock(store.get(), 0), 0);
  ASSERT_TRUE(store->cache()->WaitUntilIdle(std::chrono::minutes(1)));
  for (const char* words : {"counters", "uses"})
    ASSERT_EQ(::truncate((dir_ / "cache/state" + "/" + words).c_str(), 0), 0);
  EXPECT_EQ(ReadAll(store.get(), 1), 0);
  EXPECT_EQ(store->cache()->counters().node.degraded, 1u);
}

TEST_F(CacheProcessTest, ProcessesFetchEachBlockOnce) {
  origin_->Delay(std::chrono::milliseconds(2));
  std::vector<std::unique_ptr<ChildProcess>> children;
  for (uint64_t i = 0; i < 3; ++i)
    children.push_back(std::make_unique<ChildProcess>([&, i] {
      auto store = Open();
      return store ? ReadAll(store.get(), i % 2) : 1;  // two of them in the same order
    }));
  for (auto& child : children) EXPECT_EQ(child->Wait(), 0);
  EXPECT_EQ(origin_->bytes(), kBlocks * kBlock);
  EXPECT_EQ(origin_->MostFetched(kBlocks), 1u);
}

TEST_F(CacheProcessTest, ASmallCacheStaysWithinItsLimitForAll) {
  const uint64_t limit = 10 * kCost;
  std::vector<std::unique_ptr<ChildProcess>> children;
  for (uint64_t i = 0; i < 3; ++i)
    children.push_back(std::make_unique<ChildProcess>([&, i] {
      auto store = Open(limit);
      if (!store) return 1;
      for (int round = 0; round < 3; ++round)
        if (int bad = ReadAll(store.get(), i + 10)) return bad;
      return 0;
    }));
  for (auto& child : children) EXPECT_EQ(child->Wait(), 0);
  // What is there, before anybody counts anew.
  auto contents = ListCache(PosixFileSystem(), CachePaths(dir_ / "cache"));
  ASSERT_TRUE(contents.ok());
  EXPECT_LE(contents->bytes, limit);
  EXPECT_GT(contents->blocks.size(), 5u);
  auto store = Open(limit);
  EXPECT_EQ(store->cache()->node()->used_bytes(), contents->bytes);
}

// The fetcher is stopped for ever in mid-fetch, and then killed: who waits takes over.
TEST_F(CacheProcessTest, TheDeathOfTheFetcherFreesTheBlock) {
  for (const char* point :
       {"cache.admit.before_write", "cache.admit.before_rename", "cache.admit.after_rename"}) {
    SCOPED_TRACE(point);
    TemporaryDirectory ready;
    ChildProcess fetcher([&] {
      auto store = Open();
      if (!store) return 1;
      ArmFault(point, 1, [&] {
        (void)PosixFileSystem()->WriteAtomically(ready / "there", {});
        while (true) std::this_thread::sleep_for(std::chrono::seconds(1));
        return OkStatus();
      });
      return ReadBlock(store.get(), 5);
    });
    while (!PosixFileSystem()->Exists(ready / "there") && fetcher.IsRunning())
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    ASSERT_TRUE(fetcher.IsRunning()) << "the fetcher ended with " << fetcher.Wait();
    auto store = Open();
    ASSERT_TRUE(store);
    // Once the reader waits for it, or has read what it had brought to its place before.
    std::atomic<bool> read{false};
    std::jthread killer([&] {
      while (!read && store->cache()->counters().waits == 0)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      fetcher.Kill();
    });
    EXPECT_EQ(ReadBlock(store.get(), 5), 0);
    read = true;
    killer.join();
    EXPECT_EQ(fetcher.Wait() == 0, false);
    store.reset();
    store = Open();
    auto contents = ListCache(PosixFileSystem(), store->cache()->node()->disks()[0]->paths());
    ASSERT_TRUE(contents.ok());
    EXPECT_TRUE(contents->unfinished.empty());
    EXPECT_EQ(store->cache()->node()->used_bytes(), contents->bytes);
    EXPECT_TRUE(store->cache()->node()->disks()[0]->MakeRoom(1 << 30).ok());  // for the next round
  }
}

TEST_F(CacheProcessTest, AChildForkedWithACacheInUseMakesItsOwn) {
#if defined(__SANITIZE_THREAD__) || HR_THREAD_SANITIZER
  GTEST_SKIP() << "the sanitizer lets no forked child of a program with threads start threads";
#endif
  auto store = Open();
  ASSERT_TRUE(store);
  ASSERT_EQ(ReadAll(store.get(), 2), 0);  // from now on the origin's locks are not in use
  std::atomic<bool> stop{false};
  std::jthread reader([&] {
    for (uint64_t i = 0; !stop; ++i) ReadBlock(store.get(), i % kBlocks);
  });
  for (int i = 0; i < 5; ++i) EXPECT_EQ(ExitOfChild([&] { return ReadAll(store.get(), 3); }), 0);
  stop = true;
  reader.join();
  EXPECT_EQ(ReadAll(store.get(), 4), 0);
  EXPECT_EQ(origin_->MostFetched(kBlocks), 1u);
}

TEST_F(CacheProcessTest, AForkedChildThatEndsKeepsWhatItHasFetched) {
#if defined(__SANITIZE_THREAD__) || HR_THREAD_SANITIZER
  GTEST_SKIP() << "the sanitizer lets no forked child of a program with threads start threads";
#endif
  auto store = Open();
  ASSERT_TRUE(store);
  auto fetch = [&] {
    if (int bad = ReadAll(store.get(), 1)) return bad;
    return WaitForCaches(std::chrono::minutes(1)) ? 0 : 5;
  };
  EXPECT_EQ(ExitOfChild(fetch), 0);
  EXPECT_EQ(ReadAll(store.get(), 2), 0);
  EXPECT_EQ(origin_->MostFetched(kBlocks), 1u);
}

// Processes are killed at any time, again and again. No wrong bytes, nothing left, counts right.
TEST_F(CacheProcessTest, ManyKillsLeaveNothing) {
  const uint64_t limit = 20 * kCost;
  for (int round = 0; round < 8; ++round) {
    ChildProcess victim([&] {
      auto store = Open(limit);
      if (!store) return 1;
      while (true)
        if (int bad = ReadAll(store.get(), round)) return bad;
    });
    auto store = Open(limit);
    ASSERT_TRUE(store);
    std::this_thread::sleep_for(std::chrono::milliseconds(5 + round * 2));
    victim.Kill();
    EXPECT_EQ(ReadAll(store.get(), round + 1), 0);
    EXPECT_EQ(victim.Wait(), -SIGKILL);
  }
  auto store = Open(limit);
  auto contents = ListCache(PosixFileSystem(), store->cache()->node()->disks()[0]->paths());
  ASSERT_TRUE(contents.ok());
  EXPECT_LE(contents->bytes, limit);
  EXPECT_EQ(store->cache()->node()->used_bytes(), contents->bytes);
}

}  // namespace
}  // namespace headrace::cache
