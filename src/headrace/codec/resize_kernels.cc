// The resampling kernels, compiled once for each instruction set and chosen at run time.
//
// A weighted sum of rows vectorizes along the row, so both passes are that one routine: a band of
// 64 rows is transposed (blocks of 16 x 16 bytes), its columns are summed, the result is transposed
// back, and its rows are summed. Mirroring is only another order of the sums. The window of rows
// between the passes is as tall as the filter and a band, so everything stays in the near caches.
#include <algorithm>
#include <cstring>

#include "headrace/codec/element.h"
#include "headrace/codec/resize.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "headrace/codec/resize_kernels.cc"
// Vectors of an unknown number of 128-bit blocks would need another way of packing.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "headrace/codec/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace headrace::codec {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int kPrecision = AxisTaps::kPrecision, kLowBits = AxisTaps::kLowBits;
constexpr size_t kBand = ResizeJob::kBandRows;

// What is added to a sum of `count` coarse products, in 1/256.
constexpr uint32_t CoarseRound(uint32_t count) { return 128 + std::min(count / 2, 127u); }

#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128

// The plain form: what every other form must equal.
void WeightedSum(const uint8_t* src, size_t step, uint32_t count, const uint32_t* pairs,
                 uint8_t* dst, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) {
    uint32_t sum = 1u << (kPrecision - 1);
    for (uint32_t k = 0; k < count; ++k) {
      uint32_t shift = (k & 1) * 16, high = pairs[k / 2 * 2] >> shift & 0xffff,
               low = pairs[k / 2 * 2 + 1] >> shift & 0xffff;
      sum += src[i + k * step] * ((high << kLowBits) + low);
    }
    dst[i] = static_cast<uint8_t>(std::min(sum >> kPrecision, 255u));
  }
}

void CoarseSum(const uint8_t* src, size_t step, uint32_t count, const uint32_t* weights,
               uint8_t* dst, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) {
    uint32_t sum = CoarseRound(count);
    for (uint32_t k = 0; k < count; ++k) sum += src[i + k * step] * weights[k] >> 8;
    dst[i] = static_cast<uint8_t>(sum >> 8);
  }
}

void BandToColumns(const uint8_t* const* rows, size_t offset, uint8_t* dst) {
  for (size_t y = 0; y < kBand; ++y)
    for (size_t x = 0; x < 16; ++x) dst[x * kBand + y] = rows[y][offset + x];
}

void ColumnsToBand(const uint8_t* columns, size_t step, uint8_t* dst, size_t stride) {
  for (size_t y = 0; y < kBand; ++y)
    for (size_t x = 0; x < 16; ++x) dst[y * stride + x] = columns[x * step + y];
}

// Pixels done in vectors; the caller does the rest.
size_t SpreadVectors(const uint8_t*, size_t, uint8_t*) { return 0; }

// Elements done in vectors; the caller does the rest.
size_t ConvertVectors(const uint8_t*, size_t, const float*, const float*, DType, std::byte*) {
  return 0;
}

#else

// Sums of one vector of columns. kPairs = 0: any number.
template <uint32_t kPairs>
HWY_INLINE void WeightedSumVector(const uint8_t* HWY_RESTRICT src, size_t step, uint32_t count,
                                  const uint32_t* HWY_RESTRICT pairs, uint8_t* HWY_RESTRICT dst) {
  const D8 d8;
  const D32 d32;
  const hn::ScalableTag<int16_t> d16;
  const V8 zero = hn::Zero(d8);
  V32 h0 = hn::Zero(d32), h1 = h0, h2 = h0, h3 = h0;
  V32 l0 = hn::Set(d32, 1 << (kPrecision - 1)), l1 = l0, l2 = l0, l3 = l0;
  const uint32_t num_pairs = kPairs ? kPairs : (count + 1) / 2;
  for (uint32_t p = 0; p < num_pairs; ++p, src += 2 * step, pairs += 2) {
    const V8 a = hn::LoadU(d8, src);
    const V8 b = hn::LoadU(d8, 2 * p + 1 < count ? src + step : src);
    const auto high = hn::BitCast(d16, hn::Set(d32, static_cast<int32_t>(pairs[0])));
    const auto low = hn::BitCast(d16, hn::Set(d32, static_cast<int32_t>(pairs[1])));
    const V8 ab0 = hn::InterleaveLower(d8, a, b), ab1 = hn::InterleaveUpper(d8, a, b);
    const V8 p0 = hn::InterleaveLower(d8, ab0, zero), p1 = hn::InterleaveUpper(d8, ab0, zero);
    const V8 p2 = hn::InterleaveLower(d8, ab1, zero), p3 = hn::InterleaveUpper(d8, ab1, zero);
    h0 = PairMulAdd(hn::BitCast(d16, p0), high, h0);
    h1 = PairMulAdd(hn::BitCast(d16, p1), high, h1);
    h2 = PairMulAdd(hn::BitCast(d16, p2), high, h2);
    h3 = PairMulAdd(hn::BitCast(d16, p3), high, h3);
    l0 = PairMulAdd(hn::BitCast(d16, p0), low, l0);
    l1 = PairMulAdd(hn::BitCast(d16, p1), low, l1);
    l2 = PairMulAdd(hn::BitCast(d16, p2), low, l2);
    l3 = PairMulAdd(hn::BitCast(d16, p3), low, l3);
  }
  const auto finish = [](V32 high, V32 low) HWY_ATTR {
    return hn::ShiftRight<kPrecision>(hn::Add(hn::ShiftLeft<kLowBits>(high), low));
  };
  // Packing works in the 128-bit blocks in which the interleaving worked, so the order is back.
  const auto w0 = hn::ReorderDemote2To(d16, finish(h0, l0), finish(h1, l1));
  const auto w1 = hn::ReorderDemote2To(d16, finish(h2, l2), finish(h3, l3));
  hn::StoreU(PackBytes(w0, w1), d8, dst);
}

