// Compiled once for each instruction set and chosen at run time. Most are plain loops, which the
// compiler vectorizes (with -O3).
#include "headrace/codec/pixel_kernels.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "headrace/codec/pixel_kernels.cc"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace headrace::codec {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

void LumaImpl(const uint8_t* red, const uint8_t* green, const uint8_t* blue, size_t count,
              uint8_t* luma) {
  for (size_t i = 0; i < count; ++i)
    luma[i] = static_cast<uint8_t>(
        (red[i] * 19595u + green[i] * 38470u + blue[i] * 7471u + 0x8000u) >> 16);
}

void BlendImpl(const uint8_t* HWY_RESTRICT base, float factor, size_t count,
               uint8_t* HWY_RESTRICT values) {
  for (size_t i = 0; i < count; ++i) {
    float product = factor * static_cast<float>(values[i] - base[i]);
    float sum = static_cast<float>(base[i]) + product;
    sum = sum < 0.0f ? 0.0f : sum;
    sum = sum > 255.0f ? 255.0f : sum;
    values[i] = static_cast<uint8_t>(static_cast<int32_t>(sum));
  }
}

// A block of pixels on its way to HSV and back. Float and double alternate as they do in Pillow:
// the borders between hues depend on it.
constexpr size_t kBlock = 64;
struct HsvBlock {
  float hue[kBlock], saturation[kBlock];
  int32_t h[kBlock], s[kBlock], v[kBlock];
  int32_t sector[kBlock], p[kBlock], q[kBlock], t[kBlock];
};

HWY_INLINE void ToHsv(const uint8_t* HWY_RESTRICT red, const uint8_t* HWY_RESTRICT green,
                      const uint8_t* HWY_RESTRICT blue, HsvBlock* HWY_RESTRICT block) {
  for (size_t i = 0; i < kBlock; ++i) {
    const int32_t r = red[i], g = green[i], b = blue[i];
    const int32_t most = std::max(r, std::max(g, b)), least = std::min(r, std::min(g, b));
    const auto range = static_cast<float>(std::max(most - least, 1));
    const float from_red = static_cast<float>(most - r) / range,
                from_green = static_cast<float>(most - g) / range,
                from_blue = static_cast<float>(most - b) / range;
    const bool is_red = r == most, is_green = g == most;
    const float base = is_red ? 0.0f : is_green ? 2.0f : 4.0f;
    const float plus = is_red ? from_blue : is_green ? from_red : from_green;
    const float minus = is_red ? from_green : is_green ? from_blue : from_red;
    block->hue[i] = static_cast<float>(static_cast<double>(base) + static_cast<double>(plus) -
                                       static_cast<double>(minus));
    block->saturation[i] = static_cast<float>(most - least) / static_cast<float>(std::max(most, 1));
    block->v[i] = most;
  }
  for (size_t i = 0; i < kBlock; ++i) {
    const double turn = static_cast<double>(block->hue[i]) / 6.0 + 1.0;
    const auto part = static_cast<float>(turn >= 1.0 ? turn - 1.0 : turn);
    block->h[i] = static_cast<int32_t>(static_cast<double>(part) * 255.0);
    block->s[i] = static_cast<int32_t>(static_cast<double>(block->saturation[i]) * 255.0);
  }
}

// NOLINTBEGIN(bugprone-incorrect-roundings): none is negative
// The three values, other than v, that a colour can have: rounded to the nearest, halves up.
HWY_INLINE void ComputeParts(HsvBlock* HWY_RESTRICT block) {
  for (size_t i = 0; i < kBlock; ++i) {
    const double sixths = static_cast<double>(block->h[i] * 6) / 255.0;
    const auto sector = static_cast<int32_t>(sixths);
    const auto part = static_cast<float>(sixths - static_cast<double>(sector));
    const auto saturation = static_cast<float>(static_cast<double>(block->s[i]) / 255.0);
    const double v = block->v[i], s = saturation, f = part;
    block->p[i] = static_cast<int32_t>(v * (1.0 - s) + 0.5);
    block->q[i] = static_cast<int32_t>(v * (1.0 - static_cast<double>(saturation * part)) + 0.5);
    block->t[i] = static_cast<int32_t>(v * (1.0 - s * (1.0 - f)) + 0.5);
    block->sector[i] = sector == 6 ? 0 : sector;
  }
}

