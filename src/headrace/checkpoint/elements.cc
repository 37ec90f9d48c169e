#include "headrace/checkpoint/elements.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <complex>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

namespace headrace::checkpoint {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// How a small type lays out its bits, below the sign.
struct SmallFloat {
  int exponent_bits, mantissa_bits, bias;
  enum class Specials : uint8_t {
    kIeee,      // the largest exponent: infinity and NaN
    kAllOnes,   // all bits set: NaN; no infinity
    kNegative0  // the sign alone: NaN; no infinity and no -0
  } specials;
};

SmallFloat LayoutOf(DType dtype) {
  using enum SmallFloat::Specials;
  switch (dtype) {
    case DType::kF16:
      return {5, 10, 15, kIeee};
    case DType::kBF16:
      return {8, 7, 127, kIeee};
    case DType::kF8E5M2:
      return {5, 2, 15, kIeee};
    case DType::kF8E4M3Fnuz:
      return {4, 3, 8, kNegative0};
    case DType::kF8E5M2Fnuz:
      return {5, 2, 16, kNegative0};
    default:
      return {4, 3, 7, kAllOnes};  // F8_E4M3
  }
}

double Decode(const SmallFloat& layout, uint16_t bits) {
  using enum SmallFloat::Specials;
  const int sign_at = layout.exponent_bits + layout.mantissa_bits;
  const unsigned below = bits & ((1u << sign_at) - 1);
  const bool negative = (bits >> sign_at & 1) != 0;
  const int exponent = static_cast<int>(below >> layout.mantissa_bits);
  const int mantissa = static_cast<int>(below & ((1u << layout.mantissa_bits) - 1));
  if (layout.specials == kNegative0 && negative && below == 0) return kNan;
  if (layout.specials == kAllOnes && below == (1u << sign_at) - 1) return kNan;
  double value;
  if (layout.specials == kIeee && exponent == (1 << layout.exponent_bits) - 1) {
    value = mantissa == 0 ? std::numeric_limits<double>::infinity() : kNan;
  } else if (exponent == 0) {
    value = std::ldexp(mantissa, 1 - layout.bias - layout.mantissa_bits);
  } else {
    value = std::ldexp(mantissa + (1 << layout.mantissa_bits),
                       exponent - layout.bias - layout.mantissa_bits);
  }
  return negative ? -value : value;
}

// Adds one pair whose bits differ, or not.
void AddPair(double distance, double a_abs, bool changed, ElementDifference* sum) {
  if (changed) {
    ++sum->changed;
    if (!std::isfinite(distance)) {
      ++sum->not_finite;
      return;
    }
    sum->max_abs = std::max(sum->max_abs, distance);
    sum->difference_norm2 += distance * distance;
  }
  if (std::isfinite(a_abs)) sum->a_norm2 += a_abs * a_abs;
}

template <typename T>
double Distance(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    // Exact: doubles would not tell large neighbours apart.
    using Unsigned = std::make_unsigned_t<T>;
    const auto apart = a > b ? static_cast<Unsigned>(a) - static_cast<Unsigned>(b)
                             : static_cast<Unsigned>(b) - static_cast<Unsigned>(a);
    return static_cast<double>(static_cast<Unsigned>(apart));
  } else if constexpr (std::is_same_v<T, std::complex<float>>) {
    return std::abs(std::complex<double>(a) - std::complex<double>(b));
  } else {
    return std::abs(static_cast<double>(a) - static_cast<double>(b));
  }
}

template <typename T>
double Size(T a) {
  if constexpr (std::is_same_v<T, std::complex<float>>) {
    return std::abs(std::complex<double>(a));
  } else {
    return std::abs(static_cast<double>(a));
  }
}

template <typename T>
void AddAs(Bytes a, Bytes b, ElementDifference* sum) {
  const size_t count = std::min(a.size(), b.size()) / sizeof(T);
  for (size_t i = 0; i < count; ++i) {
    const std::byte *from = a.data() + i * sizeof(T), *to = b.data() + i * sizeof(T);
    T x, y;
    std::memcpy(&x, from, sizeof(T));
    std::memcpy(&y, to, sizeof(T));
    const bool changed = std::memcmp(from, to, sizeof(T)) != 0;
    AddPair(changed ? Distance(x, y) : 0, Size(x), changed, sum);
  }
  sum->elements += count;
}

// Types of 8 and 16 bits go through a table of all their values.
template <typename Word>
void AddSmall(DType dtype, Bytes a, Bytes b, ElementDifference* sum) {
  std::vector<float> values(size_t{1} << (8 * sizeof(Word)));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(SmallFloatValue(dtype, static_cast<uint16_t>(i)));
  const size_t count = std::min(a.size(), b.size()) / sizeof(Word);
  for (size_t i = 0; i < count; ++i) {
    Word x, y;
    std::memcpy(&x, a.data() + i * sizeof(Word), sizeof(Word));
    std::memcpy(&y, b.data() + i * sizeof(Word), sizeof(Word));
    AddPair(x == y ? 0 : Distance(values[x], values[y]), Size(values[x]), x != y, sum);
  }
  sum->elements += count;
}

void AddPacked(DType dtype, Bytes a, Bytes b, ElementDifference* sum) {
  const size_t count = std::min(a.size(), b.size());
  for (size_t i = 0; i < count; ++i) sum->changed += a[i] != b[i] ? 1 : 0;
  sum->elements += count * 8 / BitsOf(dtype);
}

}  // namespace

double ElementDifference::relative() const {
  if (difference_norm2 == 0) return 0;
  return std::sqrt(difference_norm2) / std::sqrt(a_norm2);
}

bool HasMeasure(DType dtype) { return BitsOf(dtype) % 8 == 0; }

double SmallFloatValue(DType dtype, uint16_t bits) {
  if (dtype == DType::kF8E8M0) return bits == 255 ? kNan : std::ldexp(1.0, bits - 127);
  return Decode(LayoutOf(dtype), bits);
}

void AddDifference(DType dtype, Bytes a, Bytes b, ElementDifference* sum) {
  switch (dtype) {
    case DType::kF4:
    case DType::kF6E2M3:
    case DType::kF6E3M2:
      return AddPacked(dtype, a, b, sum);
    case DType::kBool:
    case DType::kU8:
      return AddAs<uint8_t>(a, b, sum);
    case DType::kI8:
      return AddAs<int8_t>(a, b, sum);
    case DType::kI16:
      return AddAs<int16_t>(a, b, sum);
    case DType::kU16:
      return AddAs<uint16_t>(a, b, sum);
    case DType::kI32:
      return AddAs<int32_t>(a, b, sum);
    case DType::kU32:
      return AddAs<uint32_t>(a, b, sum);
    case DType::kI64:
      return AddAs<int64_t>(a, b, sum);
    case DType::kU64:
      return AddAs<uint64_t>(a, b, sum);
    case DType::kF32:
      return AddAs<float>(a, b, sum);
    case DType::kF64:
      return AddAs<double>(a, b, sum);
    case DType::kC64:
      return AddAs<std::complex<float>>(a, b, sum);
    case DType::kF16:
    case DType::kBF16:
      return AddSmall<uint16_t>(dtype, a, b, sum);
    case DType::kF8E5M2:
    case DType::kF8E4M3:
    case DType::kF8E8M0:
    case DType::kF8E4M3Fnuz:
    case DType::kF8E5M2Fnuz:
      return AddSmall<uint8_t>(dtype, a, b, sum);
  }
}

}  // namespace headrace::checkpoint
