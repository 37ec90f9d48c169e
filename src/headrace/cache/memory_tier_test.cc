#include "headrace/cache/memory_tier.h"

#include <gtest/gtest.h>

#include <string>

namespace headrace::cache {
namespace {

std::shared_ptr<const BlockBytes> Make(uint64_t number, size_t bytes) {
  auto owner = std::make_shared<const std::string>(bytes, static_cast<char>('a' + number));
  return std::make_shared<const BlockBytes>(
      BlockBytes{{{1, 2}, number, static_cast<uint32_t>(bytes)}, AsBytes(*owner), owner});
}
BlockId Id(uint64_t number, uint32_t bytes) { return {{1, 2}, number, bytes}; }

TEST(MemoryTier, KeepsWhatWasUsedLastWithinItsLimit) {
  MemoryTier tier(100);
  tier.Insert(Make(1, 40));
  tier.Insert(Make(2, 40));
  EXPECT_TRUE(tier.Find(Id(1, 40)));  // now 2 is the oldest
  auto held = tier.Find(Id(2, 40));
  EXPECT_TRUE(tier.Find(Id(1, 40)));
  tier.Insert(Make(3, 40));
  EXPECT_LE(tier.bytes(), 100u);
  EXPECT_FALSE(tier.Find(Id(2, 40)));
  EXPECT_TRUE(tier.Find(Id(1, 40)));
  EXPECT_TRUE(tier.Find(Id(3, 40)));
  EXPECT_EQ(AsText(held->data), std::string(40, 'c'));  // still whole in the hands of a reader
}

TEST(MemoryTier, DoesNotKeepWhatCannotFit) {
  MemoryTier tier(10);
  tier.Insert(Make(1, 5));
  tier.Insert(Make(2, 11));
  EXPECT_TRUE(tier.Find(Id(1, 5)));
  EXPECT_FALSE(tier.Find(Id(2, 11)));
  tier.Insert(Make(1, 5));  // again: counted once
  EXPECT_EQ(tier.bytes(), 5u);
  MemoryTier none(0);
  none.Insert(Make(1, 5));
  EXPECT_EQ(none.bytes(), 0u);
}

TEST(MemoryTier, WhatAPlanNeedsSoonestStays) {
  MemoryTier tier(100);
  tier.Insert(Make(1, 40), 7);
  tier.Insert(Make(2, 40), 9);
  tier.Insert(Make(3, 20));
  tier.Insert(Make(4, 20));  // only what no plan needs goes for it
  EXPECT_FALSE(tier.Find(Id(3, 20)));
  tier.Insert(Make(5, 20), 30);
  EXPECT_FALSE(tier.Find(Id(4, 20)));
  tier.Insert(Make(6, 20), 40);  // the last of all
  EXPECT_FALSE(tier.Find(Id(6, 20)));
  tier.Insert(Make(7, 40), 8);  // 5, then 2 are needed later
  EXPECT_FALSE(tier.Find(Id(5, 20)));
  EXPECT_FALSE(tier.Find(Id(2, 40)));
  EXPECT_TRUE(tier.Find(Id(1, 40)));
  EXPECT_TRUE(tier.Find(Id(7, 40)));
  tier.Need(Id(1, 40), 50);
  tier.Insert(Make(8, 40), 20);
  EXPECT_FALSE(tier.Find(Id(1, 40)));
  tier.Release(Id(7, 40));
  tier.Insert(Make(9, 40), 60);
  EXPECT_FALSE(tier.Find(Id(7, 40)));
  EXPECT_TRUE(tier.Find(Id(9, 40)));
  EXPECT_EQ(tier.bytes(), 80u);
}

TEST(MemoryTier, GivesUpWhatNoPlanNeeds) {
  MemoryTier tier(100);
  tier.Insert(Make(1, 20), 7);
  tier.Insert(Make(2, 20));
  tier.Insert(Make(3, 20), 8);
  tier.Release(Id(3, 20));
  tier.DropUnneeded();
  EXPECT_TRUE(tier.Find(Id(1, 20)));
  EXPECT_FALSE(tier.Find(Id(2, 20)));
  EXPECT_FALSE(tier.Find(Id(3, 20)));
  EXPECT_EQ(tier.bytes(), 20u);
}

// Blocks that were fetched together lie in one memory, which is free when the last has gone.
TEST(MemoryTier, SharedMemoryIsCountedOnceAndUntilItIsFree) {
  MemoryTier tier(100);
  auto together = [](uint64_t number) {
    static const auto owner = std::make_shared<const std::string>(60, 'x');
    return std::make_shared<const BlockBytes>(
        BlockBytes{{{1, 2}, number, 20}, AsBytes(*owner).first(20), owner, owner->size()});
  };
  tier.Insert(together(1));
  tier.Insert(together(2));
  EXPECT_EQ(tier.bytes(), 60u);
  tier.Remove(Id(1, 20));
  EXPECT_EQ(tier.bytes(), 60u);
  tier.Insert(Make(3, 50));  // not before all of the 60 are free
  EXPECT_FALSE(tier.Find(Id(2, 20)));
  EXPECT_EQ(tier.bytes(), 50u);
}

}  // namespace
}  // namespace headrace::cache
