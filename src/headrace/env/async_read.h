// Reads of files, many under way at once. Two drivers do the same work: io_uring, where the kernel
// has it and lets this process use it, and threads that read and wait. Raw system calls, so nothing
// is linked or loaded for it.
//
// Thread-safe. Not for use in a child forked after it was made.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "headrace/env/file.h"

namespace headrace {

struct AsyncRead {
  static constexpr size_t kAll = std::numeric_limits<size_t>::max();

  const RandomAccessFile* file = nullptr;  // not owned; open until `done` is called
  uint64_t offset = 0;
  // Filled one after the other. A file opened by OpenDirect wants each aligned, and whatever is
  // not is read the usual way.
  std::array<MutableBytes, 3> parts = {};
  size_t needed_bytes = kAll;  // the file may end once so many are there
  // Called once, on a thread of the reader: it must not block. The parts are then no longer
  // written. Failures are those of RandomAccessFile::ReadAt; kUnavailable when the kernel kept
  // putting it off.
  std::function<void(Status)> done;
};

class AsyncReader {
 public:
  enum class Driver : uint8_t { kUring, kThreads };
  struct Options {
    // None: what the environment variable HEADRACE_IO says ("uring" or "threads"); else io_uring
    // where it works.
    std::optional<Driver> driver = {};
    uint32_t depth = 64;    // reads the kernel has at once; more wait their turn. 1 to 4,096
    uint32_t threads = 16;  // at most, of the driver kThreads; started when there is work
    // For tests: what the kernel answered (bytes, or a negative errno) becomes what this returns.
    // Called on threads of the reader.
    std::function<int64_t(int64_t)> alter_answer = {};
  };

  //   kInvalidArgument    HEADRACE_IO has another value, or `depth` is out of bounds.
  //   kUnimplemented      io_uring was asked for, and cannot be had here: says why.
  //   kResourceExhausted  no memory, threads or descriptors for it.
  static Result<std::unique_ptr<AsyncReader>> Create(const Options& options);
  static Result<std::unique_ptr<AsyncReader>> Create() { return Create(Options()); }
  // Waits for all reads. Not on a thread of its own.
  virtual ~AsyncReader() = default;

  // Starts reads and returns. From any thread, also from a `done`.
  virtual void Submit(std::vector<AsyncRead> reads) = 0;
  virtual Driver driver() const = 0;
};

// "uring" or "threads".
std::string_view DriverName(AsyncReader::Driver driver);

}  // namespace headrace
