// A file descriptor with an owner, and how the system's faults become words. Internal to env.
// One owner at a time; the functions are safe from any thread.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include "headrace/base/bytes.h"
#include "headrace/base/context.h"
#include "headrace/base/status.h"

namespace headrace {

class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() { (void)Close(); }
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    if (this != &other) {
      (void)Close();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  int Release() { return std::exchange(fd_, -1); }
  // Returns 0 or the errno of the close. The descriptor is gone either way.
  int Close();

 private:
  int fd_ = -1;
};

// Opens with O_CLOEXEC, again after an interruption. `verb` ("read") is for the message.
Result<Descriptor> OpenDescriptor(const std::string& path, int flags, std::string_view verb);

// Offsets that the system takes.
inline constexpr uint64_t kMaxOffset = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());

// Reads from `offset` until `out` is full or the file ends; returns how many bytes were read.
// `path` is for messages. `direct`: the file is read around the page cache.
Result<size_t> ReadByPosition(const Descriptor& file, const std::string& path, uint64_t offset,
                              MutableBytes out, const Context& ctx, bool direct = false);

// The Status of an errno for "cannot VERB PATH", with advice where a person can do something: too
// many open files, a full disk, a quota, no memory.
Status PathError(int error, std::string_view verb, std::string_view path);

// kInvalidArgument when `path` holds a NUL, which the kernel would take for its end.
Status CheckPath(const std::string& path);

// Lets later reads and writes of a descriptor opened with O_DIRECT take the usual way; false, with
// errno, when they do already (EINVAL) or cannot.
bool LeaveDirect(int fd);
// True for a descriptor opened with O_DIRECT that has not left it.
bool IsDirect(int fd);
// Takes O_NONBLOCK, with which a descriptor was opened, off it.
void LeaveNonBlocking(int fd);

}  // namespace headrace
