// Compiled once for each instruction set and chosen at run time; see color_rows.h.
#include "headrace/codec/color_rows.h"

#include <algorithm>
#include <cstddef>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "headrace/codec/color_rows.cc"
// Vectors of an unknown number of 128-bit blocks would need another way of packing.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "headrace/codec/simd-inl.h"

#ifndef HEADRACE_CODEC_COLOR_ROWS_ONCE
#define HEADRACE_CODEC_COLOR_ROWS_ONCE
namespace headrace::codec {

// JFIF's conversion to RGB, scaled by 2^16 and less a whole number so that 16 bits hold it:
// 1.402 - 1, 1.772 - 2, -0.34414, 1 - 0.71414.
inline constexpr int kRedOfCr = 26345, kBlueOfCb = -14942, kGreenOfCb = -22554, kGreenOfCr = 18734;

}  // namespace headrace::codec
#endif

HWY_BEFORE_NAMESPACE();
namespace headrace::codec {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128

// The plain form: what every other form must equal.

// Chroma of pixel x, without the offset.
int ChromaAt(const ColorTask& t, const uint8_t* near, const uint8_t* far, uint32_t x) {
  if (!t.halved) return near[x] - 128;
  std::ptrdiff_t i = x / 2, beside = x % 2 ? i + 1 : i - 1;
  if (!far) return ((3 * near[i] + near[beside] + (x % 2 ? 2 : 1)) >> 2) - 128;
  int here = 3 * near[i] + far[i], there = 3 * near[beside] + far[beside];
  return ((3 * here + there + (x % 2 ? 7 : 8)) >> 4) - 128;
}

void ConvertColorRowImpl(const ColorTask& t) {
  for (uint32_t x = 0; x < t.pixels; ++x) {
    int y = t.y[x], cb = ChromaAt(t, t.cb, t.cb_far, x), cr = ChromaAt(t, t.cr, t.cr_far, x);
    int r = y + cr + ((kRedOfCr * cr + 32768) >> 16);
    int g = y - cr + ((kGreenOfCb * cb + kGreenOfCr * cr + 32768) >> 16);
    int b = y + 2 * cb + ((kBlueOfCb * cb + 32768) >> 16);
    t.rgb[3 * x] = static_cast<uint8_t>(std::clamp(r, 0, 255));
    t.rgb[3 * x + 1] = static_cast<uint8_t>(std::clamp(g, 0, 255));
    t.rgb[3 * x + 2] = static_cast<uint8_t>(std::clamp(b, 0, 255));
  }
}

void ConvertColorPlanesImpl(uint8_t* y, uint8_t* cb, uint8_t* cr, size_t pixels) {
  for (size_t i = 0; i < pixels; ++i) {
    uint8_t rgb[3];
    ConvertColorRowImpl({y + i, cb + i, cr + i, nullptr, nullptr, false, 1, rgb});
    y[i] = rgb[0];
    cb[i] = rgb[1];
    cr[i] = rgb[2];
  }
}

#else

// A vector of chroma for the even pixels and one for the odd ones, less the offset of 128.
struct Chroma {
  V16 even, odd;
};

HWY_INLINE V16 LoadSamples(const uint8_t* p) {
  return hn::PromoteTo(D16(), hn::LoadU(hn::Half<D8>(), p));
}

enum class ChromaForm { kFull, kHalfWidth, kHalf };

template <ChromaForm kForm>
HWY_INLINE Chroma LoadChroma(const uint8_t* near, const uint8_t* far) {
  const D16 d;
  const V16 offset = hn::Set(d, 128);
  if constexpr (kForm == ChromaForm::kFull) {
    const V16 both = hn::BitCast(d, hn::LoadU(D8(), near));
    const V16 odd =
        hn::BitCast(d, hn::ShiftRight<8>(hn::BitCast(hn::RebindToUnsigned<D16>(), both)));
    return {hn::Sub(hn::And(both, hn::Set(d, 255)), offset), hn::Sub(odd, offset)};
  } else {
    const auto triple = [](V16 v) HWY_ATTR { return hn::Add(v, hn::Add(v, v)); };
    const auto column = [&](std::ptrdiff_t at) HWY_ATTR {
      const V16 v = LoadSamples(near + at);
      if constexpr (kForm == ChromaForm::kHalfWidth) return v;
      return hn::Add(triple(v), LoadSamples(far + at));
    };
    constexpr int kShift = kForm == ChromaForm::kHalf ? 4 : 2;
    constexpr int kEvenRound = kForm == ChromaForm::kHalf ? 8 : 1;
    constexpr int kOddRound = kForm == ChromaForm::kHalf ? 7 : 2;
    const V16 here = triple(column(0));
    const V16 even = hn::Add(hn::Add(here, column(-1)), hn::Set(d, kEvenRound));
    const V16 odd = hn::Add(hn::Add(here, column(1)), hn::Set(d, kOddRound));
    return {hn::Sub(hn::ShiftRight<kShift>(even), offset),
            hn::Sub(hn::ShiftRight<kShift>(odd), offset)};
  }
}

struct Rgb {
  V16 r, g, b;  // 0 to 255
};

HWY_INLINE Rgb ToRgb(V16 y, V16 cb, V16 cr) {
  const D16 d;
  const D32 d32;
  const V16 one = hn::Set(d, 1);
  const auto scaled = [&](V16 twice, int factor) HWY_ATTR {
    return hn::ShiftRight<1>(
        hn::Add(hn::MulHigh(twice, hn::Set(d, static_cast<int16_t>(factor))), one));
  };
  const V16 cb2 = hn::Add(cb, cb), cr2 = hn::Add(cr, cr);
  const V16 r = hn::Add(hn::Add(y, cr), scaled(cr2, kRedOfCr));
  const V16 b = hn::Add(hn::Add(y, cb2), scaled(cb2, kBlueOfCb));
  const V16 factors = Factors(kGreenOfCb, kGreenOfCr);
  const V32 half = hn::Set(d32, 32768);
  const V32 low = PairMulAdd(hn::InterleaveLower(d, cb, cr), factors, half);
  const V32 high = PairMulAdd(hn::InterleaveUpper(d, cb, cr), factors, half);
  const V16 green = hn::ReorderDemote2To(d, hn::ShiftRight<16>(low), hn::ShiftRight<16>(high));
  const V16 g = hn::Add(hn::Sub(y, cr), green);
  const auto clamp = [&](V16 v)
                         HWY_ATTR { return hn::Min(hn::Max(v, hn::Zero(d)), hn::Set(d, 255)); };
  return {clamp(r), clamp(g), clamp(b)};
}

struct RgbBytes {
  V8 r, g, b;
};

HWY_INLINE RgbBytes ToRgbBytes(V8 luma, const Chroma& cb, const Chroma& cr) {
  const D8 d8;
  const D16 d;
  const hn::RebindToUnsigned<D16> du;
  const V16 y = hn::BitCast(d, luma);
  const Rgb even = ToRgb(hn::And(y, hn::Set(d, 255)), cb.even, cr.even);
  const Rgb odd = ToRgb(hn::BitCast(d, hn::ShiftRight<8>(hn::BitCast(du, y))), cb.odd, cr.odd);
  const auto join = [&](V16 a, V16 b)
                        HWY_ATTR { return hn::BitCast(d8, hn::Or(a, hn::ShiftLeft<8>(b))); };
  return {join(even.r, odd.r), join(even.g, odd.g), join(even.b, odd.b)};
}

template <ChromaForm kForm>
HWY_INLINE void ConvertRowOf(const ColorTask& t) {
  const D8 d8;
  for (size_t x = 0; x < t.pixels; x += hn::Lanes(d8)) {
    const size_t at = kForm == ChromaForm::kFull ? x : x / 2;
    const Chroma cb = LoadChroma<kForm>(t.cb + at, t.cb_far + (t.cb_far ? at : 0));
    const Chroma cr = LoadChroma<kForm>(t.cr + at, t.cr_far + (t.cr_far ? at : 0));
    const RgbBytes rgb = ToRgbBytes(hn::LoadU(d8, t.y + x), cb, cr);
    hn::StoreInterleaved3(rgb.r, rgb.g, rgb.b, d8, t.rgb + 3 * x);
  }
}

void ConvertColorPlanesImpl(uint8_t* y, uint8_t* cb, uint8_t* cr, size_t pixels) {
  const D8 d8;
  for (size_t x = 0; x < pixels; x += hn::Lanes(d8)) {
    const RgbBytes rgb =
        ToRgbBytes(hn::LoadU(d8, y + x), LoadChroma<ChromaForm::kFull>(cb + x, nullptr),
                   LoadChroma<ChromaForm::kFull>(cr + x, nullptr));
    hn::StoreU(rgb.r, d8, y + x);
    hn::StoreU(rgb.g, d8, cb + x);
    hn::StoreU(rgb.b, d8, cr + x);
  }
}

void ConvertColorRowImpl(const ColorTask& task) {
  if (!task.halved) return ConvertRowOf<ChromaForm::kFull>(task);
  if (!task.cb_far) return ConvertRowOf<ChromaForm::kHalfWidth>(task);
  return ConvertRowOf<ChromaForm::kHalf>(task);
}

#endif

}  // namespace HWY_NAMESPACE
}  // namespace headrace::codec
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace headrace::codec {

HWY_EXPORT(ConvertColorRowImpl);
HWY_EXPORT(ConvertColorPlanesImpl);

void ConvertColorRow(const ColorTask& task) { HWY_DYNAMIC_DISPATCH(ConvertColorRowImpl)(task); }

void ConvertColorPlanes(uint8_t* y, uint8_t* cb, uint8_t* cr, size_t pixels) {
  HWY_DYNAMIC_DISPATCH(ConvertColorPlanesImpl)(y, cb, cr, pixels);
}

}  // namespace headrace::codec
#endif  // HWY_ONCE
