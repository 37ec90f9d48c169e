#include "headrace/env/console.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <array>

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

class TerminalScreen final : public FullScreen {
 public:
  explicit TerminalScreen(const termios& before) : before_(before) {}
  ~TerminalScreen() override {
    (void)WriteAll(STDOUT_FILENO, AsBytes("\x1b[?25h\x1b[?1049l"));
    ::tcsetattr(STDIN_FILENO, TCSANOW, &before_);
  }
  TerminalScreen(const TerminalScreen&) = delete;
  TerminalScreen& operator=(const TerminalScreen&) = delete;

  std::string ReadKeys(std::chrono::milliseconds timeout) override {
    pollfd input{STDIN_FILENO, POLLIN, 0};
    if (::poll(&input, 1, static_cast<int>(timeout.count())) <= 0) return "";
    std::array<char, 64> keys;
    const ssize_t got = ::read(STDIN_FILENO, keys.data(), keys.size());
    if (got == 0) return "q";  // the terminal is gone
    return got > 0 ? std::string(keys.data(), static_cast<size_t>(got)) : "";
  }

 private:
  const termios before_;
};

}  // namespace

Result<std::unique_ptr<FullScreen>> FullScreen::Enter() {
  termios before{};
  if (!StdoutIsTerminal() || ::tcgetattr(STDIN_FILENO, &before) != 0)
    return Error(Code::kFailedPrecondition, "standard input or output is no terminal");
  termios keys = before;
  keys.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
  keys.c_cc[VMIN] = 0;
  keys.c_cc[VTIME] = 0;
  if (::tcsetattr(STDIN_FILENO, TCSANOW, &keys) != 0)
    return ErrnoError(errno, "cannot set up the terminal");
  if (int error = WriteAll(STDOUT_FILENO, AsBytes("\x1b[?1049h\x1b[?25l")); error != 0)
    return ErrnoError(error, "cannot write to the terminal");
  return std::unique_ptr<FullScreen>(std::make_unique<TerminalScreen>(before));
}

bool StdoutIsTerminal() { return ::isatty(STDOUT_FILENO) == 1; }

TerminalSize StdoutSize() {
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0)
    return {};
  return {size.ws_col, size.ws_row};
}

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