template <uint32_t kPairs>
HWY_INLINE void WeightedSumRow(const uint8_t* src, size_t step, uint32_t count,
                               const uint32_t* pairs, uint8_t* dst, size_t bytes) {
  for (size_t i = 0; i < bytes; i += hn::Lanes(D8()))
    WeightedSumVector<kPairs>(src + i, step, count, pairs, dst + i);
}

// dst[i] = round(sum of weight[k] * src[k * step + i]). `bytes` is a multiple of 64.
void WeightedSum(const uint8_t* src, size_t step, uint32_t count, const uint32_t* pairs,
                 uint8_t* dst, size_t bytes) {
  switch ((count + 1) / 2) {
    case 1:
      return WeightedSumRow<1>(src, step, count, pairs, dst, bytes);
    case 2:
      return WeightedSumRow<2>(src, step, count, pairs, dst, bytes);
    case 3:
      return WeightedSumRow<3>(src, step, count, pairs, dst, bytes);
    default:
      return WeightedSumRow<0>(src, step, count, pairs, dst, bytes);
  }
}

// The same with coarse weights. Each product loses half a unit of 1/256 on average.
void CoarseSum(const uint8_t* src, size_t step, uint32_t count, const uint32_t* weights,
               uint8_t* dst, size_t bytes) {
  const D8 d8;
  const hn::ScalableTag<uint16_t> d16;
  const V8 zero = hn::Zero(d8);
  const auto round = hn::Set(d16, static_cast<uint16_t>(CoarseRound(count)));
  for (size_t i = 0; i < bytes; i += hn::Lanes(d8)) {
    auto low = round, high = round;
    const uint8_t* p = src + i;
    for (uint32_t k = 0; k < count; ++k, p += step) {
      const V8 v = hn::LoadU(d8, p);
      const auto weight = hn::Set(d16, static_cast<uint16_t>(weights[k]));
      low = hn::Add(low, hn::MulHigh(hn::BitCast(d16, hn::InterleaveLower(d8, zero, v)), weight));
      high = hn::Add(high, hn::MulHigh(hn::BitCast(d16, hn::InterleaveUpper(d8, zero, v)), weight));
    }
    hn::StoreU(PackBytes(hn::BitCast(D16(), hn::ShiftRight<8>(low)),
                         hn::BitCast(D16(), hn::ShiftRight<8>(high))),
               d8, dst + i);
  }
}

// clang-format off
// A step of the transposition below: interleaves vector i with vector i + 8.
#define HR_INTERLEAVE(to, from, i)                              \
  to[2 * i] = hn::InterleaveLower(D8(), from[i], from[i + 8]);  \
  to[2 * i + 1] = hn::InterleaveUpper(D8(), from[i], from[i + 8]);
#define HR_INTERLEAVE_ALL(to, from)                                                 \
  HR_INTERLEAVE(to, from, 0) HR_INTERLEAVE(to, from, 1) HR_INTERLEAVE(to, from, 2)  \
  HR_INTERLEAVE(to, from, 3) HR_INTERLEAVE(to, from, 4) HR_INTERLEAVE(to, from, 5)  \
  HR_INTERLEAVE(to, from, 6) HR_INTERLEAVE(to, from, 7)
