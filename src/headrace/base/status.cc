#include "headrace/base/status.h"

#include <cerrno>
#include <system_error>

#include "headrace/base/text.h"

namespace headrace {

namespace {
struct CodeRow {
  Code code;
  std::string_view name;
  int error;
};
constexpr CodeRow kCodes[] = {
    {Code::kOk, "ok", 0},
    {Code::kCancelled, "cancelled", ECANCELED},
    {Code::kInvalidArgument, "invalid argument", EINVAL},
    {Code::kNotFound, "not found", ENOENT},
    {Code::kAlreadyExists, "already exists", EEXIST},
    {Code::kPermissionDenied, "permission denied", EACCES},
    {Code::kResourceExhausted, "limit reached", ENOSPC},
    {Code::kFailedPrecondition, "failed precondition", EBUSY},
    {Code::kOutOfRange, "out of range", ERANGE},
    {Code::kUnimplemented, "not supported", ENOTSUP},
    {Code::kDataLoss, "data loss", EIO},
    {Code::kUnavailable, "unavailable", EAGAIN},
    {Code::kDeadlineExceeded, "deadline exceeded", ETIMEDOUT},
    {Code::kInternal, "internal error", EFAULT},
    {Code::kIoError, "I/O error", EIO},
};
}  // namespace

std::string_view CodeName(Code code) { return kCodes[static_cast<size_t>(code)].name; }

int CodeToErrno(Code code) { return kCodes[static_cast<size_t>(code)].error; }

Code CodeFromErrno(int error) {
  switch (error) {
    case 0:
      return Code::kOk;
    case ENOENT:
    case ENOTDIR:
      return Code::kNotFound;
    case EEXIST:
    case ENOTEMPTY:
      return Code::kAlreadyExists;
    case EACCES:
    case EPERM:
    case EROFS:
      return Code::kPermissionDenied;
    case ENOSPC:
    case EDQUOT:
    case ENOMEM:
    case EMFILE:
    case ENFILE:
    case EFBIG:
      return Code::kResourceExhausted;
    case EINVAL:
    case ENAMETOOLONG:
    case ELOOP:
    case EISDIR:
      return Code::kInvalidArgument;
    case EBUSY:
    case ETXTBSY:
      return Code::kFailedPrecondition;
    case EAGAIN:
    case ESTALE:  // of a network file system: opening the file anew may help
      return Code::kUnavailable;
    case ETIMEDOUT:
      return Code::kDeadlineExceeded;
    case ECANCELED:
      return Code::kCancelled;
    case ENOTSUP:
    case ENOSYS:
      return Code::kUnimplemented;
    default:
      return Code::kIoError;
  }
}

Status::Status(Code code, std::string message)
    : rep_(code == Code::kOk ? nullptr : new Rep{code, std::move(message), {}, {}, false}) {}

Status::Status(const Status& other) : rep_(other.rep_ ? new Rep(*other.rep_) : nullptr) {}

Status& Status::operator=(const Status& other) {
  if (this != &other) rep_.reset(other.rep_ ? new Rep(*other.rep_) : nullptr);
  return *this;
}

const Location& Status::location() const {
  static const Location kNowhere;
  return rep_ ? rep_->location : kNowhere;
}

Status&& Status::Prefix(std::string_view text) && {
  if (rep_) rep_->message = std::string(text) + ": " + rep_->message;
  return std::move(*this);
}

Status&& Status::At(Location location) && {
  if (rep_) {
    Location& mine = rep_->location;
    if (mine.file.empty()) mine.file = std::move(location.file);
    if (!mine.offset) mine.offset = location.offset;
    if (mine.key.empty()) mine.key = std::move(location.key);
    if (mine.field.empty()) mine.field = std::move(location.field);
  }
  return std::move(*this);
}

std::optional<std::chrono::nanoseconds> Status::retry_after() const {
  return rep_ ? rep_->retry_after : std::nullopt;
}

Status&& Status::RetryAfter(std::chrono::nanoseconds wait) && {
  if (rep_) rep_->retry_after = wait;
  return std::move(*this);
}

Status&& Status::Throttled() && {
  if (rep_) rep_->throttled = true;
  return std::move(*this);
}

std::string Status::ToString() const {
  if (ok()) return "ok";
  std::string text = fmt::format("{}: {}", CodeName(code()), message());
  std::string place;
  auto add = [&place](std::string_view name, std::string_view value) {
    if (value.empty()) return;
    place += fmt::format("{}{}: {}", place.empty() ? "" : ", ", name, value);
  };
  const Location& at = location();
  add("file", EscapeText(at.file));
  if (at.offset) add("offset", std::to_string(*at.offset));
  add("key", EscapeText(at.key));
  add("field", EscapeText(at.field));
  return place.empty() ? text : text + " [" + place + "]";
}

Status ErrnoError(int error, std::string_view what) {
  return Status(CodeFromErrno(error),
                fmt::format("{}: {}", what, std::generic_category().message(error)));
}

}  // namespace headrace
