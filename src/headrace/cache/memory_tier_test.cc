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

}  // namespace
}  // namespace headrace::cache
