// A window over a file that parsers walk through: many small reads near each other cost one of the
// file, and what is skipped over is not read. One owner at a time.
#pragma once

#include <cstdint>

#include "headrace/base/bytes.h"
#include "headrace/base/context.h"
#include "headrace/base/status.h"
#include "headrace/env/file.h"

namespace headrace::dataset {

class FileWindow {
 public:
  static constexpr uint64_t kMaxBytes = 256 << 10;

  // Both must outlive this.
  FileWindow(const RandomAccessFile& file, const Context& ctx) : file_(file), ctx_(ctx) {}

  // The bytes [at, at + length), length <= kMaxBytes; fewer only at the end of the file. Valid
  // until the next call. Fails with the file's I/O faults, kCancelled, kResourceExhausted.
  Result<Bytes> Get(uint64_t at, uint64_t length);
  const RandomAccessFile& file() const { return file_; }

 private:
  static constexpr uint64_t kMinBytes = 4096;

  const RandomAccessFile& file_;
  const Context& ctx_;
  AlignedBuffer buffer_;
  uint64_t begin_ = 0, held_ = 0;
  uint64_t wanted_ = kMinBytes;  // of the next read: grows while reads follow each other
};

}  // namespace headrace::dataset
