#include "headrace/codec/element.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <limits>

namespace headrace::codec {
namespace {

template <typename T>
StoreFault StoreBits(T value, std::byte* out) {
  std::memcpy(out, &value, sizeof(T));
  return StoreFault::kNone;
}

// 2^63 and 2^64 as doubles; every double below them (and above -2^63 - 1) fits the integer type.
constexpr double kTwo63 = 9223372036854775808.0;
constexpr double kTwo64 = 18446744073709551616.0;

template <typename T>
StoreFault StoreInteger(const Number& v, std::byte* out) {
  using Limits = std::numeric_limits<T>;
  switch (v.kind) {
    case Number::Kind::kSigned:
      if (v.i < static_cast<int64_t>(Limits::min())) return StoreFault::kOverflow;
      if (v.i > 0 && static_cast<uint64_t>(v.i) > static_cast<uint64_t>(Limits::max()))
        return StoreFault::kOverflow;
      return StoreBits(static_cast<T>(v.i), out);
    case Number::Kind::kUnsigned:
      if (v.u > static_cast<uint64_t>(Limits::max())) return StoreFault::kOverflow;
      return StoreBits(static_cast<T>(v.u), out);
    case Number::Kind::kFloat:
      break;
  }
  if (!(v.f >= -kTwo63 && v.f < kTwo64)) return StoreFault::kOverflow;  // NaN lands here as well
  if (std::trunc(v.f) != v.f) return StoreFault::kFraction;
  return v.f < 0 ? StoreInteger<T>(Number::Signed(static_cast<int64_t>(v.f)), out)
                 : StoreInteger<T>(Number::Unsigned(static_cast<uint64_t>(v.f)), out);
}

bool SameInteger(double d, const Number& v) {
  if (v.kind == Number::Kind::kSigned)
    return d >= -kTwo63 && d < kTwo63 && static_cast<int64_t>(d) == v.i;
  return d >= 0 && d < kTwo64 && static_cast<uint64_t>(d) == v.u;
}

StoreFault StoreDouble(double value, DType dtype, std::byte* out, double* stored) {
  float f = static_cast<float>(value);
  switch (dtype) {
    case DType::kFloat64:
      *stored = value;
      return StoreBits(value, out);
    case DType::kFloat32:
      *stored = f;
      return StoreBits(f, out);
    case DType::kFloat16: {
      uint16_t h = FloatToHalf(f);
      *stored = HalfToFloat(h);
      return StoreBits(h, out);
    }
    default: {
      uint16_t b = FloatToBfloat16(f);
      *stored = std::bit_cast<float>(static_cast<uint32_t>(b) << 16);
      return StoreBits(b, out);
    }
  }
}

StoreFault StoreFloating(const Number& v, DType dtype, std::byte* out) {
  double value = v.f;
  if (v.kind == Number::Kind::kSigned) value = static_cast<double>(v.i);
  if (v.kind == Number::Kind::kUnsigned) value = static_cast<double>(v.u);
  double stored = 0;
  StoreDouble(value, dtype, out, &stored);
  if (std::isfinite(value) && !std::isfinite(stored)) return StoreFault::kOverflow;
  if (v.kind != Number::Kind::kFloat && !SameInteger(stored, v)) return StoreFault::kInexact;
  return StoreFault::kNone;
}

}  // namespace

uint16_t FloatToHalf(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  uint32_t sign = (bits >> 16) & 0x8000u;
  bits &= 0x7fffffffu;
  if (bits >= 0x47800000u)  // 65536 and more, infinity, NaN
    return static_cast<uint16_t>(sign | (bits > 0x7f800000u ? 0x7e00u : 0x7c00u));
  if (bits < 0x38800000u) {  // below the smallest normal half: let the adder round
    float shifted = std::bit_cast<float>(bits) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000u));
  }
  uint32_t odd = (bits >> 13) & 1;
  return static_cast<uint16_t>(sign | ((bits - 0x38000000u + 0xfffu + odd) >> 13));
}

uint16_t FloatToBfloat16(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1)) >> 16);
}

float HalfToFloat(uint16_t half) {
  uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  uint32_t exponent = (half >> 10) & 31u, mantissa = half & 0x3ffu;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  if (exponent == 0) {
    float magnitude = static_cast<float>(mantissa) * 0x1.0p-24f;
    return sign ? -magnitude : magnitude;
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

Number Number::Signed(int64_t v) {
  Number n;
  n.kind = Kind::kSigned;
  n.i = v;
  return n;
}
Number Number::Unsigned(uint64_t v) {
  Number n;
  n.kind = Kind::kUnsigned;
  n.u = v;
  return n;
}
Number Number::Float(double v) {
  Number n;
  n.kind = Kind::kFloat;
  n.f = v;
  return n;
}
std::string Number::ToString() const {
  if (kind == Kind::kSigned) return fmt::format("{}", i);
  if (kind == Kind::kUnsigned) return fmt::format("{}", u);
  return fmt::format("{}", f);
}

std::string_view StoreFaultText(StoreFault fault) {
  switch (fault) {
    case StoreFault::kOverflow:
      return "is outside the range of";
    case StoreFault::kFraction:
      return "is not a whole number and cannot be stored as";
    case StoreFault::kInexact:
      return "is an integer that cannot be stored exactly as";
    case StoreFault::kNone:
      break;
  }
  return "fits";
}

StoreFault StoreNumber(const Number& value, DType dtype, std::byte* out) {
  switch (dtype) {
    case DType::kUint8:
      return StoreInteger<uint8_t>(value, out);
    case DType::kInt8:
      return StoreInteger<int8_t>(value, out);
    case DType::kInt16:
      return StoreInteger<int16_t>(value, out);
    case DType::kInt32:
      return StoreInteger<int32_t>(value, out);
    case DType::kInt64:
      return StoreInteger<int64_t>(value, out);
    default:
      return StoreFloating(value, dtype, out);
  }
}

}  // namespace headrace::codec
