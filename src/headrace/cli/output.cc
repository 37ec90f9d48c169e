#include "headrace/cli/output.h"

namespace headrace::cli {
namespace {
constexpr size_t kBufferBytes = size_t{64} << 10;
}  // namespace

void Output::Write(Bytes data) {
  if (closed()) return;
  if (buffer_.size() + data.size() <= kBufferBytes) {
    buffer_.append(AsText(data));
    return;
  }
  (void)Flush();
  if (!closed()) status_ = sink_(data);
}

Status Output::Flush() {
  if (!closed() && !buffer_.empty()) status_ = sink_(AsBytes(buffer_));
  buffer_.clear();
  return status_.code() == Code::kUnavailable ? OkStatus() : status_;
}

}  // namespace headrace::cli
