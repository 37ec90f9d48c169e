#include "headrace/env/read_progress.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "headrace/env/posix_descriptor.h"

namespace headrace {

namespace {
constexpr int kMaxPutOff = 100;  // answers in a row that say "not now"
}  // namespace

ReadProgress::ReadProgress(AsyncRead read) : read_(std::move(read)) {
  for (MutableBytes part : read_.parts) wanted_ += part.size();
  needed_ = std::min(read_.needed_bytes, wanted_);
  PrepareVectors();
}

void ReadProgress::PrepareVectors() {
  size_t skip = done_;
  num_vectors_ = 0;
  for (MutableBytes part : read_.parts) {
    size_t skipped = std::min(skip, part.size());
    skip -= skipped;
    part = part.subspan(skipped);
    if (!part.empty()) vectors_[num_vectors_++] = {part.data(), part.size()};
  }
}

Status ReadProgress::EndsEarly(size_t end) const {
  return Error(Code::kDataLoss,
               "the file ends at byte {}, expected {} bytes from byte {} on; it was cut short, or "
               "what points into it belongs to another file",
               end > 0 ? read_.offset + end : std::min(read_.offset, read_.file->size()), needed_,
               read_.offset)
      .At({read_.file->path(), read_.offset, {}, {}});
}

bool ReadProgress::TakeAnswer(int64_t answer) {
  if (answer == -EINTR || answer == -EAGAIN) {
    // Files are opened so that a pipe in their place cannot hold the program up; with io_uring the
    // same flag can mean "never wait".
    if (num_put_off_ == 0) LeaveNonBlocking(descriptor());
    if (++num_put_off_ < kMaxPutOff) return false;
    Fail(Error(Code::kUnavailable, "the system keeps putting off a read")
             .At({read_.file->path(), offset(), {}, {}}));
    return true;
  }
  if (answer < 0) {
    auto error = static_cast<int>(-answer);
    if (error == EINVAL && LeaveDirect(descriptor())) return false;
    Fail(PathError(error, "read", read_.file->path()).At({read_.file->path(), offset(), {}, {}}));
    return true;
  }
  num_put_off_ = 0;
  size_t end = std::min(done_ + static_cast<size_t>(answer), wanted_);
  if (end >= needed_) return true;
  if (answer == 0 || end <= reached_) {
    Fail(EndsEarly(std::max(end, reached_)));
    return true;
  }
  reached_ = end;
  // A direct read goes on where it is aligned, even if that reads some bytes again.
  done_ = IsDirect(descriptor()) ? std::max(done_, end / kDirectAlignment * kDirectAlignment) : end;
  PrepareVectors();
  return false;
}

void ReadProgress::ReadByFile() {
  uint64_t at = read_.offset;
  size_t got = 0;
  for (MutableBytes part : read_.parts) {
    if (part.empty() || !status_.ok()) continue;
    auto n = read_.file->ReadSome(at, part, Context());
    if (!n.ok()) return Fail(std::move(n).status());
    got += *n;
    if (*n < part.size()) break;
    at += part.size();
  }
  if (got < needed_) Fail(EndsEarly(got));
}

}  // namespace headrace
