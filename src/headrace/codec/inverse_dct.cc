// Compiled once for each instruction set and chosen at run time; see inverse_dct.h.
#include "headrace/codec/inverse_dct.h"

#include <algorithm>
#include <array>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "headrace/codec/inverse_dct.cc"
// Vectors of an unknown number of 128-bit blocks would need another way of packing.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "headrace/codec/simd-inl.h"

#ifndef HEADRACE_CODEC_INVERSE_DCT_ONCE
#define HEADRACE_CODEC_INVERSE_DCT_ONCE
namespace headrace::codec {

// Constants of the islow inverse DCT, scaled by 2^13 (jidctint.c names them so).
inline constexpr int kFix0298 = 2446, kFix0390 = 3196, kFix0541 = 4433, kFix0765 = 6270,
                     kFix0899 = 7373, kFix1175 = 9633, kFix1501 = 12299, kFix1847 = 15137,
                     kFix1961 = 16069, kFix2053 = 16819, kFix2562 = 20995, kFix3072 = 25172;

// Constants of the reduced transforms (jidctred.c).
inline constexpr int kFix0211 = 1730, kFix0509 = 4176, kFix0601 = 4926, kFix1061 = 8697,
                     kFix1451 = 11893, kFix2172 = 17799, kFix0720 = 5906, kFix0850 = 6967,
                     kFix1272 = 10426, kFix3624 = 29692;

inline int16_t* DctBlock(const DctTask& task, uint32_t i) {
  return task.blocks + i / task.per_mcu * task.mcu_step + i % task.per_mcu * 64;
}

inline int16_t Dequantized(const DctTask& task, const int16_t* block, size_t place) {
  return static_cast<int16_t>(block[place] * task.quantization[place]);
}

inline uint8_t ClampSample(int64_t value) {
  return static_cast<uint8_t>(std::clamp<int64_t>(value + 128, 0, 255));
}

// libjpeg has no vector code for the reduction to one sample: its table takes ten bits of the
// value.
inline uint8_t WrapSample(int64_t value) { return ClampSample(((value + 512) & 1023) - 512); }

// Sums wrap in 32 bits, as in vectors.
inline int64_t RoundedShift(int64_t value, int shift) {
  return static_cast<int32_t>(value + (int64_t{1} << (shift - 1))) >> shift;
}

inline int16_t ClampWord(int64_t value) {
  return static_cast<int16_t>(std::clamp<int64_t>(value, INT16_MIN, INT16_MAX));
}

// Two samples a side, from the even first and the odd coefficients.
inline void InverseDct2(const DctTask& task, const int16_t* block, uint8_t* out) {
  constexpr size_t kColumns[] = {0, 1, 3, 5, 7};
  int64_t half[2][8];
  auto pass = [](int64_t c0, int64_t c1, int64_t c3, int64_t c5, int64_t c7, int64_t* sum,
                 int64_t* difference) {
    int64_t odd = c7 * -kFix0720 + c5 * kFix0850 + c3 * -kFix1272 + c1 * kFix3624;
    *sum = c0 * 32768 + odd;
    *difference = c0 * 32768 - odd;
  };
  for (size_t x : kColumns) {
    auto at = [&](size_t y) { return Dequantized(task, block, 8 * y + x); };
    pass(at(0), at(1), at(3), at(5), at(7), &half[0][x], &half[1][x]);
    // Only what is multiplied next must fit into 16 bits.
    for (auto& row : half) {
      row[x] = RoundedShift(row[x], 13);
      if (x > 0) row[x] = ClampWord(row[x]);
    }
  }
  for (size_t y = 0; y < 2; ++y) {
    const int64_t* r = half[y];
    int64_t left, right;
    pass(r[0], r[1], r[3], r[5], r[7], &left, &right);
    out[y * task.stride] = ClampSample(RoundedShift(left, 20));
    out[y * task.stride + 1] = ClampSample(RoundedShift(right, 20));
  }
}

// Reductions to two samples and one, which are small enough for plain code.
inline void InverseDctSmall(const DctTask& task) {
  for (uint32_t i = 0; i < task.num_blocks; ++i) {
    int16_t* block = DctBlock(task, i);
    uint8_t* out = task.out + size_t{i} * task.side;
    if (task.side == 2)
      InverseDct2(task, block, out);
    else
      *out = WrapSample(RoundedShift(Dequantized(task, block, 0), 3));
    std::fill_n(block, 64, int16_t{0});
  }
}

}  // namespace headrace::codec
#endif

