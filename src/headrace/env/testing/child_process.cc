#include "headrace/env/testing/child_process.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>

namespace headrace {

ChildProcess::ChildProcess(const std::function<int()>& run) : pid_(::fork()) {
  if (pid_ < 0) {
    std::perror("cannot fork");
    std::abort();
  }
  if (pid_ > 0) return;
  ::alarm(60);
  ::_exit(run());
}

ChildProcess::~ChildProcess() {
  Kill();
  Wait();
}

void ChildProcess::Kill() {
  if (running_) ::kill(pid_, SIGKILL);
}

int ChildProcess::Wait() {
  if (!running_) return 0;
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  running_ = false;
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

int ExitOfChild(const std::function<int()>& run) { return ChildProcess(run).Wait(); }

bool BecomeNobody() {
  constexpr uid_t kNobody = 65534;
  if (::geteuid() != 0) return true;
  return ::setgid(kNobody) == 0 && ::setuid(kNobody) == 0;
}

}  // namespace headrace
