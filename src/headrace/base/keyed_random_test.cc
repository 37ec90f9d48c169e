#include "headrace/base/keyed_random.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <array>
#include <set>

namespace headrace {
namespace {

// These values are part of the stored contract. They were computed by a program of its own in
// another language; when one of these tests fails, the change is wrong, not the test.
TEST(KeyedRandom, FrozenMix) {
  EXPECT_EQ(Mix64(0), 0u);
  EXPECT_EQ(Mix64(1), 0x5692161d100b05e5u);
  EXPECT_EQ(Mix64(UINT64_MAX), 0xb4d055fcf2cbbd7bu);
}

TEST(KeyedRandom, FrozenKeys) {
  EXPECT_EQ(HashKey(), 0u);
  EXPECT_EQ(HashKey(0), 0x1df5df97578d90c0u);
  EXPECT_EQ(HashKey(1, 2, 3), 0x46a6bbbc0534a99fu);
  EXPECT_EQ(HashKey(3, 2, 1), 0xc2a348d79fb25174u);
  EXPECT_EQ(HashKey(-1), 0x77ca23776407269u);
  EXPECT_EQ(HashKey(uint64_t{1}, uint32_t{2}, uint8_t{3}), HashKey(1, 2, 3));
}

TEST(KeyedRandom, IsSplitMix64) {  // the reference program's output for this seed
  KeyedRandom random(1234567);
  for (uint64_t expected : {6457827717110365317u, 3203168211198807973u, 9817491932198370423u,
                            4593380528125082431u, 16408922859458223821u})
    EXPECT_EQ(random.Next(), expected);
}

TEST(KeyedRandom, FrozenDraws) {
  KeyedRandom words(42), fractions(42), below(42);
  EXPECT_EQ(words.Next(), 0xbdd732262feb6e95u);
  EXPECT_EQ(words.Next(), 0x28efe333b266f103u);
  EXPECT_EQ(fractions.NextDouble(), 0.7415648787718233);
  EXPECT_EQ(fractions.NextDouble(), 0.1599103928769201);
  for (uint64_t expected : {741u, 159u, 278u, 344u}) EXPECT_EQ(below.NextBelow(1000), expected);
}

TEST(KeyedRandom, WorksAtCompileTime) {
  static_assert(HashKey(1, 2, 3) == 0x46a6bbbc0534a99fu);
  static_assert(KeyedRandom(42).NextBelow(1000) == 741);
}

RC_GTEST_PROP(KeyedRandom, StaysInItsBounds, (uint64_t key, uint64_t bound)) {
  RC_PRE(bound > 0u);
  KeyedRandom random(key);
  for (int i = 0; i < 20; ++i) {
    RC_ASSERT(random.NextBelow(bound) < bound);
    double fraction = random.NextDouble();
    RC_ASSERT(fraction >= 0.0 && fraction < 1.0);
  }
}

TEST(KeyedRandom, DrawsAreSpreadEvenly) {
  constexpr int kBins = 16, kDraws = 160'000;
  std::array<int, kBins> counts{};
  for (uint64_t key = 0; key < kDraws; ++key)
    ++counts[KeyedRandom(HashKey(7, key)).NextBelow(kBins)];
  double chi_square = 0;
  for (int count : counts) {
    double off = count - kDraws / kBins;
    chi_square += off * off / (kDraws / kBins);
  }
  EXPECT_LT(chi_square, 44.3);  // 15 degrees of freedom, p = 0.0001
}

TEST(KeyedRandom, NeighboringKeysDoNotCollide) {
  std::set<uint64_t> seen;
  for (int a = 0; a < 100; ++a)
    for (int b = 0; b < 100; ++b) seen.insert(HashKey(a, b));
  EXPECT_EQ(seen.size(), 10'000u);
}

}  // namespace
}  // namespace headrace
