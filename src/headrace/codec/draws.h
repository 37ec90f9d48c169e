// The random draws of the image operations, exactly as docs/guide/transforms.md defines them. The
// same key gives the same draws on every machine: only exact IEEE double operations in a fixed
// order are used, no mathematical library. Pure, safe from any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "headrace/base/keyed_random.h"
#include "headrace/codec/image.h"
#include "headrace/codec/transform.h"

namespace headrace::codec {

// e^x and ln(x), the same bits everywhere, within 2 units in the last place. x finite, |x| <= 700;
// for the logarithm x > 0 and normal.
double ExactExp(double x);
double ExactLog(double x);
// Rounds to the nearest whole number, halves to the even one (as Python's round). |x| < 2^51.
double RoundHalfEven(double x);

struct CropDistribution {
  double scale_min = 0.08, scale_max = 1.0;        // share of the area
  double ratio_min = 0.75, ratio_max = 4.0 / 3.0;  // width / height
};

// Views of one sample draw from streams of their own, numbered up to this.
constexpr uint64_t kMaxStream = (uint64_t{1} << 31) - 1;
// What stands for position `op` of "ops" in the key of a stream's draws.
constexpr uint64_t OpIndex(uint64_t op, uint64_t stream) { return op + (stream << 32); }
// The generator of operation number `op_index` (OpIndex) for one sample.
KeyedRandom OpRandom(const DrawKey& key, uint64_t op_index);

// Draws torchvision's RandomResizedCrop rectangle of a width x height image (both > 0).
Rect DrawResizedCrop(KeyedRandom random, const CropDistribution& distribution, uint32_t width,
                     uint32_t height);

struct Range {
  double min = 0.0, max = 0.0;
};

// torchvision's ColorJitter: whether it is applied, in which order its four adjustments come
// (0 brightness, 1 contrast, 2 saturation, 3 hue), and the factor of each.
struct ColorJitterDraw {
  bool applied = false;
  std::array<uint8_t, 4> order{};
  std::array<double, 4> factors{};
};
ColorJitterDraw DrawColorJitter(KeyedRandom random, double p, const std::array<Range, 4>& ranges);

// Whether a blur is applied, and its sigma.
struct BlurDraw {
  bool applied = false;
  double sigma = 0.0;
};
BlurDraw DrawBlur(KeyedRandom random, double p, const Range& sigma);

}  // namespace headrace::codec
