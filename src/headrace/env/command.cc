#include "headrace/env/command.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <ctime>

extern char** environ;

namespace headrace {

namespace {

constexpr int kPollMs = 100;

// One end of a pipe; closed when destroyed.
struct Descriptor {
  int fd = -1;
  ~Descriptor() { Close(); }
  void Close() {
    if (fd >= 0) ::close(fd);
    fd = -1;
  }
};

// What the child starts with: its own group, so that all of it can be killed, and no signal blocked
// or ignored, whatever this thread blocks.
class SpawnSettings {
 public:
  explicit SpawnSettings(int output) {
    posix_spawn_file_actions_init(&files_);
    posix_spawn_file_actions_addopen(&files_, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&files_, output, 1);
    posix_spawn_file_actions_addopen(&files_, 2, "/dev/null", O_WRONLY, 0);
    posix_spawnattr_init(&attributes_);
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_setsigmask(&attributes_, &none);
    posix_spawnattr_setsigdefault(&attributes_, &all);
    posix_spawnattr_setpgroup(&attributes_, 0);
    posix_spawnattr_setflags(
        &attributes_, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  }
  ~SpawnSettings() {
    posix_spawn_file_actions_destroy(&files_);
    posix_spawnattr_destroy(&attributes_);
  }
  SpawnSettings(const SpawnSettings&) = delete;
  SpawnSettings& operator=(const SpawnSettings&) = delete;

  int Start(const std::vector<std::string>& arguments, pid_t* pid) {
    std::vector<char*> argv;
    for (const std::string& argument : arguments)
      argv.push_back(const_cast<char*>(argument.c_str()));  // NOLINT: posix_spawn does not write
    argv.push_back(nullptr);
    return ::posix_spawnp(pid, argv[0], &files_, &attributes_, argv.data(), environ);
  }

 private:
  posix_spawn_file_actions_t files_{};
  posix_spawnattr_t attributes_{};
};

// Reads until the child closes its end.
Status ReadAll(int fd, const std::string& program, uint64_t limit_bytes, const Context& ctx,
               std::string* text) {
  while (true) {
    HR_RETURN_IF_ERROR(ctx.Check());
    pollfd waits{fd, POLLIN, 0};
    int ready = ::poll(&waits, 1, kPollMs);
    if (ready < 0 && errno != EINTR) return ErrnoError(errno, "cannot wait for '" + program + "'");
    if (ready <= 0) continue;
    char buffer[4096];
    ssize_t got = ::read(fd, buffer, sizeof(buffer));
    if (got < 0 && errno != EINTR) return ErrnoError(errno, "cannot read from '" + program + "'");
    if (got == 0) return OkStatus();
    if (got > 0) text->append(buffer, static_cast<size_t>(got));
    if (text->size() > limit_bytes)
      return Error(Code::kResourceExhausted, "'{}' printed more than {} bytes", program,
                   limit_bytes);
  }
}

int ExitCode(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status); }

// Waits for the end of a child that has closed its output.
Result<int> WaitForEnd(pid_t pid, const Context& ctx) {
  while (true) {
    int status = 0;
    pid_t ended = ::waitpid(pid, &status, WNOHANG);
    if (ended == pid) return ExitCode(status);
    // The program ignores SIGCHLD, so the system keeps no exit codes.
    if (ended < 0 && errno != EINTR) return 0;
    HR_RETURN_IF_ERROR(ctx.Check());
    timespec pause{0, 2'000'000};
    ::nanosleep(&pause, nullptr);
  }
}

void KillGroup(pid_t pid) {
  ::kill(-pid, SIGKILL);
  while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
  }
}

bool IsBlank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

// Takes one word from `text` at `*at`, which is not blank.
Status TakeWord(std::string_view text, size_t* at, std::string* word) {
  char quote = 0;
  for (; *at < text.size() && (quote != 0 || !IsBlank(text[*at])); ++*at) {
    char c = text[*at];
    if (c == quote) {
      quote = 0;
    } else if (quote == 0 && (c == '\'' || c == '"')) {
      quote = c;
    } else if (c == '\\' && quote != '\'' && *at + 1 < text.size()) {
      char next = text[++*at];
      // Inside "..." a backslash quotes only these two; else it stays.
      if (quote == '"' && next != '"' && next != '\\') word->push_back(c);
      word->push_back(next);
    } else {
      word->push_back(c);
    }
  }
  if (quote == 0) return OkStatus();
  return Error(Code::kInvalidArgument, "a command line with a quote ({}) that is never closed",
               quote);
}

}  // namespace

Result<std::vector<std::string>> SplitCommand(std::string_view text) {
  std::vector<std::string> words;
  for (size_t at = 0;;) {
    while (at < text.size() && IsBlank(text[at])) ++at;
    if (at == text.size()) break;
    HR_RETURN_IF_ERROR(TakeWord(text, &at, &words.emplace_back()));
  }
  if (words.empty()) return Error(Code::kInvalidArgument, "an empty command line");
  return words;
}

Result<CommandOutput> RunCommand(const std::vector<std::string>& arguments, uint64_t limit_bytes,
                                 const Context& ctx) {
  if (arguments.empty()) return Error(Code::kInvalidArgument, "no command to run");
  const std::string& program = arguments[0];
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0)
    return ErrnoError(errno, "cannot make a pipe to '" + program + "'");
  Descriptor reading{ends[0]}, writing{ends[1]};
  pid_t pid = 0;
  int error = SpawnSettings(writing.fd).Start(arguments, &pid);
  if (error != 0) return ErrnoError(error, "cannot run '" + program + "'");
  writing.Close();

  CommandOutput output;
  Status read = ReadAll(reading.fd, program, limit_bytes, ctx, &output.text);
  Result<int> exit_code = read.ok() ? WaitForEnd(pid, ctx) : Result<int>(std::move(read));
  if (!exit_code.ok()) {
    KillGroup(pid);
    return std::move(exit_code).status().Prefix("running '" + program + "'");
  }
  output.exit_code = *exit_code;
  return output;
}

}  // namespace headrace