HWY_BEFORE_NAMESPACE();
namespace headrace::codec {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128

// The plain form: what every other form must equal.

// One pass over a column (or row) of 8 values. Sums of inputs are kept in 16 bits, as libjpeg-turbo
// does.
template <int kShift>
void DctPass(const std::array<int16_t, 8>& in, std::array<int16_t, 8>* out) {
  auto wrap = [](int a) { return static_cast<int>(static_cast<int16_t>(a)); };
  auto done = [](int64_t sum) { return ClampWord(RoundedShift(sum, kShift)); };
  int z3 = wrap(in[3] + in[7]), z4 = wrap(in[1] + in[5]);
  int64_t t3 = in[2] * int64_t{kFix0541 + kFix0765} + in[6] * int64_t{kFix0541};
  int64_t t2 = in[2] * int64_t{kFix0541} + in[6] * int64_t{kFix0541 - kFix1847};
  int64_t t0 = wrap(in[0] + in[4]) * int64_t{8192}, t1 = wrap(in[0] - in[4]) * int64_t{8192};
  int64_t y3 = z3 * int64_t{kFix1175 - kFix1961} + z4 * int64_t{kFix1175};
  int64_t y4 = z3 * int64_t{kFix1175} + z4 * int64_t{kFix1175 - kFix0390};
  int64_t q0 = in[7] * int64_t{kFix0298 - kFix0899} - in[1] * int64_t{kFix0899} + y3;
  int64_t q3 = in[1] * int64_t{kFix1501 - kFix0899} - in[7] * int64_t{kFix0899} + y4;
  int64_t q1 = in[5] * int64_t{kFix2053 - kFix2562} - in[3] * int64_t{kFix2562} + y4;
  int64_t q2 = in[3] * int64_t{kFix3072 - kFix2562} - in[5] * int64_t{kFix2562} + y3;
  *out = {done(t0 + t3 + q3), done(t1 + t2 + q2), done(t1 - t2 + q1), done(t0 - t3 + q0),
          done(t0 - t3 - q0), done(t1 - t2 - q1), done(t1 + t2 - q2), done(t0 + t3 - q3)};
}

void Dct4Pass(const std::array<int16_t, 8>& c, int shift, std::array<int16_t, 4>* out) {
  int64_t even = c[2] * kFix1847 - c[6] * kFix0765, dc = c[0] * int64_t{16384};
  int64_t near = c[7] * int64_t{-kFix0211} + c[5] * int64_t{kFix1451} - c[3] * int64_t{kFix2172} +
                 c[1] * int64_t{kFix1061};
  int64_t far = c[7] * int64_t{-kFix0509} - c[5] * int64_t{kFix0601} + c[3] * int64_t{kFix0899} +
                c[1] * int64_t{kFix2562};
  auto done = [&](int64_t v) { return ClampWord(RoundedShift(v, shift)); };
  *out = {done(dc + even + far), done(dc - even + near), done(dc - even - near),
          done(dc + even - far)};
}

void InverseDct4(const DctTask& task) {
  for (uint32_t i = 0; i < task.num_blocks; ++i) {
    int16_t* block = DctBlock(task, i);
    std::array<std::array<int16_t, 4>, 8> columns;
    for (size_t x = 0; x < 8; ++x) {
      std::array<int16_t, 8> column;
      for (size_t y = 0; y < 8; ++y) column[y] = Dequantized(task, block, 8 * y + x);
      Dct4Pass(column, 12, &columns[x]);
    }
    for (size_t y = 0; y < 4; ++y) {
      std::array<int16_t, 8> row;
      std::array<int16_t, 4> out;
      for (size_t x = 0; x < 8; ++x) row[x] = columns[x][y];
      Dct4Pass(row, 19, &out);
      for (size_t x = 0; x < 4; ++x)
        task.out[y * task.stride + 4 * size_t{i} + x] = ClampSample(out[x]);
    }
    std::fill_n(block, 64, int16_t{0});
  }
}

void InverseDct8(const DctTask& task) {
  for (uint32_t i = 0; i < task.num_blocks; ++i) {
    int16_t* block = DctBlock(task, i);
    std::array<std::array<int16_t, 8>, 8> columns;
    for (size_t x = 0; x < 8; ++x) {
      std::array<int16_t, 8> column;
      for (size_t y = 0; y < 8; ++y) column[y] = Dequantized(task, block, 8 * y + x);
      DctPass<11>(column, &columns[x]);
    }
    for (size_t y = 0; y < 8; ++y) {
      std::array<int16_t, 8> row, out;
      for (size_t x = 0; x < 8; ++x) row[x] = columns[x][y];
      DctPass<18>(row, &out);
      for (size_t x = 0; x < 8; ++x)
        task.out[y * task.stride + 8 * size_t{i} + x] = ClampSample(out[x]);
    }
    std::fill_n(block, 64, int16_t{0});
  }
}

#else

// Blocks that one vector takes, 128 bits each.
constexpr size_t kBlocks = HWY_MAX_BYTES / 16;

// Row `row` of each of the blocks, side by side.
HWY_INLINE V16 LoadRows(const int16_t* const* blocks, size_t row) {
  const hn::Full128<int16_t> d128;
#if HWY_MAX_BYTES >= 32
  const hn::Full256<int16_t> d256;
  const auto low =
      hn::Combine(d256, hn::LoadU(d128, blocks[1] + 8 * row), hn::LoadU(d128, blocks[0] + 8 * row));
#if HWY_MAX_BYTES >= 64
  const auto high =
      hn::Combine(d256, hn::LoadU(d128, blocks[3] + 8 * row), hn::LoadU(d128, blocks[2] + 8 * row));
  return hn::Combine(D16(), high, low);
#else
  return low;
#endif
#else
  return hn::LoadU(d128, blocks[0] + 8 * row);
#endif
}

// Writes rows `row` and `row` + 1 of the blocks' samples: 8 bytes each, one block after the other.
HWY_INLINE void StoreRows(V8 rows, uint8_t* const* out, size_t row, size_t stride) {
  const hn::Full128<uint8_t> d128;
  const hn::Full64<uint8_t> d64;
  const auto store = [&](hn::Vec<decltype(d128)> v, uint8_t* to) HWY_ATTR {
    hn::StoreU(hn::LowerHalf(d64, v), d64, to + row * stride);
    hn::StoreU(hn::UpperHalf(d64, v), d64, to + (row + 1) * stride);
  };
#if HWY_MAX_BYTES >= 32
  const hn::Full256<uint8_t> d256;
  const auto store2 = [&](hn::Vec<decltype(d256)> v, uint8_t* const* to) HWY_ATTR {
    store(hn::LowerHalf(d128, v), to[0]);
    store(hn::UpperHalf(d128, v), to[1]);
  };
#if HWY_MAX_BYTES >= 64
  store2(hn::LowerHalf(d256, rows), out);
  store2(hn::UpperHalf(d256, rows), out + 2);
#else
  store2(rows, out);
#endif
#else
  store(rows, out[0]);
#endif
}

HWY_INLINE V32 MulPairs(V16 pairs, int even, int odd) {
  return PairMulAdd(pairs, Factors(even, odd), hn::Zero(D32()));
}

struct DctHalf {
  V32 out[8];
};

// Half of the columns of one pass: pairs of inputs are interleaved into 32-bit lanes.
template <int kShift>
HWY_INLINE DctHalf DctColumns(V16 sum04, V16 difference04, V16 pairs26, V16 pairs34, V16 pairs71,
                              V16 pairs53) {
  const D32 d32;
  const V32 t3 = MulPairs(pairs26, kFix0541 + kFix0765, kFix0541);
  const V32 t2 = MulPairs(pairs26, kFix0541, kFix0541 - kFix1847);
  const V32 round = hn::Set(d32, 1 << (kShift - 1));
  // Interleaved with zeros below: the value times 2^16.
  const V32 t0 = hn::Add(hn::ShiftRight<3>(hn::BitCast(d32, sum04)), round);
  const V32 t1 = hn::Add(hn::ShiftRight<3>(hn::BitCast(d32, difference04)), round);
  const V32 even0 = hn::Add(t0, t3), even3 = hn::Sub(t0, t3);
  const V32 even1 = hn::Add(t1, t2), even2 = hn::Sub(t1, t2);
  const V32 y3 = MulPairs(pairs34, kFix1175 - kFix1961, kFix1175);
  const V32 y4 = MulPairs(pairs34, kFix1175, kFix1175 - kFix0390);
  const V32 odd0 = PairMulAdd(pairs71, Factors(-kFix0899, kFix1501 - kFix0899), y4);
  const V32 odd1 = PairMulAdd(pairs53, Factors(-kFix2562, kFix3072 - kFix2562), y3);
  const V32 odd2 = PairMulAdd(pairs53, Factors(kFix2053 - kFix2562, -kFix2562), y4);
  const V32 odd3 = PairMulAdd(pairs71, Factors(kFix0298 - kFix0899, -kFix0899), y3);
  const auto shift = [](V32 v) HWY_ATTR { return hn::ShiftRight<kShift>(v); };
  return {{shift(hn::Add(even0, odd0)), shift(hn::Add(even1, odd1)), shift(hn::Add(even2, odd2)),
           shift(hn::Add(even3, odd3)), shift(hn::Sub(even3, odd3)), shift(hn::Sub(even2, odd2)),
           shift(hn::Sub(even1, odd1)), shift(hn::Sub(even0, odd0))}};
}

// One pass over the columns of the blocks, 8 rows in r.
template <int kShift>
HWY_INLINE void DctPass(V16 (&r)[8]) {
  const D16 d;
  const V16 zero = hn::Zero(d);
  const V16 z3 = hn::Add(r[3], r[7]), z4 = hn::Add(r[1], r[5]);
  const V16 sum = hn::Add(r[0], r[4]), difference = hn::Sub(r[0], r[4]);
  const DctHalf low = DctColumns<kShift>(
      hn::InterleaveLower(d, zero, sum), hn::InterleaveLower(d, zero, difference),
      hn::InterleaveLower(d, r[2], r[6]), hn::InterleaveLower(d, z3, z4),
      hn::InterleaveLower(d, r[7], r[1]), hn::InterleaveLower(d, r[5], r[3]));
  const DctHalf high = DctColumns<kShift>(
      hn::InterleaveUpper(d, zero, sum), hn::InterleaveUpper(d, zero, difference),
      hn::InterleaveUpper(d, r[2], r[6]), hn::InterleaveUpper(d, z3, z4),
      hn::InterleaveUpper(d, r[7], r[1]), hn::InterleaveUpper(d, r[5], r[3]));
  HWY_UNROLL(8)
  for (size_t i = 0; i < 8; ++i) r[i] = hn::ReorderDemote2To(d, low.out[i], high.out[i]);
}

// Transposes the 8 x 8 values in each 128-bit block.
HWY_INLINE void TransposeBlocks(V16 (&r)[8]) {
  const D16 d;
  const D32 d32;
  const hn::ScalableTag<int64_t> d64;
  V16 a[8];
  HWY_UNROLL(4)
  for (size_t i = 0; i < 4; ++i) {
    a[2 * i] = hn::InterleaveLower(d, r[2 * i], r[2 * i + 1]);
    a[2 * i + 1] = hn::InterleaveUpper(d, r[2 * i], r[2 * i + 1]);
  }
  V32 b[8];
  HWY_UNROLL(2)
  for (size_t i = 0; i < 2; ++i) {
    for (size_t k = 0; k < 2; ++k) {
      const V32 x = hn::BitCast(d32, a[4 * i + k]), y = hn::BitCast(d32, a[4 * i + k + 2]);
      b[4 * i + 2 * k] = hn::InterleaveLower(d32, x, y);
      b[4 * i + 2 * k + 1] = hn::InterleaveUpper(d32, x, y);
    }
  }
  HWY_UNROLL(4)
  for (size_t i = 0; i < 4; ++i) {
    const auto x = hn::BitCast(d64, b[i]), y = hn::BitCast(d64, b[i + 4]);
    r[2 * i] = hn::BitCast(d, hn::InterleaveLower(d64, x, y));
    r[2 * i + 1] = hn::BitCast(d, hn::InterleaveUpper(d64, x, y));
  }
}

HWY_INLINE void ClearBlock(int16_t* block) {
  const hn::CappedTag<int16_t, 32> d;
  for (size_t i = 0; i < 64; i += hn::Lanes(d)) hn::StoreU(hn::Zero(d), d, block + i);
}

// Rows of several blocks, and where their samples go.
struct BlockGroup {
  int16_t* blocks[kBlocks];
  uint8_t* out[kBlocks];

