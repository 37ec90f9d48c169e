#include "headrace/codec/draws.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

namespace headrace::codec {
namespace {

// ln 2 in two parts: the high one has 32 significant bits, so that k * kLn2High is exact.
constexpr double kLn2High = 0x1.62e42feep-1;
constexpr double kLn2Low = 0x1.a39ef35793c76p-33;
constexpr double kInverseLn2 = 0x1.71547652b82fep+0;

// 2^k for -1022 <= k <= 1023.
double PowerOfTwo(int k) { return std::bit_cast<double>(static_cast<uint64_t>(k + 1023) << 52); }

// The whole image, or its central part when its ratio is outside the limits.
Rect CentralCrop(const CropDistribution& d, uint32_t width, uint32_t height) {
  double ratio = static_cast<double>(width) / static_cast<double>(height);
  double w = width, h = height;
  if (ratio < d.ratio_min) h = RoundHalfEven(w / d.ratio_min);
  if (ratio > d.ratio_max) w = RoundHalfEven(h * d.ratio_max);
  // Extreme ratios round to nothing; at least one pixel stays.
  auto cw = static_cast<uint32_t>(std::clamp(w, 1.0, static_cast<double>(width)));
  auto ch = static_cast<uint32_t>(std::clamp(h, 1.0, static_cast<double>(height)));
  return {(width - cw) / 2, (height - ch) / 2, cw, ch};
}

double DrawFrom(KeyedRandom* random, const Range& range) {
  return range.min + (range.max - range.min) * random->NextDouble();
}

}  // namespace

double ExactExp(double x) {
  double k = RoundHalfEven(x * kInverseLn2);
  double r = (x - k * kLn2High) - k * kLn2Low;
  // Taylor's series to the 14th power, innermost first; |r| <= 0.347, so the rest is below 2^-60.
  double sum = 1.0;
  for (int n = 14; n >= 1; --n) sum = 1.0 + (r * sum) / static_cast<double>(n);
  int whole = static_cast<int>(k);
  int half = whole / 2;
  return sum * PowerOfTwo(half) * PowerOfTwo(whole - half);
}

double ExactLog(double x) {
  uint64_t bits = std::bit_cast<uint64_t>(x);
  int k = static_cast<int>((bits >> 52) & 2047) - 1023;
  double m = std::bit_cast<double>((bits & ((uint64_t{1} << 52) - 1)) | (uint64_t{1023} << 52));
  if (m > 1.4142135623730951) {
    m = m * 0.5;
    k = k + 1;
  }
  // ln m = 2 artanh(s), s = (m - 1) / (m + 1), |s| <= 0.1716: the series to s^23.
  double s = (m - 1.0) / (m + 1.0);
  double z = s * s;
  double sum = 0.0;
  for (int n = 23; n >= 3; n -= 2) sum = z * (sum + 1.0 / static_cast<double>(n));
  double tail = 2.0 * s * sum;
  double kd = static_cast<double>(k);
  return kd * kLn2High + (2.0 * s + (tail + kd * kLn2Low));
}

double RoundHalfEven(double x) {
  double low = std::floor(x);
  double part = x - low;
  if (part > 0.5) return low + 1.0;
  if (part < 0.5) return low;
  return low == 2.0 * std::floor(low * 0.5) ? low : low + 1.0;
}

KeyedRandom OpRandom(const DrawKey& key, uint64_t op_index) {
  return KeyedRandom(HashKey(key.seed, key.epoch, key.sample_id, op_index));
}

Rect DrawResizedCrop(KeyedRandom random, const CropDistribution& d, uint32_t width,
                     uint32_t height) {
  double area = static_cast<double>(width) * static_cast<double>(height);
  double log_min = ExactLog(d.ratio_min), log_max = ExactLog(d.ratio_max);
  for (int attempt = 0; attempt < 10; ++attempt) {
    double target = area * (d.scale_min + (d.scale_max - d.scale_min) * random.NextDouble());
    double ratio = ExactExp(log_min + (log_max - log_min) * random.NextDouble());
    double w = RoundHalfEven(std::sqrt(target * ratio));
    double h = RoundHalfEven(std::sqrt(target / ratio));
    if (!(w >= 1.0 && w <= static_cast<double>(width) && h >= 1.0 &&
          h <= static_cast<double>(height)))
      continue;
    auto cw = static_cast<uint32_t>(w), ch = static_cast<uint32_t>(h);
    auto top = static_cast<uint32_t>(random.NextBelow(height - ch + 1));
    auto left = static_cast<uint32_t>(random.NextBelow(width - cw + 1));
    return {left, top, cw, ch};
  }
  return CentralCrop(d, width, height);
}

ColorJitterDraw DrawColorJitter(KeyedRandom random, double p, const std::array<Range, 4>& ranges) {
  ColorJitterDraw draw;
  draw.applied = random.NextDouble() < p;
  draw.order = {0, 1, 2, 3};
  for (size_t i = 3; i > 0; --i) std::swap(draw.order[i], draw.order[random.NextBelow(i + 1)]);
  for (size_t i = 0; i < 4; ++i) draw.factors[i] = DrawFrom(&random, ranges[i]);
  return draw;
}

BlurDraw DrawBlur(KeyedRandom random, double p, const Range& sigma) {
  BlurDraw draw;
  draw.applied = random.NextDouble() < p;
  draw.sigma = DrawFrom(&random, sigma);
  return draw;
}

}  // namespace headrace::codec
