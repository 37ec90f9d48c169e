#include "headrace/loader/plan/permutation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

namespace headrace::loader {
namespace {

std::vector<uint64_t> Arrangement(uint64_t size, uint64_t key) {
  std::vector<uint64_t> numbers;
  const KeyedPermutation permutation(size, key);
  for (uint64_t i = 0; i < size; ++i) numbers.push_back(permutation(i));
  return numbers;
}

// How many standard deviations the chi-square statistic of `counts` lies above what equal chances
// give. The keys are fixed, so a test with a limit on it cannot come and go.
double Excess(const std::vector<uint64_t>& counts, uint64_t draws) {
  const double expected = static_cast<double>(draws) / static_cast<double>(counts.size());
  double chi_square = 0;
  for (uint64_t count : counts) {
    const double difference = static_cast<double>(count) - expected;
    chi_square += difference * difference / expected;
  }
  const double freedom = static_cast<double>(counts.size()) - 1;
  return (chi_square - freedom) / std::sqrt(2 * freedom);
}

TEST(KeyedPermutation, IsABijectionForEverySize) {
  for (uint64_t size = 1; size <= 700; ++size) {
    auto numbers = Arrangement(size, HashKey(1, size));
    std::sort(numbers.begin(), numbers.end());
    for (uint64_t i = 0; i < size; ++i) ASSERT_EQ(numbers[i], i) << "size " << size;
  }
}

TEST(KeyedPermutation, IsABijectionAroundPowersOfTwo) {
  for (uint64_t bits : {10, 13, 16}) {
    for (uint64_t size : {(1u << bits) - 1, 1u << bits, (1u << bits) + 1}) {
      auto numbers = Arrangement(size, 99);
      std::sort(numbers.begin(), numbers.end());
      for (uint64_t i = 0; i < size; ++i) ASSERT_EQ(numbers[i], i) << "size " << size;
    }
  }
}

TEST(KeyedPermutation, StaysInsideForHugeSizes) {
  for (uint64_t size : {uint64_t{1} << 40, (uint64_t{1} << 61) + 7, uint64_t{1} << 62}) {
    const KeyedPermutation permutation(size, 5);
    for (uint64_t i = 0; i < 1000; ++i) {
      EXPECT_LT(permutation(i), size);
      EXPECT_LT(permutation(size - 1 - i), size);
      EXPECT_NE(permutation(i), permutation(i + 1));
    }
  }
}

// All n! arrangements come equally often.
TEST(KeyedPermutation, SmallSizesGiveEveryArrangementEquallyOften) {
  constexpr uint64_t kKeys = 200'000;
  for (uint64_t size = 2; size <= 6; ++size) {
    std::map<std::vector<uint64_t>, uint64_t> found;
    for (uint64_t key = 0; key < kKeys; ++key) ++found[Arrangement(size, HashKey(2, size, key))];
    std::vector<uint64_t> counts;
    for (const auto& [numbers, count] : found) counts.push_back(count);
    size_t arrangements = 1;
    for (uint64_t i = 2; i <= size; ++i) arrangements *= i;
    ASSERT_EQ(counts.size(), arrangements) << "size " << size;
    EXPECT_LT(Excess(counts, kKeys), 4.0) << "size " << size;
  }
}

// For each two places, every pair of different numbers comes equally often.
TEST(KeyedPermutation, EveryPairOfPlacesIsUniform) {
  constexpr uint64_t kKeys = 20'000;
  for (uint64_t size = 2; size <= 20; ++size) {
    std::vector<std::vector<uint64_t>> arrangements;
    for (uint64_t key = 0; key < kKeys; ++key)
      arrangements.push_back(Arrangement(size, HashKey(3, size, key)));
    for (uint64_t a = 0; a < size; a += 3) {
      for (uint64_t b = a + 1; b < size; b += 2) {
        std::vector<uint64_t> counts(size * (size - 1));
        for (const auto& numbers : arrangements) {
          const uint64_t second = numbers[b] - (numbers[b] > numbers[a] ? 1 : 0);
          ++counts[numbers[a] * (size - 1) + second];
        }
        EXPECT_LT(Excess(counts, kKeys), 4.5) << "size " << size << " places " << a << ", " << b;
      }
    }
  }
}

TEST(KeyedPermutation, LargerSizesPutEachPlaceAnywhere) {
  constexpr uint64_t kKeys = 50'000;
  for (uint64_t size : {31, 33, 100, 257}) {
    for (uint64_t place : {uint64_t{0}, size / 2, size - 1}) {
      std::vector<uint64_t> counts(size);
      for (uint64_t key = 0; key < kKeys; ++key) {
        ++counts[KeyedPermutation(size, HashKey(4, size, key))(place)];
      }
      EXPECT_LT(Excess(counts, kKeys), 4.5) << "size " << size << " place " << place;
    }
  }
}

}  // namespace
}  // namespace headrace::loader
