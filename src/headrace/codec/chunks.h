// Walks over the chunks of PNG and RIFF (WebP) files. Reads no byte outside of the file; a chunk
// that claims more than the file holds ends the walk. Pure; one thread at a time. Used inside the
// codec only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "headrace/base/bytes.h"

namespace headrace::codec {

inline uint32_t LoadBig32(const std::byte* p) {
  return std::to_integer<uint32_t>(p[0]) << 24 | std::to_integer<uint32_t>(p[1]) << 16 |
         std::to_integer<uint32_t>(p[2]) << 8 | std::to_integer<uint32_t>(p[3]);
}

class PngChunks {
 public:
  static constexpr size_t kSignatureBytes = 8;
  enum class Fault : uint8_t { kNone, kNoHeader, kTooLong };

  explicit PngChunks(Bytes file) : file_(file) {}

  // Goes to the next chunk. False behind IEND and when the file is truncated: fault() says how.
  bool Next() {
    if (type_ == "IEND") return false;
    at_ = next_;
    if (file_.size() < at_ + 12) return Fail(Fault::kNoHeader);
    length_ = LoadBig32(&file_[at_]);
    type_ = AsText(file_.subspan(at_ + 4, 4));
    if (length_ > file_.size() - at_ - 12) return Fail(Fault::kTooLong);
    next_ = at_ + 12 + length_;
    return true;
  }

  std::string_view type() const { return type_; }
  size_t at() const { return at_; }          // where the chunk begins
  size_t length() const { return length_; }  // as it claims
  Bytes data() const { return file_.subspan(at_ + 8, length_); }
  Fault fault() const { return fault_; }

 private:
  bool Fail(Fault fault) {
    fault_ = fault;
    return false;
  }

  Bytes file_;
  size_t at_ = 0, next_ = kSignatureBytes, length_ = 0;
  std::string_view type_;
  Fault fault_ = Fault::kNone;
};

class RiffChunks {
 public:
  // `file` begins with "RIFF", a size and a form type of 4 bytes. What lies behind that size is not
  // part of it.
  explicit RiffChunks(Bytes file) {
    if (file.size() >= kHeaderBytes)
      file_ =
          file.first(std::min<uint64_t>(file.size(), uint64_t{8} + LoadLittle<uint32_t>(&file[4])));
  }

  // Goes to the next chunk. False at the end, and when the rest holds no whole chunk.
  bool Next() {
    if (file_.size() < next_ + 8) return false;
    size_t length = LoadLittle<uint32_t>(&file_[next_ + 4]);
    if (length > file_.size() - next_ - 8) return false;
    type_ = AsText(file_.subspan(next_, 4));
    data_ = file_.subspan(next_ + 8, length);
    next_ += 8 + length + (length & 1);
    return true;
  }

  std::string_view type() const { return type_; }
  Bytes data() const { return data_; }

 private:
  static constexpr size_t kHeaderBytes = 12;

  Bytes file_, data_;
  size_t next_ = kHeaderBytes;
  std::string_view type_;
};

}  // namespace headrace::codec
