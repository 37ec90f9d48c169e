#include "headrace/codec/draws.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

namespace headrace::codec {
namespace {

TEST(ExactFunctions, AreCloseToTheMathematicalOnes) {
  KeyedRandom random(1);
  for (int i = 0; i < 200000; ++i) {
    double x = (random.NextDouble() - 0.5) * 20;
    EXPECT_NEAR(ExactExp(x), std::exp(x), 5e-16 * std::exp(x));
    double y = std::exp(x);
    EXPECT_NEAR(ExactLog(y), std::log(y), 5e-16 * std::fmax(1.0, std::fabs(x)));
  }
  EXPECT_EQ(ExactExp(0.0), 1.0);
  EXPECT_EQ(ExactLog(1.0), 0.0);
}

// Fixed bits: a change here changes the crops of every training run.
TEST(ExactFunctions, KeepTheirBits) {
  EXPECT_EQ(std::bit_cast<uint64_t>(ExactExp(0.25)), std::bit_cast<uint64_t>(1.2840254166877414));
  EXPECT_EQ(std::bit_cast<uint64_t>(ExactLog(0.75)), std::bit_cast<uint64_t>(-0.2876820724517809));
}

TEST(RoundHalfEven, RoundsAsPythonDoes) {
  EXPECT_EQ(RoundHalfEven(0.5), 0);
  EXPECT_EQ(RoundHalfEven(1.5), 2);
  EXPECT_EQ(RoundHalfEven(2.5), 2);
  EXPECT_EQ(RoundHalfEven(-0.5), 0);
  EXPECT_EQ(RoundHalfEven(-1.5), -2);
  EXPECT_EQ(RoundHalfEven(2.4999999), 2);
  EXPECT_EQ(RoundHalfEven(7.51), 8);
}

Rect Draw(uint64_t sample, uint32_t width, uint32_t height, CropDistribution d = {}) {
  return DrawResizedCrop(OpRandom({5, 2, sample}, 0), d, width, height);
}

TEST(ResizedCrop, LiesInsideAndKeepsItsLimits) {
  int fallbacks = 0;
  for (uint64_t sample = 0; sample < 20000; ++sample) {
    Rect r = Draw(sample, 500, 375);
    ASSERT_LE(r.x + r.width, 500u);
    ASSERT_LE(r.y + r.height, 375u);
    double area = r.width * static_cast<double>(r.height) / (500 * 375),
           ratio = r.width / static_cast<double>(r.height);
    ASSERT_GT(area, 0.08 * 0.98);
    ASSERT_LT(ratio, 4.0 / 3 * 1.02);
    ASSERT_GT(ratio, 0.75 * 0.98);
    fallbacks += r.width == 500 && r.height == 375;
  }
  EXPECT_LT(fallbacks, 200);
}

TEST(ResizedCrop, HasTheMeanOfItsDistribution) {
  double area = 0, ratio = 0, x = 0;
  constexpr int kDraws = 20000;
  for (uint64_t sample = 0; sample < kDraws; ++sample) {
    Rect r = Draw(sample, 1000, 1000, {0.1, 0.3, 0.5, 2.0});
    area += r.width * static_cast<double>(r.height) / 1e6;
    ratio += std::log(r.width / static_cast<double>(r.height));
    x += r.x / static_cast<double>(1000 - r.width);
  }
  EXPECT_NEAR(area / kDraws, 0.2, 0.003);
  EXPECT_NEAR(ratio / kDraws, 0.0, 0.015);
  EXPECT_NEAR(x / kDraws, 0.5, 0.01);
}

TEST(ResizedCrop, FallsBackToTheCenter) {
  Rect wide = Draw(1, 1000, 10, {0.9, 1.0, 0.75, 4.0 / 3});
  EXPECT_EQ(wide.height, 10u);
  EXPECT_EQ(wide.width, 13u);
  EXPECT_EQ(wide.x, (1000u - 13u) / 2);
  Rect tall = Draw(1, 10, 1000, {0.9, 1.0, 0.75, 4.0 / 3});
  EXPECT_EQ(tall.width, 10u);
  EXPECT_EQ(tall.height, 13u);
  Rect pixel = Draw(1, 1, 1);
  EXPECT_EQ(pixel.width * pixel.height, 1u);
}

// The draws are a stored contract (docs/guide/transforms.md): these come from the page's own
// example in Python.
TEST(ResizedCrop, DrawsWhatTheGuideSays) {
  Rect a = DrawResizedCrop(OpRandom({0, 0, 0}, 0), {}, 500, 375);
  Rect b = DrawResizedCrop(OpRandom({7, 3, 123456789}, 2), {0.2, 0.9, 0.5, 1.5}, 640, 480);
  EXPECT_EQ(a.x, 195u);
  EXPECT_EQ(a.y, 98u);
  EXPECT_EQ(a.width, 191u);
  EXPECT_EQ(a.height, 227u);
  EXPECT_EQ(b.x, 151u);
  EXPECT_EQ(b.y, 43u);
  EXPECT_EQ(b.width, 450u);
  EXPECT_EQ(b.height, 392u);
}

}  // namespace
}  // namespace headrace::codec
