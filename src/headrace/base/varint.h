// Numbers in as few bytes as they need, and a reader of records that are made of them. Used by the
// formats of docs/formats/. Pure functions; a RecordCursor has one owner at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "headrace/base/bytes.h"

namespace headrace {

// Variable-length numbers: seven bits a byte, lowest first, high bit set on all but the last.
inline void PutVarint(uint64_t value, std::string* out) {
  for (; value >= 0x80; value >>= 7) out->push_back(static_cast<char>(value | 0x80));
  out->push_back(static_cast<char>(value));
}
// Signed numbers with small magnitude as small unsigned ones: 0, -1, 1, -2...
inline uint64_t ZigZag(uint64_t delta) { return delta << 1 ^ (0 - (delta >> 63)); }
inline uint64_t UnZigZag(uint64_t coded) { return coded >> 1 ^ (0 - (coded & 1)); }

// Reads a record from its start; every read is checked against its end. After a failed read ok()
// is false for ever and the values are 0.
class RecordCursor {
 public:
  explicit RecordCursor(Bytes bytes) : p_(bytes.data()), end_(p_ + bytes.size()) {}
  bool ok() const { return ok_; }
  bool at_end() const { return p_ == end_; }
  size_t left() const { return static_cast<size_t>(end_ - p_); }
  uint64_t Varint() {
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      if (p_ == end_) break;
      uint64_t b = static_cast<uint64_t>(*p_++);
      if (shift == 63 && b > 1) break;
      value |= (b & 0x7f) << shift;
      if (b < 0x80) return value;
    }
    return Fail();
  }
  uint8_t Byte() {
    if (p_ == end_) return static_cast<uint8_t>(Fail());
    return static_cast<uint8_t>(*p_++);
  }
  uint32_t Word() {
    if (end_ - p_ < 4) return static_cast<uint32_t>(Fail());
    p_ += 4;
    return LoadLittle<uint32_t>(p_ - 4);
  }
  uint64_t Long() {
    if (end_ - p_ < 8) return Fail();
    p_ += 8;
    return LoadLittle<uint64_t>(p_ - 8);
  }
  std::string_view Text(uint64_t length) {
    if (static_cast<uint64_t>(end_ - p_) < length) return Fail(), std::string_view();
    p_ += length;
    return {reinterpret_cast<const char*>(p_ - length), static_cast<size_t>(length)};
  }

 private:
  uint64_t Fail() {
    ok_ = false;
    p_ = end_;
    return 0;
  }
  const std::byte* p_;
  const std::byte* end_;
  bool ok_ = true;
};

}  // namespace headrace
