// Several directories as one cache: where blocks lie, and what one directory's trouble does to the
// others.
#include "headrace/cache/disk_tier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "headrace/cache/caching_store.h"
#include "headrace/cache/testing/counting_origin.h"
#include "headrace/env/testing/memory_file_system.h"

namespace headrace::cache {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr uint32_t kBlock = kPageBytes;
constexpr uint64_t kUnit = uint64_t{100} << 20;

BlockId Id(uint64_t number) { return {{number % 7, 5}, number, kBlock}; }

class DiskTierTest : public ::testing::Test {
 protected:
  // Gives a directory the limit that it then keeps.
  void MakeCache(const std::string& directory, uint64_t limit) {
    NodeCacheOptions options;
    options.directory = directory;
    options.limit_bytes = limit;
    options.free_floor_bytes = 1;
    ASSERT_TRUE(NodeCache::Open(&files_, options, Context()).ok());
  }
  std::unique_ptr<DiskTier> Open(const std::string& directories, uint64_t limit = 0) {
    NodeCacheOptions options;
    options.directory = directories;
    options.limit_bytes = limit;
    options.free_floor_bytes = 1;
    options.warn = [this](const std::string& line) { warnings_.push_back(line); };
    auto tier = DiskTier::Open(&files_, options, Context());
    EXPECT_TRUE(tier.ok()) << tier.status().ToString();
    return tier.ok() ? *std::move(tier) : nullptr;
  }
  static std::string PlaceOf(const DiskTier& tier, uint64_t number) {
    return tier.Of(Id(number))->paths().root();
  }
  static std::map<std::string, int> Spread(const DiskTier& tier) {
    std::map<std::string, int> spread;
    for (uint64_t number = 0; number < 10'000; ++number) ++spread[PlaceOf(tier, number)];
    return spread;
  }

  MemoryFileSystem files_;
  std::vector<std::string> warnings_;
};

TEST(SplitDirectories, SkipsWhatIsEmptyOrThereAlready) {
  EXPECT_THAT(SplitDirectories("/a/b"), ElementsAre("/a/b"));
  EXPECT_THAT(SplitDirectories("/a:/b/:c::/a/"), ElementsAre("/a", "/b", "c"));
  EXPECT_THAT(SplitDirectories("/"), ElementsAre("/"));
  EXPECT_THAT(SplitDirectories(":"), IsEmpty());
}

TEST_F(DiskTierTest, SpreadsBlocksByTheLimits) {
  MakeCache("/a", kUnit);
  MakeCache("/b", 3 * kUnit);
  auto spread = Spread(*Open("/a:/b"));
  EXPECT_NEAR(spread["/a"], 2500, 150);
  EXPECT_NEAR(spread["/b"], 7500, 150);
}

TEST_F(DiskTierTest, ABlockLiesWhereTheOrderOfNamesDoesNotMatter) {
  MakeCache("/a", kUnit);
  MakeCache("/b", 3 * kUnit);
  auto one = Open("/a:/b"), other = Open("/b/:/a");
  for (uint64_t number = 0; number < 1000; ++number)
    ASSERT_EQ(PlaceOf(*one, number), PlaceOf(*other, number));
}

TEST_F(DiskTierTest, AnotherDiskTakesBlocksAndMovesNoneBetweenTheOld) {
  for (const char* directory : {"/a", "/b", "/c"}) MakeCache(directory, kUnit);
  auto two = Open("/a:/b"), three = Open("/a:/b:/c");
  for (uint64_t number = 0; number < 1000; ++number) {
    std::string now = PlaceOf(*three, number);
    ASSERT_TRUE(now == "/c" || now == PlaceOf(*two, number));
  }
  EXPECT_NEAR(Spread(*three)["/c"], 3333, 200);
}

TEST_F(DiskTierTest, DividesALimitAmongAll) {
  auto tier = Open("/a:/b", 2 * kUnit);
  EXPECT_EQ(tier->limit_bytes(), 2 * kUnit);
  EXPECT_EQ(tier->disks()[1]->limit_bytes(), kUnit);
}

TEST_F(DiskTierTest, RefusesWhatOneDirectoryWouldRefuse) {
  ASSERT_TRUE(files_.MakeDirectories("/full").ok());
  ASSERT_TRUE(files_.WriteAtomically("/full/thesis", {}).ok());
  NodeCacheOptions options;
  options.directory = "/a:/full";
  EXPECT_EQ(DiskTier::Open(&files_, options, Context()).status().code(), Code::kFailedPrecondition);
  options.directory = ":";
  EXPECT_EQ(DiskTier::Open(&files_, options, Context()).status().code(), Code::kInvalidArgument);
}

TEST_F(DiskTierTest, PlansHaveOneNumberOnAllDisks) {
  auto tier = Open("/a:/b", 2 * kUnit);
  auto first = tier->JoinPlans();
  ASSERT_TRUE(first.ok());
  // Taken on the second disk alone, by who uses only that.
  auto alone = tier->disks()[1]->JoinPlans();
  ASSERT_TRUE(alone.ok());
  auto second = tier->JoinPlans();
  ASSERT_TRUE(second.ok());
  EXPECT_NE(second->plan, first->plan);
  EXPECT_NE(second->plan, alone->plan);
  EXPECT_EQ(second->locks.size(), 2u);
  for (const auto& disk : tier->disks())
    EXPECT_EQ(disk->JoinPlansAs(second->plan).status().code(), Code::kAlreadyExists);
}

TEST_F(DiskTierTest, OneThatVanishesDegradesAlone) {
  constexpr uint64_t kBlocks = 64;
  auto origin = std::make_shared<CountingOrigin>(kBlock);
  origin->Add("a", kBlocks * kBlock);
  BlockCacheOptions options;
  options.fs = &files_;
  options.node.directory = "/a:/b";
  options.node.limit_bytes = 2 * kUnit;
  options.node.free_floor_bytes = 1;
  options.memory_bytes = 0;
  options.hedge = false;
  auto cache = ProcessCache::Create(options);
  ASSERT_TRUE(cache.ok()) << cache.status().ToString();
  auto store = CachingStore::Create(origin, *cache, {.identity = "", .block_bytes = kBlock});
  ASSERT_TRUE(store.ok());
  auto read = [&] {
    std::string out(kBlocks * kBlock, '\0');
    auto info = (*store)->Get(
        {.key = "a", .offset = 0, .out = std::as_writable_bytes(std::span(out)), .if_match = ""},
        Context());
    ASSERT_TRUE(info.ok()) << info.status().ToString();
    ASSERT_TRUE(out == CountingOrigin::Content("a", 1, 0, out.size()));
  };
  read();
  ASSERT_TRUE((*store)->cache()->WaitUntilIdle(std::chrono::minutes(4)));
  ASSERT_EQ((*store)->cache()->counters().node.admitted_blocks, kBlocks);
  read();
  EXPECT_EQ(origin->bytes(), kBlocks * kBlock);
  auto object = (*store)->Find("a", Context());
  ASSERT_TRUE(object.ok());
  uint64_t on_b = 0;
  for (uint64_t number = 0; number < kBlocks; ++number)
    on_b += (*store)->cache()->node()->Of((*object)->Block(number))->paths().root() == "/b";
  ASSERT_GT(on_b, 10u);
  ASSERT_LT(on_b, kBlocks - 10);
  ASSERT_TRUE(files_.Rename("/b", "/elsewhere").ok());
  origin->ResetCounts();
  read();
  read();
  EXPECT_EQ(origin->bytes(), 2 * on_b * kBlock) << "only what lay there is fetched again";
  EXPECT_TRUE((*store)->cache()->node()->healthy());
  EXPECT_FALSE(files_.Exists("/b"));
}

}  // namespace
}  // namespace headrace::cache