#define HR_EACH_OF_16(F) \
  F(0) F(1) F(2) F(3) F(4) F(5) F(6) F(7) F(8) F(9) F(10) F(11) F(12) F(13) F(14) F(15)
// clang-format on

// Transposes the 16 x 16 bytes in each 128-bit block of 16 vectors by themselves. Written out,
// since arrays that loops run over would live in memory.
HWY_INLINE void TransposeBlocks(V8 (&a)[16]) {
  V8 b[16];
  HR_INTERLEAVE_ALL(b, a)
  HR_INTERLEAVE_ALL(a, b)
  HR_INTERLEAVE_ALL(b, a)
  HR_INTERLEAVE_ALL(a, b)
}

// 16 bytes at `offset` of each of the rows r, r + 16, r + 32..., one row a block.
HWY_INLINE V8 LoadBlocks(const uint8_t* const* rows, size_t offset) {
  const hn::Full128<uint8_t> d128;
#if HWY_MAX_BYTES >= 32
  const hn::Full256<uint8_t> d256;
  const auto low =
      hn::Combine(d256, hn::LoadU(d128, rows[16] + offset), hn::LoadU(d128, rows[0] + offset));
#if HWY_MAX_BYTES >= 64
  return hn::Combine(
      D8(),
      hn::Combine(d256, hn::LoadU(d128, rows[48] + offset), hn::LoadU(d128, rows[32] + offset)),
      low);
#else
  return low;
#endif
#else
  return hn::LoadU(d128, rows[0] + offset);
#endif
}

// Stores one block a row: at dst, dst + 16 * stride...
HWY_INLINE void StoreBlocks(V8 v, uint8_t* dst, size_t stride) {
  const hn::Full128<uint8_t> d128;
#if HWY_MAX_BYTES >= 32
  const hn::Full256<uint8_t> d256;
#if HWY_MAX_BYTES >= 64
  const auto high = hn::UpperHalf(d256, v);
  hn::StoreU(hn::LowerHalf(d128, high), d128, dst + 32 * stride);
  hn::StoreU(hn::UpperHalf(d128, high), d128, dst + 48 * stride);
  const auto low = hn::LowerHalf(d256, v);
#else
  const auto low = v;
#endif
  hn::StoreU(hn::LowerHalf(d128, low), d128, dst);
  hn::StoreU(hn::UpperHalf(d128, low), d128, dst + 16 * stride);
#else
  hn::StoreU(v, d128, dst);
#endif
}

// dst[x][y] = rows[y][offset + x] for 16 columns x of a band's 64 rows y.
HWY_INLINE void BandToColumns(const uint8_t* const* HWY_RESTRICT rows, size_t offset,
                              uint8_t* HWY_RESTRICT dst) {
  for (size_t y = 0; y < kBand;
       y += hn::Lanes(D8()), rows += hn::Lanes(D8()), dst += hn::Lanes(D8())) {
    V8 v[16];
#define HR_LOAD(i) v[i] = LoadBlocks(rows + i, offset);
    HR_EACH_OF_16(HR_LOAD)
    TransposeBlocks(v);
#define HR_STORE(i) hn::StoreU(v[i], D8(), dst + i * kBand);
    HR_EACH_OF_16(HR_STORE)
#undef HR_LOAD
#undef HR_STORE
  }
}

// dst[y][x] = columns[x][y] for 16 columns x, `step` bytes apart, of a band's 64 rows y.
HWY_INLINE void ColumnsToBand(const uint8_t* HWY_RESTRICT columns, size_t step,
                              uint8_t* HWY_RESTRICT dst, size_t stride) {
  for (size_t y = 0; y < kBand;
       y += hn::Lanes(D8()), columns += hn::Lanes(D8()), dst += hn::Lanes(D8()) * stride) {
    V8 v[16];
#define HR_LOAD(i) v[i] = hn::LoadU(D8(), columns + i * step);
    HR_EACH_OF_16(HR_LOAD)
    TransposeBlocks(v);
#define HR_STORE(i) StoreBlocks(v[i], dst + i * stride, stride);
    HR_EACH_OF_16(HR_STORE)
#undef HR_LOAD
#undef HR_STORE
  }
}
#undef HR_INTERLEAVE
#undef HR_INTERLEAVE_ALL
#undef HR_EACH_OF_16

// Pixels done in vectors; the caller does the rest.
size_t SpreadVectors(const uint8_t* HWY_RESTRICT gray, size_t count, uint8_t* HWY_RESTRICT rgb) {
  const D8 d8;
  size_t i = 0;
  for (; i + hn::Lanes(d8) <= count; i += hn::Lanes(d8)) {
    const V8 v = hn::LoadU(d8, gray + i);
    hn::StoreInterleaved3(v, v, v, d8, rgb + 3 * i);
  }
  return i;
}

