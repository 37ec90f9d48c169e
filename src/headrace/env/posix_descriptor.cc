#include "headrace/env/posix_descriptor.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>

#include "headrace/base/text.h"
#include "headrace/env/file.h"
#include "headrace/env/process.h"

namespace headrace {

namespace {
std::string AdviceFor(int error) {
  switch (error) {
    case EMFILE:
      return fmt::format(
          "too many open files (limit {}); raise it with 'ulimit -n', or open fewer at once",
          OpenFileLimit());
    case ENFILE:
      return "too many open files on this machine; raise fs.file-max, or close other programs";
    case ENOSPC:
      return "no space left on the device; free some, or choose another place";
    case EDQUOT:
      return "the disk quota is used up; free some space, or choose another place";
    case EFBIG:
      return "the file would pass the largest size allowed here (see 'ulimit -f')";
    case ENOMEM:
      return "no memory left; free some, or raise the limit ('ulimit -v')";
    default:
      return "";
  }
}
}  // namespace

int Descriptor::Close() {
  if (fd_ < 0) return 0;
  int fd = std::exchange(fd_, -1);
  // Linux has released the descriptor even when it reports an interruption.
  return ::close(fd) == 0 || errno == EINTR ? 0 : errno;
}

Status CheckPath(const std::string& path) {
  if (path.find('\0') == std::string::npos) return OkStatus();
  return Error(Code::kInvalidArgument, "the path '{}' holds a NUL byte; no file can have that name",
               EscapeText(path));
}

Result<Descriptor> OpenDescriptor(const std::string& path, int flags, std::string_view verb) {
  HR_RETURN_IF_ERROR(CheckPath(path));
  int fd;
  do {
    fd = ::open(path.c_str(), flags | O_CLOEXEC, 0666);
  } while (fd < 0 && errno == EINTR);
  if (fd < 0) return PathError(errno, verb, path);
  return Descriptor(fd);
}

Result<size_t> ReadByPosition(const Descriptor& file, const std::string& path, uint64_t offset,
                              MutableBytes out, const Context& ctx, bool direct) {
  size_t done = 0;
  while (done < out.size() && offset <= kMaxOffset - done) {
    HR_RETURN_IF_ERROR(ctx.Check());
    ssize_t n = ::pread(file.get(), out.data() + done, out.size() - done,
                        static_cast<off_t>(offset + done));
    if (n == 0) break;
    if (n > 0) {
      done += static_cast<size_t>(n);
      // Inside a unit only the file's end stops a direct read; asking on from there would end them.
      if (direct && (offset + done) % kDirectAlignment != 0) break;
    } else if (errno == EINVAL && LeaveDirect(file.get())) {
      continue;  // opened for direct reads, and this one is not aligned as the system wants it
    } else if (errno != EINTR) {
      return PathError(errno, "read", path).At({path, offset + done, {}, {}});
    }
  }
  return done;
}

Status PathError(int error, std::string_view verb, std::string_view path) {
  std::string what = fmt::format("cannot {} {}", verb, EscapeText(path));
  std::string advice = AdviceFor(error);
  if (advice.empty()) return ErrnoError(error, what);
  return Status(CodeFromErrno(error), what + ": " + advice);
}

bool LeaveDirect(int fd) {
  int flags = ::fcntl(fd, F_GETFL);
  if (flags < 0) return false;
  if ((flags & O_DIRECT) == 0) {
    errno = EINVAL;
    return false;
  }
  return ::fcntl(fd, F_SETFL, flags & ~O_DIRECT) == 0;
}

bool IsDirect(int fd) {
  int flags = ::fcntl(fd, F_GETFL);
  return flags >= 0 && (flags & O_DIRECT) != 0;
}

void LeaveNonBlocking(int fd) {
  int flags = ::fcntl(fd, F_GETFL);
  if (flags >= 0 && (flags & O_NONBLOCK) != 0) (void)::fcntl(fd, F_SETFL, flags & ~O_NONBLOCK);
}

}  // namespace headrace
