// The types of a tensor's elements: those that safetensors names, and no other. What has none there
// (complex128) is stored as another type by who saves it. Pure functions, safe from any thread.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace headrace::checkpoint {

// The numbers are stored in manifests and never change.
enum class DType : uint8_t {
  kBool = 1,
  kF4 = 2,      // two elements a byte
  kF6E2M3 = 3,  // four elements in three bytes
  kF6E3M2 = 4,
  kU8 = 5,
  kI8 = 6,
  kF8E5M2 = 7,
  kF8E4M3 = 8,
  kF8E8M0 = 9,
  kF8E4M3Fnuz = 10,
  kF8E5M2Fnuz = 11,
  kI16 = 12,
  kU16 = 13,
  kF16 = 14,
  kBF16 = 15,
  kI32 = 16,
  kU32 = 17,
  kF32 = 18,
  kC64 = 19,
  kF64 = 20,
  kI64 = 21,
  kU64 = 22,
};

struct DTypeRow {
  DType dtype;
  std::string_view name;  // as safetensors writes it
  uint8_t bits;           // of one element
};
inline constexpr std::array<DTypeRow, 22> kDTypes = {{
    {DType::kBool, "BOOL", 8},
    {DType::kF4, "F4", 4},
    {DType::kF6E2M3, "F6_E2M3", 6},
    {DType::kF6E3M2, "F6_E3M2", 6},
    {DType::kU8, "U8", 8},
    {DType::kI8, "I8", 8},
    {DType::kF8E5M2, "F8_E5M2", 8},
    {DType::kF8E4M3, "F8_E4M3", 8},
    {DType::kF8E8M0, "F8_E8M0", 8},
    {DType::kF8E4M3Fnuz, "F8_E4M3FNUZ", 8},
    {DType::kF8E5M2Fnuz, "F8_E5M2FNUZ", 8},
    {DType::kI16, "I16", 16},
    {DType::kU16, "U16", 16},
    {DType::kF16, "F16", 16},
    {DType::kBF16, "BF16", 16},
    {DType::kI32, "I32", 32},
    {DType::kU32, "U32", 32},
    {DType::kF32, "F32", 32},
    {DType::kC64, "C64", 64},
    {DType::kF64, "F64", 64},
    {DType::kI64, "I64", 64},
    {DType::kU64, "U64", 64},
}};

constexpr bool IsDType(uint8_t number) { return number >= 1 && number <= kDTypes.size(); }
constexpr std::string_view DTypeName(DType dtype) {
  return kDTypes[static_cast<size_t>(dtype) - 1].name;
}
constexpr unsigned BitsOf(DType dtype) { return kDTypes[static_cast<size_t>(dtype) - 1].bits; }
// Empty when no type has the name.
constexpr std::optional<DType> DTypeNamed(std::string_view name) {
  for (const DTypeRow& row : kDTypes)
    if (row.name == name) return row.dtype;
  return std::nullopt;
}
// The bytes that `elements` take, packed. Empty when they are no whole number of bytes, or more
// than 2^62.
constexpr std::optional<uint64_t> BytesOf(DType dtype, uint64_t elements) {
  // Eight elements take as many bytes as one has bits.
  const uint64_t bits = BitsOf(dtype), eights = elements / 8, rest = elements % 8 * bits;
  if (rest % 8 != 0 || eights > (uint64_t{1} << 62) / bits) return std::nullopt;
  return eights * bits + rest / 8;
}

}  // namespace headrace::checkpoint