// The bits of a float32 rounded to a half, as FloatToHalf does.
HWY_INLINE V32 HalfBits(hn::Vec<hn::ScalableTag<float> > value) {
  const D32 d32;
  const hn::ScalableTag<float> df;
  const V32 bits = hn::BitCast(d32, value);
  const V32 magnitude = hn::And(bits, hn::Set(d32, 0x7fffffff));
  const V32 sign =
      hn::And(hn::BitCast(d32, hn::ShiftRight<16>(hn::BitCast(hn::ScalableTag<uint32_t>(), bits))),
              hn::Set(d32, 0x8000));
  const V32 odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(d32, 1));
  const V32 normal =
      hn::ShiftRight<13>(hn::Add(hn::Sub(magnitude, hn::Set(d32, 0x38000000 - 0xfff)), odd));
  const V32 tiny = hn::Sub(hn::BitCast(d32, hn::Add(hn::BitCast(df, magnitude), hn::Set(df, 0.5f))),
                           hn::Set(d32, 0x3f000000));
  V32 half = hn::IfThenElse(hn::Lt(magnitude, hn::Set(d32, 0x38800000)), tiny, normal);
  half = hn::IfThenElse(hn::Gt(magnitude, hn::Set(d32, 0x477fffff)), hn::Set(d32, 0x7c00), half);
  half = hn::IfThenElse(hn::Gt(magnitude, hn::Set(d32, 0x7f800000)), hn::Set(d32, 0x7e00), half);
  return hn::Or(half, sign);
}

HWY_INLINE V32 Bfloat16Bits(hn::Vec<hn::ScalableTag<float> > value) {
  const hn::ScalableTag<uint32_t> du;
  const auto bits = hn::BitCast(du, value);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1));
  return hn::BitCast(D32(), hn::ShiftRight<16>(hn::Add(hn::Add(bits, hn::Set(du, 0x7fff)), odd)));
}

// Elements done in vectors; the caller does the rest.
size_t ConvertVectors(const uint8_t* HWY_RESTRICT values, size_t count,
                      const float* HWY_RESTRICT mul, const float* HWY_RESTRICT add, DType dtype,
                      std::byte* HWY_RESTRICT out) {
  const D32 d32;
  const hn::ScalableTag<float> df;
  const hn::Rebind<uint8_t, D32> d8;
  const hn::Rebind<uint16_t, D32> d16;
  const size_t lanes = hn::Lanes(d32);
  const auto normalized = [&](size_t i) HWY_ATTR {
    const auto value = hn::ConvertTo(df, hn::PromoteTo(d32, hn::LoadU(d8, values + i)));
    return hn::Add(hn::Mul(value, hn::LoadU(df, mul + i)), hn::LoadU(df, add + i));
  };
  size_t i = 0;
  if (dtype == DType::kFloat32)
    for (; i + lanes <= count; i += lanes)
      hn::StoreU(normalized(i), df, reinterpret_cast<float*>(out) + i);
  if (dtype == DType::kFloat16)
    for (; i + lanes <= count; i += lanes)
      hn::StoreU(hn::DemoteTo(d16, HalfBits(normalized(i))), d16,
                 reinterpret_cast<uint16_t*>(out) + i);
  if (dtype == DType::kBfloat16)
    for (; i + lanes <= count; i += lanes)
      hn::StoreU(hn::DemoteTo(d16, Bfloat16Bits(normalized(i))), d16,
                 reinterpret_cast<uint16_t*>(out) + i);
  return i;
}

#endif  // HWY_SCALAR

// One channel to three equal ones.
void SpreadGray(const uint8_t* gray, size_t count, uint8_t* rgb) {
  for (size_t i = SpreadVectors(gray, count, rgb); i < count; ++i)
    rgb[3 * i] = rgb[3 * i + 1] = rgb[3 * i + 2] = gray[i];
}

void ConvertRowImpl(const uint8_t* values, size_t count, const float* mul, const float* add,
                    DType dtype, std::byte* out) {
  if (dtype == DType::kUint8) {
    std::memcpy(out, values, count);
    return;
  }
  for (size_t i = ConvertVectors(values, count, mul, add, dtype, out); i < count; ++i) {
    float product = static_cast<float>(values[i]) * mul[i];
    float value = product + add[i];
    uint16_t half = dtype == DType::kFloat16 ? FloatToHalf(value) : FloatToBfloat16(value);
    if (dtype == DType::kFloat32)
      std::memcpy(out + 4 * i, &value, 4);
    else
      std::memcpy(out + 2 * i, &half, 2);
  }
}

