#include "headrace/dataset/file_window.h"

#include <algorithm>

namespace headrace::dataset {

Result<Bytes> FileWindow::Get(uint64_t at, uint64_t length) {
  if (at >= file_.size()) return Bytes();
  length = std::min(length, file_.size() - at);
  if (at < begin_ || at + length > begin_ + held_) {
    HR_RETURN_IF_ERROR(ctx_.Check());
    const bool follows = at >= begin_ && at <= begin_ + held_ + kMinBytes;
    wanted_ = follows ? std::min(wanted_ * 2, kMaxBytes) : kMinBytes;
    uint64_t bytes = std::min(std::max(length, wanted_), file_.size() - at);
    if (!buffer_.Reserve(bytes)) return Status(Code::kResourceExhausted, "no memory for a buffer");
    held_ = 0;
    HR_ASSIGN_OR_RETURN(held_, file_.ReadSome(at, MutableBytes(buffer_.data(), bytes), ctx_));
    begin_ = at;
  }
  return Bytes(buffer_.data() + (at - begin_), std::min<uint64_t>(length, begin_ + held_ - at));
}

}  // namespace headrace::dataset
