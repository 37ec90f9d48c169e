#include "headrace/cache/buffer_pool.h"

#include <gtest/gtest.h>

#include <cstring>

#include "headrace/env/file.h"

namespace headrace::cache {
namespace {

TEST(BufferPool, GivesWhatCameBackAndNothingInUse) {
  BufferPool pool(1 << 20);
  auto first = pool.Take(10'000), second = pool.Take(10'000);
  ASSERT_TRUE(first && second);
  EXPECT_NE(first->data, second->data);
  EXPECT_GE(first->capacity, 10'000u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(first->data) % kDirectAlignment, 0u);
  EXPECT_EQ(first->capacity % kDirectAlignment, 0u);
  const std::byte* used = first->data;
  first.reset();
  EXPECT_EQ(pool.Take(9'000)->data, used);
  EXPECT_NE(pool.Take(100'000)->data, used);
}

TEST(BufferPool, KeepsNoMoreThanAllowedAndNoLargeOneForASmallNeed) {
  BufferPool pool(3 * kDirectAlignment);
  auto small = pool.Take(1), large = pool.Take(3 * kDirectAlignment);
  const std::byte* used = small->data;
  small.reset();
  EXPECT_EQ(pool.Take(1)->data, used);
  large.reset();  // now the small one is too much
  EXPECT_GE(pool.Take(1)->capacity, 1u);
  EXPECT_LT(pool.Take(1)->capacity, 3 * kDirectAlignment);
}

TEST(BufferPool, GivesOnlyWhatFitsWhereAllIsCounted) {
  BufferPool pool(1 << 20, BufferPool::Fit::kExact);
  auto large = pool.Take(10 * kDirectAlignment);
  const std::byte* used = large->data;
  large.reset();
  EXPECT_EQ(pool.Take(9 * kDirectAlignment)->capacity, 9 * kDirectAlignment);
  auto again = pool.Take(9 * kDirectAlignment + 1);
  EXPECT_EQ(again->data, used);
  EXPECT_EQ(again->capacity, BufferPool::CapacityFor(9 * kDirectAlignment + 1));
}

TEST(BufferPool, OutlivesItsOwner) {
  std::shared_ptr<const BufferPool::Buffer> kept;
  {
    BufferPool pool(1 << 20);
    kept = pool.Take(100);
  }
  std::memset(kept->data, 1, kept->capacity);
}

}  // namespace
}  // namespace headrace::cache
