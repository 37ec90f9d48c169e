#include "machine_limits.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <thread>
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

// A piece of a file that one thread reads.
struct Piece {
  const std::string* path;
  off_t offset;
};

std::vector<std::string> FilesBelow(const std::string& folder) {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) paths.push_back(entry.path().string());
  }
  return paths;
}

// The whole blocks of the files, round the files again and again.
std::vector<Piece> CutIntoPieces(const std::vector<std::string>& paths, size_t block_bytes) {
  std::vector<Piece> pieces;
  for (const std::string& path : paths) {
    const uint64_t blocks = std::filesystem::file_size(path) / block_bytes;
    for (uint64_t block = 0; block < blocks; ++block) {
      pieces.push_back({&path, static_cast<off_t>(block * block_bytes)});
    }
  }
  return pieces;
}

// Takes pieces until the time is over; returns the bytes read, or -1.
int64_t ReadPieces(const std::vector<Piece>& pieces, size_t block_bytes, std::atomic<size_t>* next,
                   double deadline) {
  std::unique_ptr<void, decltype(&std::free)> block(std::aligned_alloc(kAlignment, block_bytes),
                                                    &std::free);
  int64_t bytes = 0;
  const std::string* open_path = nullptr;
  int fd = -1;
  while (Now() < deadline) {
    const Piece& piece = pieces[(*next)++ % pieces.size()];
    if (piece.path != open_path) {
      if (fd >= 0) close(fd);
      open_path = piece.path;
      fd = open(open_path->c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC);
    }
    const ssize_t got = fd < 0 ? -1 : pread(fd, block.get(), block_bytes, piece.offset);
    if (got < 0) {
      if (fd >= 0) close(fd);
      return -1;
    }
    bytes += got;
  }
  if (fd >= 0) close(fd);
  return bytes;
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

double DirectReadBytesPerSecond(const std::string& folder, size_t block_bytes, int threads,
                                double seconds) {
  const std::vector<std::string> paths = FilesBelow(folder);
  const std::vector<Piece> pieces = CutIntoPieces(paths, block_bytes);
  if (pieces.empty()) return -1;
  std::atomic<size_t> next{0};
  std::atomic<int64_t> bytes{0};
  std::atomic<bool> failed{false};
  const double start = Now();
  {
    std::vector<std::jthread> readers;
    for (int i = 0; i < threads; ++i) {
      readers.emplace_back([&] {
        const int64_t read = ReadPieces(pieces, block_bytes, &next, start + seconds);
        if (read < 0) failed = true;
        bytes += read;
      });
    }
  }
  return failed ? -1 : static_cast<double>(bytes) / (Now() - start);
}

}  // namespace headrace::floor
