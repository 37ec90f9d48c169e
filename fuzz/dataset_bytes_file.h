// Fuzz input as a file. For fuzz targets only; one thread.
#pragma once

#include <algorithm>
#include <string>

#include "headrace/env/file.h"

namespace headrace {

class BytesFile : public RandomAccessFile {
 public:
  explicit BytesFile(Bytes bytes) : bytes_(bytes) {}
  Status ReadAt(uint64_t offset, MutableBytes out, const Context& ctx) const override {
    HR_ASSIGN_OR_RETURN(size_t done, ReadSome(offset, out, ctx));
    if (done == out.size()) return OkStatus();
    return Error(Code::kDataLoss, "the input ends at {}", bytes_.size());
  }
  Result<size_t> ReadSome(uint64_t offset, MutableBytes out, const Context&) const override {
    if (offset >= bytes_.size()) return size_t{0};
    size_t n = std::min<size_t>(out.size(), bytes_.size() - offset);
    std::copy_n(bytes_.begin() + static_cast<long>(offset), n, out.begin());
    return n;
  }
  uint64_t size() const override { return bytes_.size(); }
  const std::string& path() const override { return path_; }

 private:
  Bytes bytes_;
  std::string path_ = "input";
};

// Ends the program when `condition` is false: a property that must hold for every input.
inline void FuzzCheck(bool condition) {
  if (!condition) __builtin_trap();
}

}  // namespace headrace
