// A file descriptor with an owner, and how the system's faults become words. Internal to env.
// One owner at a time; the functions are safe from any thread.
#pragma once

#include <string>
#include <string_view>
#include <utility>

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

// The Status of an errno for "cannot VERB PATH", with advice where a person can do something: too
// many open files, a full disk, a quota, no memory.
Status PathError(int error, std::string_view verb, std::string_view path);

// kInvalidArgument when `path` holds a NUL, which the kernel would take for its end.
Status CheckPath(const std::string& path);

}  // namespace headrace
