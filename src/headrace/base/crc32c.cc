#include "headrace/base/crc32c.h"

#include <isa-l/crc.h>

#include <algorithm>
#include <cstring>

namespace headrace {

uint32_t Crc32c(Bytes data, uint32_t seed) {
  // ISA-L takes an int length and neither inverts its start value nor its result.
  constexpr size_t kMaxPart = size_t{1} << 30;
  uint32_t crc = ~seed;
  auto* p = reinterpret_cast<unsigned char*>(const_cast<std::byte*>(data.data()));
  size_t left = data.size();
  while (left > 0) {
    size_t part = std::min(left, kMaxPart);
    crc = crc32_iscsi(p, static_cast<int>(part), crc);
    p += part;
    left -= part;
  }
  return ~crc;
}

uint32_t CopyWithCrc32c(std::byte* to, Bytes data, uint32_t seed) {
  constexpr size_t kPiece = size_t{8} << 10;  // with its copy, half of a small first-level cache
  for (; !data.empty(); data = data.subspan(std::min(kPiece, data.size()))) {
    Bytes piece = data.first(std::min(kPiece, data.size()));
    std::memcpy(to, piece.data(), piece.size());
    seed = Crc32c(piece, seed);
    to += piece.size();
  }
  return seed;
}

namespace {

// Product of two polynomials over GF(2) modulo that of CRC32C, all with their highest coefficient
// in bit 0.
uint32_t MultiplyModulo(uint32_t a, uint32_t b) {
  constexpr uint32_t kPolynomial = 0x82f63b78;
  uint32_t product = 0;
  for (uint32_t bit = uint32_t{1} << 31; bit != 0; bit >>= 1) {
    if ((a & bit) != 0) product ^= b;
    b = b >> 1 ^ ((b & 1) != 0 ? kPolynomial : 0);
  }
  return product;
}

}  // namespace

// Appending n bytes multiplies a CRC by x^(8n).
uint32_t JoinCrc32c(uint32_t first, uint32_t second, uint64_t second_bytes) {
  uint32_t square = uint32_t{1} << 23;  // x^8
  for (uint64_t n = second_bytes; n != 0; n >>= 1) {
    if ((n & 1) != 0) first = MultiplyModulo(first, square);
    square = MultiplyModulo(square, square);
  }
  return first ^ second;
}

}  // namespace headrace
