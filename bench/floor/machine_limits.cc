#include "machine_limits.h"

#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include <isa-l/crc.h>

namespace headrace::floor {
namespace {

constexpr size_t kBufferBytes = size_t{256} << 20;
constexpr size_t kBlockBytes = size_t{1} << 20;
constexpr size_t kAlignment = 4096;

double Now() {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(since).count();
}

// Calls `step` until `seconds` are over; returns bytes per second.
template <typename Step>
double Rate(double seconds, size_t bytes_per_step, Step step) {
  step();  // touches the memory
  const double start = Now();
  size_t bytes = 0;
  while (Now() - start < seconds) {
    step();
    bytes += bytes_per_step;
  }
  return static_cast<double>(bytes) / (Now() - start);
}

}  // namespace

double CopyBytesPerSecond(double seconds) {
  std::vector<uint8_t> from(kBufferBytes, 1);
  std::vector<uint8_t> to(kBufferBytes, 2);
  return Rate(seconds, kBufferBytes, [&] {
    std::memcpy(to.data(), from.data(), kBufferBytes);
    asm volatile("" : : "r"(to.data()) : "memory");  // the copy is used
  });
}

double Crc32cBytesPerSecond(double seconds) {
  std::vector<uint8_t> buffer(kBufferBytes, 1);
  return Rate(seconds, kBufferBytes, [&] {
    const uint32_t crc = crc32_iscsi(buffer.data(), static_cast<int>(kBufferBytes), ~0u);
    asm volatile("" : : "r"(crc));
  });
}

double DiskWriteBytesPerSecond(const std::string& folder, double seconds) {
  const std::string path = folder + "/disk-limit.tmp";
  constexpr int kFlags = O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC;
  int fd = open(path.c_str(), kFlags | O_DIRECT, 0644);
  if (fd < 0) fd = open(path.c_str(), kFlags, 0644);
  if (fd < 0) return -1;
  unlink(path.c_str());
  std::unique_ptr<void, decltype(&std::free)> block(std::aligned_alloc(kAlignment, kBlockBytes),
                                                    &std::free);
  std::memset(block.get(), 0x5a, kBlockBytes);
  const double start = Now();
  size_t bytes = 0;
  bool failed = false;
  while (!failed && Now() - start < seconds) {
    failed = write(fd, block.get(), kBlockBytes) != static_cast<ssize_t>(kBlockBytes);
    if (!failed) bytes += kBlockBytes;
  }
  failed = fdatasync(fd) != 0 || failed;
  const double rate = static_cast<double>(bytes) / (Now() - start);
  close(fd);
  return failed ? -1 : rate;
}

}  // namespace headrace::floor
