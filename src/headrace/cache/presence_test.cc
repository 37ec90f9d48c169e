#include "headrace/cache/presence.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "headrace/cache/testing/counting_origin.h"
#include "headrace/env/testing/memory_file_system.h"

namespace headrace::cache {
namespace {

TEST(Presence, CountsTheBlocksThatAreThere) {
  constexpr uint64_t kBlock = kPageBytes;
  MemoryFileSystem files;
  auto origin = std::make_shared<CountingOrigin>(kBlock);
  origin->Add("a", 3 * kBlock + 100);
  BlockCacheOptions options;
  options.fs = &files;
  options.node.directory = "/cache";
  options.node.limit_bytes = 1 << 30;
  options.node.free_floor_bytes = 1;
  auto cache = ProcessCache::Create(options);
  ASSERT_TRUE(cache.ok());
  auto store = *CachingStore::Create(origin, *cache, {.block_bytes = kBlock});
  auto found = LookFor(store.get(), "a", {});
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found->size_bytes, 3 * kBlock + 100);
  EXPECT_EQ(found->missing_bytes(), found->size_bytes);
  // The last block, which is short, and no other.
  std::vector<BlockCache::Wanted> wanted{{*store->Find("a", {}), 3, {}, {}}};
  std::atomic<bool> done{false};
  store->cache()->Prefetch(std::move(wanted),
                           [&](size_t, BlockCache::Fetched, const Status&) { done = true; });
  while (!done) std::this_thread::yield();
  std::vector<uint64_t> numbers;
  found = LookFor(store.get(), "a", {}, [&](const BlockId& id) { numbers.push_back(id.number); });
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found->present_bytes, 100u);
  EXPECT_EQ(numbers, std::vector<uint64_t>{3});
  EXPECT_EQ(LookFor(store.get(), "b", {}).status().code(), Code::kNotFound);
}

}  // namespace
}  // namespace headrace::cache
