// Numbers on their way into typed arrays: 16-bit floats, and conversions that never lose a value
// silently. Pure functions, safe from any thread. Used inside the codec only.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>

#include "headrace/codec/transform.h"

namespace headrace::codec {

// Rounds to the nearest, ties to even. NaN stays a (quiet) NaN, what is too large becomes infinity.
uint16_t FloatToHalf(float value);
uint16_t FloatToBfloat16(float value);
// Exact.
float HalfToFloat(uint16_t bits);

// A number as it was read: an integer or a floating-point value.
struct Number {
  enum class Kind : uint8_t { kSigned, kUnsigned, kFloat };
  Kind kind = Kind::kSigned;
  union {
    int64_t i = 0;
    uint64_t u;
    double f;
  };
  static Number Signed(int64_t v);
  static Number Unsigned(uint64_t v);
  static Number Float(double v);
  std::string ToString() const;
};

// Why a number cannot be stored.
enum class StoreFault : uint8_t { kNone, kOverflow, kFraction, kInexact };
std::string_view StoreFaultText(StoreFault fault);  // "is out of the range of"...

// Writes `value` as one element of `dtype` to `out`.
//   kOverflow  outside the range of the type (a finite value that would become infinite, too)
//   kFraction  an integer type and a value that is not whole
//   kInexact   a floating-point type and an integer that it cannot hold exactly
// A floating-point value is rounded to float32, and from there to a 16-bit type.
StoreFault StoreNumber(const Number& value, DType dtype, std::byte* out);

}  // namespace headrace::codec
