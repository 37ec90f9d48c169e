#include "headrace/env/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <utility>
#include <vector>

#include "headrace/env/posix_descriptor.h"
#include "headrace/env/process.h"

namespace headrace {
namespace {

#ifndef MADV_POPULATE_WRITE
constexpr int MADV_POPULATE_WRITE = 23;  // Linux 5.14
#endif

constexpr uint64_t kTouchBytes = uint64_t{64} << 20;  // one thread takes so much at a time
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW;

uint64_t PageBytes() { return static_cast<uint64_t>(::sysconf(_SC_PAGESIZE)); }

class MappedMemory final : public SharedMemory {
 public:
  MappedMemory(Descriptor descriptor, std::byte* data, uint64_t size)
      : descriptor_(std::move(descriptor)), data_(data), size_(size) {}
  ~MappedMemory() override { ::munmap(data_, size_); }
  MappedMemory(const MappedMemory&) = delete;
  MappedMemory& operator=(const MappedMemory&) = delete;

  Status Touch(int threads) override;
  MutableBytes bytes() override { return {data_, size_}; }
  int descriptor() const override { return descriptor_.get(); }

 private:
  int TouchRange(uint64_t offset, uint64_t bytes);

  const Descriptor descriptor_;
  std::byte* const data_;
  const uint64_t size_;
};

// The kernel first reserves the pages, which it can refuse in words, then maps them.
int MappedMemory::TouchRange(uint64_t offset, uint64_t bytes) {
  int error = 0;
  do {
    error = ::fallocate(descriptor_.get(), 0, static_cast<off_t>(offset),
                        static_cast<off_t>(bytes)) == 0
                ? 0
                : errno;
  } while (error == EINTR);
  if (error != 0) return error;
  if (::madvise(data_ + offset, bytes, MADV_POPULATE_WRITE) == 0) return 0;
  if (errno != EINVAL) return errno;
  for (uint64_t i = 0; i < bytes; i += PageBytes()) {
    auto* word = reinterpret_cast<volatile std::byte*>(data_ + offset + i);
    *word = *word;
  }
  return 0;
}

Status MappedMemory::Touch(int threads) {
  std::atomic<uint64_t> next{0};
  std::atomic<int> error{0};
  auto work = [&] {
    while (error == 0) {
      uint64_t offset = next.fetch_add(kTouchBytes);
      if (offset >= size_) return;
      int failed = TouchRange(offset, std::min(kTouchBytes, size_ - offset));
      if (failed != 0) error = failed;
    }
  };
  {
    std::vector<std::unique_ptr<Thread>> others;
    for (int i = 1; i < threads; ++i) {
      auto thread = Thread::Start("hr-touch", work);
      if (!thread.ok()) break;  // fewer threads take longer, that is all
      others.push_back(std::move(*thread));
    }
    work();
  }
  if (error == 0) return OkStatus();
  return Error(Code::kResourceExhausted,
               "the machine or a limit set for this job does not give {} bytes of shared memory "
               "(error {}): ask for less, or raise the limit",
               size_, error.load());
}

Result<std::unique_ptr<SharedMemory>> MapAll(Descriptor descriptor, uint64_t bytes) {
  void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor.get(), 0);
  if (data == MAP_FAILED) return PathError(errno, "map", "shared memory");
  (void)::madvise(data, bytes, MADV_HUGEPAGE);  // where the administrator allows it
  return std::unique_ptr<SharedMemory>(
      std::make_unique<MappedMemory>(std::move(descriptor), static_cast<std::byte*>(data), bytes));
}

}  // namespace

Result<std::unique_ptr<SharedMemory>> SharedMemory::Create(const std::string& name,
                                                           uint64_t bytes) {
  HR_RETURN_IF_ERROR(CheckPath(name));
  if (bytes == 0) return Error(Code::kInvalidArgument, "shared memory of 0 bytes was asked for");
  uint64_t page = PageBytes();
  if (bytes > UINT64_MAX / 2)
    return Error(Code::kResourceExhausted, "{} bytes of shared memory were asked for", bytes);
  bytes = (bytes + page - 1) / page * page;
  Descriptor descriptor(::memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!descriptor.valid()) return PathError(errno, "make", "shared memory");
  if (::ftruncate(descriptor.get(), static_cast<off_t>(bytes)) != 0 ||
      ::fcntl(descriptor.get(), F_ADD_SEALS, kSeals) != 0)
    return PathError(errno, "size", "shared memory");
  return MapAll(std::move(descriptor), bytes);
}

Result<std::unique_ptr<SharedMemory>> SharedMemory::Adopt(int descriptor) {
  Descriptor owned(descriptor);
  int seals = ::fcntl(owned.get(), F_GET_SEALS);
  struct stat info{};
  if (seals < 0 || (seals & kSeals) != kSeals || ::fstat(owned.get(), &info) != 0 ||
      info.st_size <= 0)
    return Error(Code::kInvalidArgument, "what was sent is no shared memory of a fixed size");
  return MapAll(std::move(owned), static_cast<uint64_t>(info.st_size));
}

}  // namespace headrace
