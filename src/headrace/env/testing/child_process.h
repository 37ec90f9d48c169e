// A forked child of the test program, for what can only be tried in another process: limits, locks,
// deaths. For tests only. One owner at a time. The child shares no memory with the test, so it
// reports by its exit code; EXPECT_* in it would go unseen.
#pragma once

#include <sys/types.h>

#include <functional>

namespace headrace {

class ChildProcess {
 public:
  // Forks; the child runs `run` and ends with its value as exit code, without running destructors
  // of the test. It is killed after some minutes (SIGALRM): a hang is a failure.
  explicit ChildProcess(const std::function<int()>& run);
  // Kills the child when it still runs.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  void Kill();
  // False once it has ended, of itself or killed.
  bool IsRunning();
  // Waits for the end. Returns the exit code, or minus the number of the signal that ended it; the
  // same each time.
  int Wait();

 private:
  void Reap(int options);

  pid_t pid_;
  bool running_ = true;
  int exit_ = 0;
};

// Runs `run` in a child and returns how it ended, as ChildProcess::Wait() does.
int ExitOfChild(const std::function<int()>& run);

// Gives up root's rights in this (child) process, so that permissions count. Returns false when it
// cannot.
bool BecomeNobody();

}  // namespace headrace
