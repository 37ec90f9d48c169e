#include "headrace/env/process.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <pwd.h>
#include <sched.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <thread>
#include <utility>
#include <vector>

#include "headrace/env/file.h"

namespace headrace {

namespace {

std::atomic<uint64_t> fork_generation{1};

void BumpForkGeneration() { fork_generation.fetch_add(1, std::memory_order_relaxed); }

struct ThreadStart {
  std::string name;
  std::function<void()> run;
};

void* RunThread(void* argument) {
  std::unique_ptr<ThreadStart> start(static_cast<ThreadStart*>(argument));
  pthread_setname_np(pthread_self(), start->name.c_str());
  start->run();
  return nullptr;
}

// Signals that the system sends to the thread at fault, and those of profilers, stay open.
sigset_t SignalsForTheProgram() {
  sigset_t set;
  sigfillset(&set);
  for (int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS, SIGPROF})
    sigdelset(&set, signal);
  return set;
}

}  // namespace

int AvailableCpus() {
  // The kernel refuses a set smaller than its own, whose size it does not tell.
  for (size_t sets = 1; sets <= 64; sets *= 2) {
    std::vector<cpu_set_t> allowed(sets);
    size_t bytes = sets * sizeof(cpu_set_t);
    if (sched_getaffinity(0, bytes, allowed.data()) == 0)
      return std::max(1, CPU_COUNT_S(bytes, allowed.data()));
    if (errno != EINVAL) break;
  }
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

uint64_t MemoryLimitBytes() {
  long pages = ::sysconf(_SC_PHYS_PAGES), page_bytes = ::sysconf(_SC_PAGESIZE);
  uint64_t bytes = pages > 0 && page_bytes > 0
                       ? static_cast<uint64_t>(pages) * static_cast<uint64_t>(page_bytes)
                       : 0;
  // As a container sees its own group, in versions 2 and 1. "max" is no number.
  for (const char* path :
       {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    auto text = PosixFileSystem()->ReadWhole(path, 100);
    if (!text.ok()) continue;
    uint64_t limit = 0;
    auto parsed = std::from_chars(text->data(), text->data() + text->size(), limit);
    if (parsed.ec == std::errc() && limit != 0) bytes = bytes == 0 ? limit : std::min(bytes, limit);
  }
  return bytes;
}

Result<std::string> CurrentDirectory() {
  std::string path(256, '\0');
  while (::getcwd(path.data(), path.size()) == nullptr) {
    if (errno != ERANGE) return ErrnoError(errno, "cannot tell the current folder");
    path.resize(path.size() * 2);
  }
  path.resize(path.find('\0'));
  return path;
}

std::optional<std::string> EnvironmentVariable(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  if (value == nullptr || *value == '\0') return std::nullopt;
  return std::string(value);
}

std::string HomeDirectory() {
  if (auto home = EnvironmentVariable("HOME")) return *home;
  passwd entry{};
  passwd* found = nullptr;
  std::vector<char> text(16384);
  if (::getpwuid_r(::getuid(), &entry, text.data(), text.size(), &found) != 0 || !found) return "";
  return entry.pw_dir ? entry.pw_dir : "";
}

int64_t WallClockNanos() {
  auto since = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(since).count();
}

double ProcessCpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

int64_t ProcessId() { return ::getpid(); }

uint64_t OpenFileLimit() {
  rlimit limit{};
  return getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : 0;
}

uint64_t FileSizeLimit() {
  rlimit limit{};
  bool told = getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  return told ? limit.rlim_cur : UINT64_MAX;
}

Result<uint64_t> NumOpenFiles() {
  DIR* directory = ::opendir("/proc/self/fd");
  if (!directory) {
    Status failed = ErrnoError(errno, "cannot list /proc/self/fd");
    return Error(Code::kUnavailable, "{}", failed.message());
  }
  uint64_t entries = 0;
  while (::readdir(directory)) ++entries;
  ::closedir(directory);
  return entries - 3;  // ".", ".." and the descriptor of the listing itself
}

Status CloseOnExec(int descriptor) {
  int flags = ::fcntl(descriptor, F_GETFD);
  if (flags < 0 || ::fcntl(descriptor, F_SETFD, flags | FD_CLOEXEC) < 0)
    return ErrnoError(errno, "cannot keep a descriptor from programs started later");
  return OkStatus();
}

std::string RandomToken() {
  constexpr char kDigits[] = "0123456789abcdef";
  unsigned char bytes[16];
  // Up to 256 bytes come whole; only early in a machine's start this waits.
  while (::getrandom(bytes, sizeof bytes, 0) != static_cast<ssize_t>(sizeof bytes)) {
  }
  std::string token;
  for (unsigned char byte : bytes) {
    token += kDigits[byte >> 4];
    token += kDigits[byte & 15];
  }
  return token;
}

uint64_t ForkGeneration() {
  static const int registered = pthread_atfork(nullptr, nullptr, BumpForkGeneration);
  (void)registered;  // fails only without memory; the generation then stays as it is
  return fork_generation.load(std::memory_order_relaxed);
}

struct Thread::Rep {
  pthread_t id{};
};

Thread::Thread() = default;

Result<std::unique_ptr<Thread>> Thread::Start(std::string name, std::function<void()> run) {
  constexpr size_t kMaxNameBytes = 15;
  if (name.size() > kMaxNameBytes) name.resize(kMaxNameBytes);
  auto start = std::make_unique<ThreadStart>(ThreadStart{std::move(name), std::move(run)});
  auto rep = std::make_unique<Rep>();
  std::unique_ptr<Thread> thread(new Thread);

  sigset_t blocked = SignalsForTheProgram(), before;
  pthread_sigmask(SIG_BLOCK, &blocked, &before);
  int error = pthread_create(&rep->id, nullptr, RunThread, start.get());
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (error != 0)
    return Error(
        Code::kResourceExhausted,
        "the system refused another thread ({}): ask for fewer threads, or raise the limit "
        "('ulimit -u', 'ulimit -v')",
        start->name);
  [[maybe_unused]] auto* owned_by_thread = start.release();
  thread->rep_ = std::move(rep);
  return thread;
}

Thread::~Thread() {
  if (!rep_) return;
  // A thread that destroys itself goes on to its end.
  if (pthread_equal(rep_->id, pthread_self()))
    pthread_detach(rep_->id);
  else
    pthread_join(rep_->id, nullptr);
}

}  // namespace headrace
