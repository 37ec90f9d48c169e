#include "headrace/env/testing/child_process.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>

namespace headrace {

namespace {
// A little less than what ctest gives a whole program: only a hang takes so long.
constexpr unsigned kSeconds = 800;
}  // namespace

ChildProcess::ChildProcess(const std::function<int()>& run) : pid_(::fork()) {
  if (pid_ < 0) {
    std::perror("cannot fork");
    std::abort();
  }
  if (pid_ > 0) return;
  ::alarm(kSeconds);
  ::_exit(run());
}

ChildProcess::~ChildProcess() {
  Kill();
  Wait();
}

void ChildProcess::Kill() {
  if (running_) ::kill(pid_, SIGKILL);
}

void ChildProcess::Reap(int options) {
  if (!running_) return;
  int status = 0;
  pid_t ended;
  while ((ended = ::waitpid(pid_, &status, options)) < 0 && errno == EINTR) {
  }
  if (ended == 0) return;
  running_ = false;
  exit_ = WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

bool ChildProcess::IsRunning() {
  Reap(WNOHANG);
  return running_;
}

int ChildProcess::Wait() {
  Reap(0);
  return exit_;
}

int ExitOfChild(const std::function<int()>& run) { return ChildProcess(run).Wait(); }

bool BecomeNobody() {
  constexpr uid_t kNobody = 65534;
  if (::geteuid() != 0) return true;
  return ::setgid(kNobody) == 0 && ::setuid(kNobody) == 0;
}

}  // namespace headrace
