#include "headrace/env/posix_direct_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "headrace/base/mutex.h"
#include "headrace/base/text.h"
#include "headrace/env/direct_memory.h"
#include "headrace/env/posix_descriptor.h"
#include "headrace/env/process.h"

namespace headrace {

namespace {

// Large enough that the kernel cuts one write into several requests for the disk; one huge page.
constexpr size_t kBlockBytes = size_t{2} << 20;
constexpr uint64_t kBlocks = 3;  // one being filled, one being written, one ready

Status WriteAt(const Descriptor& file, const std::string& path, Bytes data, uint64_t offset) {
  while (!data.empty()) {
    ssize_t n = ::pwrite(file.get(), data.data(), data.size(), static_cast<off_t>(offset));
    if (n > 0) {
      offset += static_cast<uint64_t>(n);
      data = data.subspan(static_cast<size_t>(n));
    } else if (n < 0 && errno == EINVAL && LeaveDirect(file.get())) {
      continue;  // this file system wants another alignment, now or after a short write
    } else if (n == 0 || errno != EINTR) {
      return PathError(n == 0 ? EIO : errno, "write", path).At({path, offset, {}, {}});
    }
  }
  return OkStatus();
}

// Blocks are numbered as they lie in the file. Number n is filled by the caller in blocks_[n %
// kBlocks], handed over, and written by the thread; `handed_` and `written_` count them.
class PosixDirectFile final : public WritableFile {
 public:
  PosixDirectFile(std::string path, Descriptor file, std::array<DirectMemory, kBlocks> blocks)
      : path_(std::move(path)), file_(std::move(file)), blocks_(std::move(blocks)) {}
  ~PosixDirectFile() override { StopThread(); }

  Status StartThread() {
    HR_ASSIGN_OR_RETURN(thread_, Thread::Start("hr-write", [this] { WriteBlocks(); }));
    return OkStatus();
  }

  Status Append(Bytes data) override {
    HR_RETURN_IF_ERROR(CheckUsable());
    if (through_cache_) return AppendThroughCache(data);
    while (!data.empty()) {
      size_t part = std::min(data.size(), kBlockBytes - fill_);
      std::memcpy(filling_ + fill_, data.data(), part);
      fill_ += part;
      size_ += part;
      data = data.subspan(part);
      if (fill_ == kBlockBytes) HR_RETURN_IF_ERROR(HandOver());
    }
    return OkStatus();
  }

  Status Sync() override {
    HR_RETURN_IF_ERROR(CheckUsable());
    HR_RETURN_IF_ERROR(WriteOut());
    int result;
    do {
      result = ::fdatasync(file_.get());
    } while (result != 0 && errno == EINTR);
    return result == 0 ? OkStatus() : Keep(errno, "sync", size_);
  }

  Status Close() override {
    if (!file_.valid()) return failure_;
    Status written = failure_.ok() ? WriteOut() : failure_;
    StopThread();
    int error = file_.Close();
    if (written.ok() && error != 0) return Keep(error, "close", size_);
    return written;
  }

  uint64_t size() const override { return size_; }

 private:
  Status CheckUsable() const {
    if (!failure_.ok() || file_.valid()) return failure_;
    return Error(Code::kFailedPrecondition, "cannot write {}: it is closed", EscapeText(path_));
  }
  Status Keep(int error, std::string_view verb, uint64_t offset) {
    failure_ = PathError(error, verb, path_).At({path_, offset, {}, {}});
    return failure_;
  }

  // Gives the full block to the thread and waits until there is another one to fill.
  Status HandOver() {
    MutexLock lock(&mu_);
    ++handed_;
    handed_cv_.NotifyOne();
    while (handed_ - written_ == kBlocks) written_cv_.Wait(&mu_);
    filling_ = blocks_[handed_ % kBlocks].get();
    fill_ = 0;
    failure_ = write_failure_;
    return failure_;
  }

  // Writes what the caller still fills, once the thread has nothing more to do. The end that is no
  // multiple of the alignment takes the usual way, and so does all that is appended later.
  Status WriteOut() {
    {
      MutexLock lock(&mu_);
      while (written_ != handed_) written_cv_.Wait(&mu_);
      failure_ = write_failure_;
    }
    HR_RETURN_IF_ERROR(failure_);
    if (fill_ == 0 || through_cache_) return OkStatus();
    uint64_t offset = size_ - fill_;
    size_t aligned = fill_ / kDirectAlignment * kDirectAlignment;
    failure_ = Write(Bytes(filling_, aligned), offset);
    HR_RETURN_IF_ERROR(failure_);
    if (!LeaveDirect(file_.get())) return Keep(errno, "write", offset);
    through_cache_ = true;
    failure_ = Write(Bytes(filling_ + aligned, fill_ - aligned), offset + aligned);
    return failure_;
  }