// Transposes the finished columns into a band of the window: rows of interleaved pixels, or a row
// of each channel after the other. What is written past the end of one channel's row is overwritten
// by the next channel; the window's rows have room for the last. Gray stays one channel.
void ColumnsToRows(const ResizeJob& job, uint8_t* dst) {
  const size_t width = job.x->num_outputs(), channels = job.view.channels;
  const size_t planes = job.format->channels_last ? 1 : channels, step = channels / planes;
  for (size_t c = 0; c < planes; ++c)
    for (size_t x = 0; x < width * step; x += 16)
      ColumnsToBand(job.columns + (x * planes + c) * kBand, planes * kBand, dst + c * width + x,
                    job.window_stride);
}

// First pass over the rows [y, y + 64) of the source: into 64 rows at `dst` of the window.
void ResampleColumns(const ResizeJob& job, uint32_t y, uint8_t* dst) {
  const uint8_t* rows[kBand];
  for (uint32_t i = 0; i < kBand; ++i)
    rows[i] = job.view.data + size_t{std::min(y + i, job.view.height - 1)} * job.view.stride;
  const size_t source_bytes = size_t{job.view.width} * job.view.channels;
  for (size_t x = 0; x < source_bytes; x += 16) BandToColumns(rows, x, job.band + x * kBand);

  const uint32_t width = job.x->num_outputs();
  const size_t step = size_t{job.view.channels} * kBand;
  const auto sum = job.x->coarse() ? CoarseSum : WeightedSum;
  for (uint32_t x = 0; x < width; ++x) {
    const AxisTaps::Output& taps = job.x->output(x);
    sum(job.band + taps.first * step, step, taps.count, job.x->pairs() + 2 * size_t{taps.pair},
        job.columns + x * step, step);
  }
  ColumnsToRows(job, dst);
}

// Writes the finished row number `y` of the wanted ones. Gray is given to each channel here.
void WriteRow(const ResizeJob& job, uint32_t y) {
  const OutputFormat& f = *job.format;
  const size_t element = DTypeBytes(f.dtype);
  const size_t width = job.x->num_outputs(), row = job.top + y;
  const bool spread = job.view.channels < f.channels;
  if (f.channels_last) {
    if (spread) SpreadGray(job.row, width, job.spread);
    return ConvertRowImpl(spread ? job.spread : job.row, width * f.channels, f.mul.data(),
                          f.add.data(), f.dtype,
                          job.out + (row * f.width + job.left) * f.channels * element);
  }
  for (size_t c = 0; c < f.channels; ++c)
    ConvertRowImpl(job.row + (spread ? 0 : c * width), width, f.mul.data() + c * f.width,
                   f.add.data() + c * f.width, f.dtype,
                   job.out + ((c * f.height + row) * f.width + job.left) * element);
}

void RunResizeJobImpl(const ResizeJob& job) {
  uint32_t base = 0, held = 0, next = 0;  // the window holds the source rows [base, base + held)
  const uint32_t outputs = job.y->num_outputs();
  const auto sum = job.y->coarse() ? CoarseSum : WeightedSum;
  for (uint32_t y = 0; y < job.view.height; y += kBand) {
    if (held + kBand > job.window_rows) {
      uint32_t unused = std::min(job.y->output(next).first - base, held);
      std::memmove(job.window, job.window + unused * job.window_stride,
                   (held - unused) * job.window_stride);
      base += unused;
      held -= unused;
    }
    ResampleColumns(job, y, job.window + held * job.window_stride);
    held += std::min<uint32_t>(kBand, job.view.height - y);
    for (; next < outputs; ++next) {
      const AxisTaps::Output& taps = job.y->output(next);
      if (taps.first + taps.count > base + held) break;
      sum(job.window + (taps.first - base) * job.window_stride, job.window_stride, taps.count,
          job.y->pairs() + 2 * size_t{taps.pair}, job.row, job.window_stride);
      WriteRow(job, next);
    }
    if (next == outputs) break;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace headrace::codec
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace headrace::codec {

HWY_EXPORT(RunResizeJobImpl);
HWY_EXPORT(ConvertRowImpl);

void RunResizeJob(const ResizeJob& job) { HWY_DYNAMIC_DISPATCH(RunResizeJobImpl)(job); }

void ConvertRow(const uint8_t* values, size_t count, const float* mul, const float* add,
                DType dtype, std::byte* out) {
  HWY_DYNAMIC_DISPATCH(ConvertRowImpl)(values, count, mul, add, dtype, out);
}

}  // namespace headrace::codec
#endif  // HWY_ONCE
