// Errors as values. Every call that can fail returns a Status or a Result<T>; both are
// [[nodiscard]]. Exceptions stop at the borders to third-party code.
//
// A Status is a code of one numbered table, a message a person can act on, and, where the fault
// lies in data, the place: shard, offset, key and field. Context is added on the way up with
// Prefix(). Values of these types may be moved between threads; one value is not for several
// threads at once.
#pragma once

#include <fmt/core.h>

#include <cassert>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace headrace {

// The one table of error codes. Numbers are stable: they appear in JSON and in Python exceptions.
enum class Code : uint16_t {
  kOk = 0,
  kCancelled = 1,           // the caller asked to stop
  kInvalidArgument = 2,     // the caller's values make no sense, whatever the state
  kNotFound = 3,            // a file, key or member that should be there is not
  kAlreadyExists = 4,       // a target that must not be there is
  kPermissionDenied = 5,    // the operating system or a policy said no
  kResourceExhausted = 6,   // a limit: memory, descriptors, disk space, pixels
  kFailedPrecondition = 7,  // the state does not fit: wrong version, wrong dataset, locked
  kOutOfRange = 8,          // a position beyond the end
  kUnimplemented = 9,       // understood, and not supported
  kDataLoss = 10,           // bytes are missing or wrong: checksum, truncation, damage
  kUnavailable = 11,        // may work later
  kDeadlineExceeded = 12,   // the deadline of the Context passed
  kInternal = 13,           // a bug of ours
  kIoError = 14,            // the operating system reported an I/O fault
};

// Returns "data loss" for kDataLoss, and so on.
std::string_view CodeName(Code code);
// Returns the errno that stands for the code at a POSIX border (EIO for kDataLoss...); 0 for kOk.
int CodeToErrno(Code code);
// Returns the code for an errno.
Code CodeFromErrno(int error);

// Where in the data a fault lies. Empty parts are unknown.
struct Location {
  std::string file;                // shard or file name
  std::optional<uint64_t> offset;  // bytes from the start of `file`
  std::string key;                 // sample key, any bytes
  std::string field;               // field name
};

class [[nodiscard]] Status {
 public:
  Status() = default;  // kOk
  Status(Code code, std::string message);
  Status(const Status& other);
  Status& operator=(const Status& other);
  Status(Status&&) noexcept = default;
  Status& operator=(Status&&) noexcept = default;

  bool ok() const { return rep_ == nullptr; }
  Code code() const { return rep_ ? rep_->code : Code::kOk; }
  std::string_view message() const { return rep_ ? std::string_view(rep_->message) : ""; }
  // The place of the fault; a default Location when none was given.
  const Location& location() const;

  // How long the one that failed asks to be left alone before the next try (a busy server); none
  // when it did not say.
  std::optional<std::chrono::nanoseconds> retry_after() const;
  // True when the one that failed refused because more is asked of it than it allows (429, 503).
  bool throttled() const { return rep_ && rep_->throttled; }

  // Puts "text: " before the message. No effect on kOk.
  Status&& Prefix(std::string_view text) &&;
  // Fills the parts of the location that are still unknown. No effect on kOk.
  Status&& At(Location location) &&;
  // Sets retry_after(). No effect on kOk.
  Status&& RetryAfter(std::chrono::nanoseconds wait) &&;
  // Sets throttled(). No effect on kOk.
  Status&& Throttled() &&;

  // "data loss: message [file: ..., offset: ..., key: ...]"; "ok" for kOk. Keys are escaped.
  std::string ToString() const;

 private:
  struct Rep {
    Code code;
    std::string message;
    Location location;
    std::optional<std::chrono::nanoseconds> retry_after;
    bool throttled = false;
  };
  std::unique_ptr<Rep> rep_;  // null = kOk
};

inline Status OkStatus() { return Status(); }

// Builds a Status from an fmt format string: Error(Code::kNotFound, "no shard {}", name).
template <typename... Args>
Status Error(Code code, fmt::format_string<Args...> format, Args&&... args) {
  return Status(code, fmt::format(format, std::forward<Args>(args)...));
}

// Builds a Status from errno: "cannot open /x/y: No such file or directory".
Status ErrnoError(int error, std::string_view what);

// A value or the Status that says why there is none.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}  // NOLINT: implicit by design
  Result(Status status) : status_(std::move(status)) { assert(!status_.ok()); }  // NOLINT
  // From anything that T can be made from, e.g. unique_ptr<Derived>.
  template <typename U, typename = std::enable_if_t<std::is_convertible_v<U&&, T> &&
                                                    !std::is_same_v<std::decay_t<U>, Status> &&
                                                    !std::is_same_v<std::decay_t<U>, Result>>>
  Result(U&& value) : value_(std::forward<U>(value)) {}  // NOLINT

  bool ok() const { return value_.has_value(); }
  const Status& status() const& { return status_; }
  Status&& status() && { return std::move(status_); }

  T& value() & {
    assert(ok());
    return *value_;
  }
  const T& value() const& {
    assert(ok());
    return *value_;
  }
  T&& value() && {
    assert(ok());
    return *std::move(value_);
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() {
    assert(ok());
    return &*value_;
  }
  const T* operator->() const {
    assert(ok());
    return &*value_;
  }

 private:
  Status status_;
  std::optional<T> value_;
};

}  // namespace headrace

// Returns the Status of `expression` to the caller unless it is OK.
#define HR_RETURN_IF_ERROR(expression)            \
  do {                                            \
    ::headrace::Status hr_status_ = (expression); \
    if (!hr_status_.ok()) return hr_status_;      \
  } while (false)

#define HR_CONCAT_INNER_(a, b) a##b
#define HR_CONCAT_(a, b) HR_CONCAT_INNER_(a, b)
// HR_ASSIGN_OR_RETURN(auto x, F()): x = value of F(), or return its Status.
#define HR_ASSIGN_OR_RETURN(declaration, expression) \
  HR_ASSIGN_OR_RETURN_IMPL_(HR_CONCAT_(hr_result_, __LINE__), declaration, expression)
#define HR_ASSIGN_OR_RETURN_IMPL_(result, declaration, expression) \
  auto result = (expression);                                      \
  if (!result.ok()) return std::move(result).status();             \
  declaration = std::move(result).value()