  BlockGroup(const DctTask& task, uint32_t first) {
    for (uint32_t k = 0; k < kBlocks; ++k) {  // the last group may take the last block again
      const uint32_t at = std::min(first + k, task.num_blocks - 1);
      blocks[k] = DctBlock(task, at);
      out[k] = task.out + task.side * size_t{at};
    }
  }
};

// Dequantizes the blocks into 8 rows and clears them.
HWY_INLINE void TakeRows(const DctTask& task, const BlockGroup& group, V16 (&r)[8]) {
  HWY_UNROLL(8)
  for (size_t y = 0; y < 8; ++y)
    r[y] = hn::Mul(LoadRows(group.blocks, y), hn::LoadDup128(D16(), task.quantization + 8 * y));
  for (size_t k = 0; k < kBlocks; ++k) ClearBlock(group.blocks[k]);
}

struct Dct4Half {
  V32 out[4];
};

template <int kShift>
HWY_INLINE Dct4Half Dct4Columns(V16 dc, V16 pairs26, V16 pairs75, V16 pairs31) {
  const D32 d32;
  const V32 base =
      hn::Add(hn::ShiftRight<2>(hn::BitCast(d32, dc)), hn::Set(d32, 1 << (kShift - 1)));
  const V32 even = MulPairs(pairs26, kFix1847, -kFix0765);
  const V32 near =
      PairMulAdd(pairs75, Factors(-kFix0211, kFix1451), MulPairs(pairs31, -kFix2172, kFix1061));
  const V32 far =
      PairMulAdd(pairs75, Factors(-kFix0509, -kFix0601), MulPairs(pairs31, kFix0899, kFix2562));
  const V32 sum = hn::Add(base, even), difference = hn::Sub(base, even);
  const auto shift = [](V32 v) HWY_ATTR { return hn::ShiftRight<kShift>(v); };
  return {{shift(hn::Add(sum, far)), shift(hn::Add(difference, near)),
           shift(hn::Sub(difference, near)), shift(hn::Sub(sum, far))}};
}

// From 8 rows to 4; the others become zero.
template <int kShift>
HWY_INLINE void Dct4Pass(V16 (&r)[8]) {
  const D16 d;
  const V16 zero = hn::Zero(d);
  const Dct4Half low =
      Dct4Columns<kShift>(hn::InterleaveLower(d, zero, r[0]), hn::InterleaveLower(d, r[2], r[6]),
                          hn::InterleaveLower(d, r[7], r[5]), hn::InterleaveLower(d, r[3], r[1]));
  const Dct4Half high =
      Dct4Columns<kShift>(hn::InterleaveUpper(d, zero, r[0]), hn::InterleaveUpper(d, r[2], r[6]),
                          hn::InterleaveUpper(d, r[7], r[5]), hn::InterleaveUpper(d, r[3], r[1]));
  HWY_UNROLL(4)
  for (size_t i = 0; i < 4; ++i) {
    r[i] = hn::ReorderDemote2To(d, low.out[i], high.out[i]);
    r[i + 4] = zero;
  }
}

void InverseDct4(const DctTask& task) {
  const D16 d;
  const D8 d8;
  const V16 offset = hn::Set(d, 128);
  HWY_ALIGN uint8_t rows[2][hn::MaxLanes(D8())];
  for (uint32_t i = 0; i < task.num_blocks; i += kBlocks) {
    const BlockGroup group(task, i);
    V16 r[8];
    TakeRows(task, group, r);
    Dct4Pass<12>(r);
    TransposeBlocks(r);
    Dct4Pass<19>(r);
    TransposeBlocks(r);
    for (size_t half = 0; half < 2; ++half)
      hn::Store(PackBytes(hn::SaturatedAdd(r[2 * half], offset),
                          hn::SaturatedAdd(r[2 * half + 1], offset)),
                d8, rows[half]);
    for (size_t k = 0; k < kBlocks; ++k)
      for (size_t y = 0; y < 4; ++y)
        std::memcpy(group.out[k] + y * task.stride, rows[y / 2] + 16 * k + 8 * (y % 2), 4);
  }
}

void InverseDct8(const DctTask& task) {
  const D16 d;
  const V16 offset = hn::Set(d, 128);
  for (uint32_t i = 0; i < task.num_blocks; i += kBlocks) {
    const BlockGroup group(task, i);
    V16 r[8];
    TakeRows(task, group, r);
    DctPass<11>(r);
    TransposeBlocks(r);
    DctPass<18>(r);
    TransposeBlocks(r);
    HWY_UNROLL(4)
    for (size_t y = 0; y < 8; y += 2)
      StoreRows(PackBytes(hn::SaturatedAdd(r[y], offset), hn::SaturatedAdd(r[y + 1], offset)),
                group.out, y, task.stride);
  }
}

#endif

void InverseDctImpl(const DctTask& task) {
  if (task.side == 8) return InverseDct8(task);
  if (task.side == 4) return InverseDct4(task);
  InverseDctSmall(task);
}

}  // namespace HWY_NAMESPACE
}  // namespace headrace::codec
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace headrace::codec {

HWY_EXPORT(InverseDctImpl);

void InverseDct(const DctTask& task) { HWY_DYNAMIC_DISPATCH(InverseDctImpl)(task); }

}  // namespace headrace::codec
#endif  // HWY_ONCE