  Status AppendThroughCache(Bytes data) {
    failure_ = Write(data, size_);
    if (failure_.ok()) size_ += data.size();
    return failure_;
  }

  // Touches nothing but the descriptor, so that it may run on either thread.
  Status Write(Bytes data, uint64_t offset) const { return WriteAt(file_, path_, data, offset); }

  // ---- the thread ----

  void WriteBlocks() {
    uint64_t number;
    while (NextBlock(&number)) {
      Bytes block(blocks_[number % kBlocks].get(), kBlockBytes);
      Status status = Write(block, number * kBlockBytes);
      MutexLock lock(&mu_);
      if (write_failure_.ok()) write_failure_ = std::move(status);
      // After a fault, what is handed over is dropped: it would leave a hole before it.
      written_ = write_failure_.ok() ? written_ + 1 : handed_;
      written_cv_.NotifyOne();
    }
  }

  bool NextBlock(uint64_t* number) {
    MutexLock lock(&mu_);
    while (written_ == handed_ && !stop_) handed_cv_.Wait(&mu_);
    *number = written_;
    return !stop_;
  }

  void StopThread() {
    {
      MutexLock lock(&mu_);
      stop_ = true;
      handed_cv_.NotifyOne();
    }
    thread_.reset();
  }

  const std::string path_;
  Descriptor file_;
  const std::array<DirectMemory, kBlocks> blocks_;
  std::unique_ptr<Thread> thread_;

  // The caller's.
  std::byte* filling_ = blocks_[0].get();
  size_t fill_ = 0;
  uint64_t size_ = 0;
  bool through_cache_ = false;
  Status failure_;

  Mutex mu_;            // leaf; no I/O under it
  CondVar handed_cv_;   // for the thread: a block, or the end
  CondVar written_cv_;  // for the caller
  uint64_t handed_ HR_GUARDED_BY(mu_) = 0, written_ HR_GUARDED_BY(mu_) = 0;
  Status write_failure_ HR_GUARDED_BY(mu_);
  bool stop_ HR_GUARDED_BY(mu_) = false;
};

}  // namespace

Result<std::unique_ptr<WritableFile>> CreatePosixDirectFile(const std::string& path) {
  HR_ASSIGN_OR_RETURN(Descriptor file,
                      OpenDescriptor(path, O_WRONLY | O_CREAT | O_TRUNC | O_DIRECT, "write"));
  std::array<DirectMemory, kBlocks> blocks;
  for (DirectMemory& block : blocks) {
    block = AllocateDirectMemory(kBlockBytes);
    if (!block) return Error(Code::kResourceExhausted, "no memory to write {}", EscapeText(path));
  }
  auto made = std::make_unique<PosixDirectFile>(path, std::move(file), std::move(blocks));
  HR_RETURN_IF_ERROR(made->StartThread());
  return made;
}

// What is not aligned, and the file's end, goes by way of a small copy, which is padded; the
// padding is overwritten by what follows, or cut off.
Status WritePosixDirect(const std::string& path, std::span<const Bytes> parts) {
  constexpr size_t kCopyBytes = 64 << 10;
  HR_ASSIGN_OR_RETURN(Descriptor file,
                      OpenDescriptor(path, O_WRONLY | O_CREAT | O_TRUNC | O_DIRECT, "write"));
  DirectMemory copy = AllocateDirectMemory(kCopyBytes);
  if (!copy) return Error(Code::kResourceExhausted, "no memory to write {}", EscapeText(path));
  uint64_t offset = 0, end = 0;
  for (Bytes part : parts) {
    while (!part.empty()) {
      bool is_aligned = reinterpret_cast<uintptr_t>(part.data()) % kDirectAlignment == 0;
      size_t whole = part.size() / kDirectAlignment * kDirectAlignment;
      Bytes piece = part.first(is_aligned ? whole : 0);
      size_t taken = piece.size();
      if (piece.empty()) {
        taken = std::min(part.size(), kCopyBytes);
        size_t padded = (taken + kDirectAlignment - 1) / kDirectAlignment * kDirectAlignment;
        std::memcpy(copy.get(), part.data(), taken);
        std::memset(copy.get() + taken, 0, padded - taken);
        piece = Bytes(copy.get(), padded);
      }
      HR_RETURN_IF_ERROR(WriteAt(file, path, piece, offset));
      end = offset + piece.size();
      offset += taken;
      part = part.subspan(taken);
    }
  }
  if (end > offset && ::ftruncate(file.get(), static_cast<off_t>(offset)) != 0)
    return PathError(errno, "write", path).At({path, offset, {}, {}});
  int error = file.Close();
  return error == 0 ? OkStatus() : PathError(error, "close", path);
}

}  // namespace headrace
