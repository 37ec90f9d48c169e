// Vector helpers shared by the codec's kernels, compiled once for each instruction set: included
// after highway.h by files that foreach_target.h includes again.
#if defined(HEADRACE_CODEC_SIMD_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef HEADRACE_CODEC_SIMD_INL_H
#undef HEADRACE_CODEC_SIMD_INL_H
#else
#define HEADRACE_CODEC_SIMD_INL_H
#endif

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace headrace::codec {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128

using D8 = hn::ScalableTag<uint8_t>;
using D16 = hn::ScalableTag<int16_t>;
using D32 = hn::ScalableTag<int32_t>;
using V8 = hn::Vec<D8>;
using V16 = hn::Vec<D16>;
using V32 = hn::Vec<D32>;

// Narrows with clamping to 0 to 255, in each 128-bit block by itself.
HWY_INLINE V8 PackBytes(V16 low, V16 high) {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
  return V8{_mm512_packus_epi16(low.raw, high.raw)};
#elif HWY_TARGET == HWY_AVX2
  return V8{_mm256_packus_epi16(low.raw, high.raw)};
#elif HWY_ARCH_X86
  return V8{_mm_packus_epi16(low.raw, high.raw)};
#else  // one block
  const D8 d8;
  const auto least = hn::Zero(D16()), most = hn::Set(D16(), 255);
  return hn::ConcatEven(d8, hn::BitCast(d8, hn::Min(hn::Max(high, least), most)),
                        hn::BitCast(d8, hn::Min(hn::Max(low, least), most)));
#endif
}

// a[2i] * b[2i] + a[2i + 1] * b[2i + 1] added to sum[i]; exact.
HWY_INLINE V32 PairMulAdd(V16 a, V16 b, V32 sum) {
  const D32 d32;
  V32 upper = hn::Zero(d32);
  V32 lower = hn::ReorderWidenMulAccumulate(d32, a, b, hn::Zero(d32), upper);
  return hn::Add(sum, hn::RearrangeToOddPlusEven(lower, upper));
}

// Two 16-bit factors for PairMulAdd.
HWY_INLINE V16 Factors(int even, int odd) {
  const uint32_t both = static_cast<uint32_t>(odd) << 16 | (static_cast<uint32_t>(even) & 0xffff);
  return hn::BitCast(D16(), hn::Set(D32(), static_cast<int32_t>(both)));
}

#endif

}  // namespace HWY_NAMESPACE
}  // namespace headrace::codec
HWY_AFTER_NAMESPACE();
#endif  // include guard
