// Reads the header of an .npy array (NumPy format versions 1, 2 and 3). Pure, allocates nothing
// unless it fails, safe from any thread. Used inside the codec only.
#pragma once

#include <array>
#include <cstdint>

#include "headrace/base/bytes.h"
#include "headrace/base/status.h"
#include "headrace/codec/element.h"

namespace headrace::codec {

// How one element lies in the file, always little-endian.
enum class NpyType : uint8_t {
  kBool,
  kI8,
  kI16,
  kI32,
  kI64,
  kU8,
  kU16,
  kU32,
  kU64,
  kF16,
  kF32,
  kF64
};

struct NpyArray {
  static constexpr size_t kMaxDims = 32;
  NpyType type = NpyType::kU8;
  size_t element_bytes = 1;
  size_t num_dims = 0;
  std::array<uint64_t, kMaxDims> dims{};
  Bytes data;  // exactly the elements, C order; points into the input
};

bool IsNpy(Bytes bytes);

// Reads the header and checks that exactly the elements follow it.
//   kDataLoss       no .npy, a damaged header, too few or too many bytes (says where).
//   kUnimplemented  big-endian, Fortran order, or a type that is no plain number.
Result<NpyArray> ParseNpy(Bytes bytes);

// Element `index` of `array`.
Number NpyElement(const NpyArray& array, size_t index);
// True when an element of `type` and one of `dtype` are the same bits (for a plain copy).
bool SameBits(NpyType type, DType dtype);

}  // namespace headrace::codec
