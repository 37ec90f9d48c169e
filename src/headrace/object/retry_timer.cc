#include "headrace/object/retry_timer.h"

#include <utility>

namespace headrace::object {

void RetryTimer::End() {
  std::unique_ptr<Thread> thread;  // joined without the lock
  MutexLock lock(&mu_);
  ending_ = true;
  changed_.NotifyOne();
  thread = std::move(thread_);
}

void RetryTimer::RunAt(Context::Clock::time_point time, Task task) {
  {
    MutexLock lock(&mu_);
    if (!thread_ && !ending_) {
      auto thread = Thread::Start("hr-retry", [this] { Work(); });
      if (thread.ok()) thread_ = *std::move(thread);
    }
    if (thread_) {
      tasks_.emplace(time, std::move(task));
      changed_.NotifyOne();
      return;
    }
  }
  task(true);
}

void RetryTimer::Work() {
  while (true) {
    Task task;
    bool ended = false;
    {
      MutexLock lock(&mu_);
      while (true) {
        if (tasks_.empty() && ending_) return;
        auto now = Context::Clock::now();
        if (!tasks_.empty() && (ending_ || tasks_.begin()->first <= now)) break;
        if (tasks_.empty()) {
          changed_.Wait(&mu_);
        } else {
          (void)changed_.WaitFor(&mu_, tasks_.begin()->first - now);
        }
      }
      ended = ending_;
      task = std::move(tasks_.begin()->second);
      tasks_.erase(tasks_.begin());
    }
    task(ended);
  }
}

}  // namespace headrace::object
