// Views of bytes and an aligned buffer that grows without keeping its content.
// Not thread-safe: one owner at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <string_view>

namespace headrace {

using Bytes = std::span<const std::byte>;
using MutableBytes = std::span<std::byte>;

inline Bytes AsBytes(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}
inline std::string_view AsText(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Reads or writes a little-endian unsigned integer at `p`, whatever its alignment.
template <typename T>
T LoadLittle(const void* p) {
  T value;
  std::memcpy(&value, p, sizeof(T));
  return value;  // every supported machine is little-endian; see base/bytes.cc for the check
}
template <typename T>
void StoreLittle(void* p, T value) {
  std::memcpy(p, &value, sizeof(T));
}

// Memory aligned to 64 bytes. Reserve() keeps the capacity and loses the content, so a buffer that
// is used again and again stops allocating once it has seen its largest use.
class AlignedBuffer {
 public:
  static constexpr size_t kAlignment = 64;
  // Bytes that may be read (not written) past size(), for wide loads. Their value is unspecified.
  static constexpr size_t kSlack = 64;

  AlignedBuffer() = default;
  explicit AlignedBuffer(size_t bytes) { Reserve(bytes); }
  AlignedBuffer(AlignedBuffer&& other) noexcept { *this = std::move(other); }
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept {
    data_ = std::move(other.data_);
    capacity_ = other.capacity_;
    other.capacity_ = 0;
    return *this;
  }

  // Makes at least `bytes` usable. Returns false when memory cannot be had; the buffer is then
  // empty. The content is unspecified after growth.
  // With `exact` no room is added for later growth.
  bool Reserve(size_t bytes, bool exact = false);

  std::byte* data() { return data_.get(); }
  const std::byte* data() const { return data_.get(); }
  size_t capacity() const { return capacity_; }

 private:
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  std::unique_ptr<std::byte, Free> data_;
  size_t capacity_ = 0;
};

}  // namespace headrace
