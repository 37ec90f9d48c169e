// One read under way: what is still to be asked of the kernel, and what its answers mean. The same
// for all drivers of AsyncReader. Internal to env. Not thread-safe: one owner at a time.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstdint>
#include <utility>

#include "headrace/env/async_read.h"

namespace headrace {

class ReadProgress {
 public:
  explicit ReadProgress(AsyncRead read);
  ReadProgress(ReadProgress&&) = default;

  // What to ask for next. The vectors stay valid until the answer is given.
  int descriptor() const { return read_.file->descriptor(); }
  uint64_t offset() const { return read_.offset + done_; }
  struct iovec* vectors() { return vectors_.data(); }
  uint32_t num_vectors() const { return num_vectors_; }
  // True after the kernel said "not now": ask so that it may wait.
  bool may_wait() const { return num_put_off_ > 0; }

  // Takes the kernel's answer: bytes, or a negative errno. Returns true when the read has ended,
  // with status(); else it is to be asked for again.
  bool TakeAnswer(int64_t answer);
  // Reads by the file's own methods, for files without a descriptor.
  void ReadByFile();
  void Fail(Status status) { status_ = std::move(status); }
  // Calls the read's `done`. The last thing to be done with it.
  void Finish() { std::exchange(read_.done, nullptr)(std::move(status_)); }

 private:
  void PrepareVectors();
  Status EndsEarly(size_t end) const;

  AsyncRead read_;
  size_t wanted_ = 0, needed_ = 0;  // bytes
  size_t done_ = 0;                 // bytes that need not be asked for again
  size_t reached_ = 0;              // the farthest byte that was read
  int num_put_off_ = 0;
  std::array<struct iovec, 3> vectors_ = {};
  uint32_t num_vectors_ = 0;
  Status status_;
};

}  // namespace headrace
