// What the machine and the process offer. Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "headrace/base/status.h"

namespace headrace {

// Processors this process may run on (its affinity mask), at least 1.
int AvailableCpus();
// Bytes of memory that this process may use at most, page cache included: the machine's, or less
// where a control group says so. 0 when the system does not tell.
uint64_t MemoryLimitBytes();
// The folder that relative paths start from, as an absolute path. kNotFound when it was removed.
Result<std::string> CurrentDirectory();
// The value of an environment variable; none when it is not set or empty.
std::optional<std::string> EnvironmentVariable(const std::string& name);
// The user's home folder: $HOME, else what the system's list of users says. Empty when neither
// does.
std::string HomeDirectory();
// Nanoseconds since 1970, by the system's clock, which may be wrong and may jump. For talking to
// others about time only: nothing that is stored or ordered may hang on it.
int64_t WallClockNanos();
// CPU seconds (user + system) this process has used.
double ProcessCpuSeconds();
// The number of this process, for people and for messages.
int64_t ProcessId();
// The soft limit on open files of this process.
uint64_t OpenFileLimit();
// The largest file, in bytes, that this process may write (RLIMIT_FSIZE).
uint64_t FileSizeLimit();
// How many descriptors are open now. kUnavailable where /proc is not mounted.
Result<uint64_t> NumOpenFiles();
// Lets programs that this one starts not inherit an open descriptor (of a library that does not
// care). EBADF and the like as ErrnoError gives them.
Status CloseOnExec(int descriptor);
// 32 hexadecimal digits that no other call has given or will give, on whatever machine.
std::string RandomToken();
// A number that differs in a forked child from that of its parent, from the first call on. Cheap
// (one load).
uint64_t ForkGeneration();

// A native thread with a name that `top -H` shows (its first 15 bytes). Joined when destroyed.
// Signals that a program handles (SIGINT, SIGTERM...) are blocked in it, so that they reach the
// program's own threads.
class Thread {
 public:
  // Starts `run`. kResourceExhausted when the system refuses another thread.
  static Result<std::unique_ptr<Thread>> Start(std::string name, std::function<void()> run);
  ~Thread();
  Thread(const Thread&) = delete;
  Thread& operator=(const Thread&) = delete;

 private:
  Thread();
  struct Rep;
  std::unique_ptr<Rep> rep_;
};

}  // namespace headrace
