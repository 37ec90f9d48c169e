#include "headrace/checkpoint/elements.h"

#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <limits>
#include <vector>

namespace headrace::checkpoint {
namespace {

template <typename T>
ElementDifference Compare(DType dtype, const std::vector<T>& a, const std::vector<T>& b) {
  ElementDifference sum;
  AddDifference(dtype, std::as_bytes(std::span(a)), std::as_bytes(std::span(b)), &sum);
  return sum;
}

TEST(Elements, CountsAndMeasuresFloats) {
  const ElementDifference sum = Compare<float>(DType::kF32, {1, 2, 3, 4}, {1, 2.5, 3, 2});
  EXPECT_EQ(sum.elements, 4u);
  EXPECT_EQ(sum.changed, 2u);
  EXPECT_DOUBLE_EQ(sum.max_abs, 2);
  EXPECT_DOUBLE_EQ(sum.relative(), std::sqrt(4.25 / 30));
}

TEST(Elements, LargeIntegersAreNotRounded) {
  const int64_t large = (int64_t{1} << 62) + 1;
  EXPECT_DOUBLE_EQ(Compare<int64_t>(DType::kI64, {large}, {large - 1}).max_abs, 1);
  EXPECT_DOUBLE_EQ(Compare<int8_t>(DType::kI8, {-128}, {127}).max_abs, 255);
  EXPECT_DOUBLE_EQ(Compare<uint64_t>(DType::kU64, {0}, {UINT64_MAX}).max_abs,
                   static_cast<double>(UINT64_MAX));
  const int64_t least = std::numeric_limits<int64_t>::min();
  EXPECT_DOUBLE_EQ(Compare<int64_t>(DType::kI64, {least}, {-(least + 1)}).max_abs,
                   static_cast<double>(UINT64_MAX));
}

TEST(Elements, WhatIsNoNumberIsCountedApart) {
  const float nan = NAN, infinite = INFINITY;
  const ElementDifference sum =
      Compare<float>(DType::kF32, {nan, nan, 1, infinite, 1}, {nan, 1, infinite, infinite, 3});
  EXPECT_EQ(sum.changed, 3u);
  EXPECT_EQ(sum.not_finite, 2u);
  EXPECT_DOUBLE_EQ(sum.max_abs, 2);
}

TEST(Elements, ComplexNumbersAreOneElement) {
  const ElementDifference sum =
      Compare<std::complex<float>>(DType::kC64, {{1, 1}, {0, 0}}, {{4, 5}, {0, 0}});
  EXPECT_EQ(sum.elements, 2u);
  EXPECT_EQ(sum.changed, 1u);
  EXPECT_DOUBLE_EQ(sum.max_abs, 5);
}

TEST(Elements, HalfPrecisionIsReadAsItIs) {
  EXPECT_DOUBLE_EQ(SmallFloatValue(DType::kF16, 0x3c00), 1);
  EXPECT_DOUBLE_EQ(SmallFloatValue(DType::kF16, 0xc000), -2);
  EXPECT_DOUBLE_EQ(SmallFloatValue(DType::kF16, 0x7bff), 65504);
  EXPECT_DOUBLE_EQ(SmallFloatValue(DType::kF16, 0x0001), std::ldexp(1, -24));
  EXPECT_TRUE(std::isinf(SmallFloatValue(DType::kF16, 0x7c00)));
  EXPECT_TRUE(std::isnan(SmallFloatValue(DType::kF16, 0x7c01)));
  EXPECT_DOUBLE_EQ(SmallFloatValue(DType::kBF16, 0x3f80), 1);
  EXPECT_DOUBLE_EQ(SmallFloatValue(DType::kBF16, 0xc040), -3);
  const ElementDifference sum = Compare<uint16_t>(DType::kBF16, {0x3f80, 0x3f80}, {0x3f80, 0xc040});
  EXPECT_EQ(sum.changed, 1u);
  EXPECT_DOUBLE_EQ(sum.max_abs, 4);
}

TEST(Elements, BytesAreReadAsEachKindOfFloat) {
  EXPECT_DOUBLE_EQ(SmallFloatValue(DType::kF8E4M3, 0x38), 1);
  EXPECT_DOUBLE_EQ(SmallFloatValue(DType::kF8E4M3, 0x7e), 448);
  EXPECT_TRUE(std::isnan(SmallFloatValue(DType::kF8E4M3, 0xff)));
  EXPECT_DOUBLE_EQ(SmallFloatValue(DType::kF8E5M2, 0x3c), 1);
  EXPECT_DOUBLE_EQ(SmallFloatValue(DType::kF8E5M2, 0x7b), 57344);
  EXPECT_TRUE(std::isinf(SmallFloatValue(DType::kF8E5M2, 0xfc)));
  EXPECT_DOUBLE_EQ(SmallFloatValue(DType::kF8E4M3Fnuz, 0x40), 1);
  EXPECT_DOUBLE_EQ(SmallFloatValue(DType::kF8E4M3Fnuz, 0x7f), 240);
  EXPECT_TRUE(std::isnan(SmallFloatValue(DType::kF8E4M3Fnuz, 0x80)));
  EXPECT_DOUBLE_EQ(SmallFloatValue(DType::kF8E5M2Fnuz, 0x40), 1);
  EXPECT_DOUBLE_EQ(SmallFloatValue(DType::kF8E8M0, 127), 1);
  EXPECT_TRUE(std::isnan(SmallFloatValue(DType::kF8E8M0, 255)));
  EXPECT_EQ(Compare<uint8_t>(DType::kF8E4M3, {0x38, 0}, {0x7e, 0}).max_abs, 447);
}

TEST(Elements, PackedOnesAreOnlyCompared) {
  const ElementDifference sum = Compare<uint8_t>(DType::kF4, {1, 2, 3}, {1, 7, 3});
  EXPECT_EQ(sum.elements, 6u);
  EXPECT_EQ(sum.changed, 1u);
  EXPECT_FALSE(HasMeasure(DType::kF4));
}

TEST(Elements, RelativeToNothingIsInfinite) {
  EXPECT_TRUE(std::isinf(Compare<float>(DType::kF32, {0}, {1}).relative()));
  EXPECT_EQ(Compare<float>(DType::kF32, {0}, {0}).relative(), 0);
}

}  // namespace
}  // namespace headrace::checkpoint