// NOLINTEND(bugprone-incorrect-roundings)

HWY_INLINE void FromHsv(const HsvBlock& block, uint8_t* HWY_RESTRICT red,
                        uint8_t* HWY_RESTRICT green, uint8_t* HWY_RESTRICT blue) {
  for (size_t i = 0; i < kBlock; ++i) {
    const int32_t sector = block.sector[i], v = block.v[i], p = block.p[i], q = block.q[i],
                  t = block.t[i];
    const int32_t r = sector == 0 || sector == 5 ? v : sector == 1 ? q : sector == 4 ? t : p;
    const int32_t g = sector == 1 || sector == 2 ? v : sector == 3 ? q : sector == 0 ? t : p;
    const int32_t b = sector == 3 || sector == 4 ? v : sector == 5 ? q : sector == 2 ? t : p;
    red[i] = static_cast<uint8_t>(r);
    green[i] = static_cast<uint8_t>(g);
    blue[i] = static_cast<uint8_t>(b);
  }
}

void ShiftHueBlock(uint8_t* red, uint8_t* green, uint8_t* blue, uint8_t shift) {
  HsvBlock block;
  ToHsv(red, green, blue, &block);
  for (int32_t& h : block.h) h = (h + shift) & 255;
  ComputeParts(&block);
  FromHsv(block, red, green, blue);
}

void ShiftHueImpl(uint8_t* red, uint8_t* green, uint8_t* blue, size_t count, uint8_t shift) {
  size_t i = 0;
  for (; i + kBlock <= count; i += kBlock) ShiftHueBlock(red + i, green + i, blue + i, shift);
  if (i == count) return;
  uint8_t rest[3][kBlock] = {};
  uint8_t* planes[3] = {red + i, green + i, blue + i};
  for (int c = 0; c < 3; ++c) std::copy_n(planes[c], count - i, rest[c]);
  ShiftHueBlock(rest[0], rest[1], rest[2], shift);
  for (int c = 0; c < 3; ++c) std::copy_n(rest[c], count - i, planes[c]);
}

#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128

// The plain forms: what every other form must equal.
void BlurRowImpl(const uint8_t* padded, const int16_t* weights, uint32_t size, size_t count,
                 int16_t* sums) {
  for (size_t x = 0; x < count; ++x) {
    int32_t sum = 1 << 6;
    for (uint32_t k = 0; k < size; ++k) sum += padded[x + k] * weights[k];
    sums[x] = static_cast<int16_t>(sum >> 7);
  }
}

void BlurColumnsImpl(const int16_t* const* rows, const int16_t* weights, uint32_t size,
                     size_t count, uint8_t* out) {
  for (size_t x = 0; x < count; ++x) {
    int32_t sum = 1 << 20;
    for (uint32_t k = 0; k < size; ++k) sum += rows[k][x] * weights[k];
    out[x] = static_cast<uint8_t>(sum >> 21);
  }
}

#else

const hn::ScalableTag<int16_t> d16;
const hn::ScalableTag<int32_t> d32;
const hn::Rebind<uint8_t, hn::ScalableTag<int16_t> > d8;
using V16 = hn::Vec<hn::ScalableTag<int16_t> >;
using V32 = hn::Vec<hn::ScalableTag<int32_t> >;

// Weights k and k + 1 (0 behind the last), in turn.
HWY_INLINE V16 WeightPair(const int16_t* weights, uint32_t k, uint32_t size) {
  const auto low = static_cast<uint16_t>(weights[k]);
  const auto high = static_cast<uint16_t>(k + 1 < size ? weights[k + 1] : 0);
  return hn::BitCast(d16, hn::Set(d32, static_cast<int32_t>(uint32_t{low} | uint32_t{high} << 16)));
}

