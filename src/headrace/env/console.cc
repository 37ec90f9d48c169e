#include "headrace/env/console.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

namespace headrace {
namespace {

std::atomic<bool> interrupted{false};

void OnInterrupt(int) { interrupted.store(true, std::memory_order_relaxed); }

// Writes all of `data`; returns 0 or an errno.
int WriteAll(int fd, Bytes data) {
  while (!data.empty()) {
    ssize_t n = ::write(fd, data.data(), data.size());
    if (n < 0) {
      if (errno == EINTR) continue;
      return errno;
    }
    data = data.subspan(static_cast<size_t>(n));
  }
  return 0;
}

}  // namespace

bool StderrIsTerminal() { return ::isatty(STDERR_FILENO) == 1; }

int StderrColumns() {
  winsize size{};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

Status WriteStdout(Bytes data) {
  int error = WriteAll(STDOUT_FILENO, data);
  if (error == 0) return OkStatus();
  if (error == EPIPE) return Status(Code::kUnavailable, "the reader of standard output has gone");
  return ErrnoError(error, "cannot write to standard output");
}

void WriteStderr(Bytes data) { (void)WriteAll(STDERR_FILENO, data); }

std::optional<std::string> EnvironmentText(const std::string& name) {
  const char* value = ::getenv(name.c_str());
  if (value == nullptr) return std::nullopt;
  return std::string(value);
}

void IgnoreBrokenPipes() { ::signal(SIGPIPE, SIG_IGN); }

const std::atomic<bool>* CancelOnInterrupt() {
  struct sigaction action{};
  action.sa_handler = OnInterrupt;
  // The second signal finds the default action again. Blocking reads go on (SA_RESTART): the flag
  // is looked at between them.
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
  ::sigemptyset(&action.sa_mask);
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
  return &interrupted;
}

}  // namespace headrace
