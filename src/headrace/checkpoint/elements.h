// By how much elements differ. Pure functions, safe from any thread.
#pragma once

#include <cstdint>

#include "headrace/base/bytes.h"
#include "headrace/checkpoint/dtype.h"

namespace headrace::checkpoint {

// Of two tensors of the same type and shape, added up piece by piece.
struct ElementDifference {
  uint64_t elements = 0;
  // Whose bits differ; 0 and -0 too. Of types of less than a byte: bytes that differ.
  uint64_t changed = 0;
  // Of these: where the difference is no number (NaN or infinite on one side). They are left out of
  // the figures below.
  uint64_t not_finite = 0;
  double max_abs = 0;           // the largest |b - a|; of complex numbers their distance
  double difference_norm2 = 0;  // sum of |b - a|^2
  double a_norm2 = 0;           // sum of |a|^2

  // ||b - a|| / ||a||: 0 when nothing differs, infinite when all of `a` is 0.
  double relative() const;
};

// False for types of less than a byte, whose elements are only compared, not measured.
bool HasMeasure(DType dtype);

// Adds the elements of `a` and `b`, which are as many bytes. Bytes that make no whole element at
// the end are not looked at.
void AddDifference(DType dtype, Bytes a, Bytes b, ElementDifference* sum);

// The value of one element of a type of 8 or 16 bits: F16, BF16 and the kinds of F8. NaN where the
// bits mean none.
double SmallFloatValue(DType dtype, uint16_t bits);

}  // namespace headrace::checkpoint