// a[i] * weights[0] + b[i] * weights[1] added to the sums, whose order Narrow undoes.
HWY_INLINE void PairMulAdd(V16 a, V16 b, V16 weights, V32* low, V32* high) {
  V32 upper_low = hn::Zero(d32), upper_high = hn::Zero(d32);
  const V32 lower_low = hn::ReorderWidenMulAccumulate(d32, hn::InterleaveLower(d16, a, b), weights,
                                                      hn::Zero(d32), upper_low);
  const V32 lower_high = hn::ReorderWidenMulAccumulate(d32, hn::InterleaveUpper(d16, a, b), weights,
                                                       hn::Zero(d32), upper_high);
  *low = hn::Add(*low, hn::RearrangeToOddPlusEven(lower_low, upper_low));
  *high = hn::Add(*high, hn::RearrangeToOddPlusEven(lower_high, upper_high));
}

template <int kShift>
HWY_INLINE V16 Narrow(V32 low, V32 high) {
  return hn::ReorderDemote2To(d16, hn::ShiftRight<kShift>(low), hn::ShiftRight<kShift>(high));
}

void BlurRowImpl(const uint8_t* HWY_RESTRICT padded, const int16_t* HWY_RESTRICT weights,
                 uint32_t size, size_t count, int16_t* HWY_RESTRICT sums) {
  for (size_t x = 0; x < count; x += hn::Lanes(d16)) {
    V32 low = hn::Set(d32, 1 << 6), high = low;
    for (uint32_t k = 0; k < size; k += 2) {
      const V16 a = hn::PromoteTo(d16, hn::LoadU(d8, padded + x + k));
      const V16 b = hn::PromoteTo(d16, hn::LoadU(d8, padded + x + k + 1));
      PairMulAdd(a, b, WeightPair(weights, k, size), &low, &high);
    }
    hn::StoreU(Narrow<7>(low, high), d16, sums + x);
  }
}

void BlurColumnsImpl(const int16_t* const* rows, const int16_t* HWY_RESTRICT weights, uint32_t size,
                     size_t count, uint8_t* HWY_RESTRICT out) {
  for (size_t x = 0; x < count; x += hn::Lanes(d16)) {
    V32 low = hn::Set(d32, 1 << 20), high = low;
    for (uint32_t k = 0; k < size; k += 2) {
      const V16 a = hn::LoadU(d16, rows[k] + x);
      const V16 b = hn::LoadU(d16, rows[k + 1 < size ? k + 1 : k] + x);
      PairMulAdd(a, b, WeightPair(weights, k, size), &low, &high);
    }
    hn::StoreU(hn::DemoteTo(d8, Narrow<21>(low, high)), d8, out + x);
  }
}

#endif

}  // namespace HWY_NAMESPACE
}  // namespace headrace::codec
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace headrace::codec {
HWY_EXPORT(LumaImpl);
HWY_EXPORT(BlendImpl);
HWY_EXPORT(ShiftHueImpl);
HWY_EXPORT(BlurRowImpl);
HWY_EXPORT(BlurColumnsImpl);

void LumaOfPlanes(const uint8_t* red, const uint8_t* green, const uint8_t* blue, size_t count,
                  uint8_t* luma) {
  HWY_DYNAMIC_DISPATCH(LumaImpl)(red, green, blue, count, luma);
}
void BlendPlane(const uint8_t* base, float factor, size_t count, uint8_t* values) {
  HWY_DYNAMIC_DISPATCH(BlendImpl)(base, factor, count, values);
}
void ShiftHueOfPlanes(uint8_t* red, uint8_t* green, uint8_t* blue, size_t count, uint8_t shift) {
  HWY_DYNAMIC_DISPATCH(ShiftHueImpl)(red, green, blue, count, shift);
}
void BlurRow(const uint8_t* padded, const int16_t* weights, uint32_t size, size_t count,
             int16_t* sums) {
  HWY_DYNAMIC_DISPATCH(BlurRowImpl)(padded, weights, size, count, sums);
}
void BlurColumns(const int16_t* const* rows, const int16_t* weights, uint32_t size, size_t count,
                 uint8_t* out) {
  HWY_DYNAMIC_DISPATCH(BlurColumnsImpl)(rows, weights, size, count, out);
}

}  // namespace headrace::codec
#endif  // HWY_ONCE
