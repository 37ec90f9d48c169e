// Fields that are arrays of numbers. Their bytes lie bare in the shard (packed varints, or
// little-endian elements); readers get each as an .npy array, which says what it holds. An
// ArrayForm is what the index keeps to make one of the other. Pure functions: any thread, no
// allocation in ArrayForm, NpyBytes and WriteNpy unless they fail. docs/formats/index.md.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "headrace/base/bytes.h"
#include "headrace/base/status.h"

namespace headrace::dataset {

// Numbers are part of the index format.
enum class ElementType : uint8_t {
  kUint8 = 1,
  kInt8 = 2,
  kUint16 = 3,
  kInt16 = 4,
  kUint32 = 5,
  kInt32 = 6,
  kUint64 = 7,
  kInt64 = 8,
  kFloat16 = 9,
  kFloat32 = 10,
  kFloat64 = 11,
  kVarint64 = 12,  // stored as varints of a 64-bit two's complement; given as int64
};
// Bytes of one element as it is given to readers.
size_t ElementBytes(ElementType type);

struct ArrayForm {
  static constexpr size_t kMaxDims = 32;
  static constexpr uint64_t kMaxElements = uint64_t{1} << 40;

  ElementType element = ElementType::kUint8;
  size_t num_dims = 0;  // 0: one number
  std::array<uint64_t, kMaxDims> dims{};

  // kInvalidArgument: too many dimensions or elements.
  static Result<ArrayForm> Make(ElementType element, std::span<const uint64_t> dims);
  // Reads what AppendTo wrote. False for any other bytes.
  static bool Parse(std::string_view coded, ArrayForm* form);
  void AppendTo(std::string* out) const;

  uint64_t num_elements() const;
  // Bytes of the elements as they lie in the shard; of varints that is not known: 0.
  uint64_t StoredBytes() const;
};

// Bytes of the .npy array: header and elements.
uint64_t NpyBytes(const ArrayForm& form);
// Writes the .npy array to `out`, which has NpyBytes(form) bytes and does not overlap `stored`.
// kDataLoss: `stored` is not exactly the elements.
Status WriteNpy(const ArrayForm& form, Bytes stored, MutableBytes out);

}  // namespace headrace::dataset
