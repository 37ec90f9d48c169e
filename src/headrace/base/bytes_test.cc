#include "headrace/base/bytes.h"

#include <gtest/gtest.h>

#include <limits>

namespace headrace {
namespace {

TEST(Bytes, ViewsOfTextAndBack) {
  std::string_view text("a\0b", 3);
  EXPECT_EQ(AsText(AsBytes(text)), text);
  EXPECT_TRUE(AsBytes("").empty());
}

TEST(Bytes, LittleEndianAtAnyAddress) {
  unsigned char raw[9] = {0xff, 1, 2, 3, 4, 5, 6, 7, 8};
  EXPECT_EQ(LoadLittle<uint16_t>(raw + 1), 0x0201u);
  EXPECT_EQ(LoadLittle<uint32_t>(raw + 1), 0x04030201u);
  EXPECT_EQ(LoadLittle<uint64_t>(raw + 1), 0x0807060504030201u);
  StoreLittle<uint32_t>(raw + 3, 0xa1b2c3d4u);
  EXPECT_EQ(raw[2], 2);
  EXPECT_EQ(raw[3], 0xd4);
  EXPECT_EQ(raw[6], 0xa1);
  EXPECT_EQ(raw[7], 7);
}

TEST(AlignedBuffer, IsAlignedAndHasSlack) {
  for (size_t bytes : {size_t{1}, size_t{63}, size_t{64}, size_t{65}, size_t{100'000}}) {
    AlignedBuffer buffer(bytes);
    ASSERT_NE(buffer.data(), nullptr);
    EXPECT_GE(buffer.capacity(), bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % AlignedBuffer::kAlignment, 0u);
    // Writing it all and touching the slack must be within the allocation (seen by sanitizers).
    std::memset(buffer.data(), 1, buffer.capacity());
    volatile std::byte last = buffer.data()[buffer.capacity() + AlignedBuffer::kSlack - 1];
    (void)last;
  }
}

TEST(AlignedBuffer, KeepsItsLargestSize) {
  AlignedBuffer buffer(1000);
  std::byte* data = buffer.data();
  size_t capacity = buffer.capacity();
  EXPECT_TRUE(buffer.Reserve(10));
  EXPECT_TRUE(buffer.Reserve(capacity));
  EXPECT_EQ(buffer.data(), data);
  EXPECT_EQ(buffer.capacity(), capacity);
  EXPECT_TRUE(buffer.Reserve(capacity + 1));
  EXPECT_GT(buffer.capacity(), capacity);
}

TEST(AlignedBuffer, AnExactReserveAddsNoRoom) {
  AlignedBuffer buffer;
  EXPECT_TRUE(buffer.Reserve(1000, true));
  EXPECT_EQ(buffer.capacity(), 1000u);
}

TEST(AlignedBuffer, MovesItsMemory) {
  AlignedBuffer one(100);
  std::byte* data = one.data();
  AlignedBuffer two(std::move(one));
  EXPECT_EQ(two.data(), data);
  EXPECT_EQ(one.capacity(), 0u);  // NOLINT: what is left after a move is part of the contract
  EXPECT_TRUE(one.Reserve(10));
  EXPECT_NE(one.data(), two.data());
}

TEST(AlignedBuffer, SaysWhenMemoryCannotBeHad) {
  // The second one, with a quarter on top, is a small number again once it has overflown.
  for (size_t bytes : {SIZE_MAX, SIZE_MAX / 5 * 4 + 2, SIZE_MAX / 2 + 1, SIZE_MAX / 4 + 1}) {
    AlignedBuffer buffer(10);
    EXPECT_FALSE(buffer.Reserve(bytes)) << bytes;
    EXPECT_EQ(buffer.capacity(), 0u);
    EXPECT_EQ(buffer.data(), nullptr);
    EXPECT_FALSE(buffer.Reserve(bytes, true)) << bytes;
    EXPECT_TRUE(buffer.Reserve(10));
  }
}

}  // namespace
}  // namespace headrace
