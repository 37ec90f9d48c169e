// Runs functions some time later, on one thread that is started when it is first needed.
// Thread-safe. Functions must not block.
#pragma once

#include <functional>
#include <map>
#include <memory>

#include "headrace/base/context.h"
#include "headrace/base/mutex.h"
#include "headrace/env/process.h"

namespace headrace::object {

class RetryTimer {
 public:
  // `ended`: the timer has ended, and the time has not come.
  using Task = std::function<void(bool ended)>;

  RetryTimer() = default;
  ~RetryTimer() { End(); }

  // Runs what waits, as ended, and waits for it. Not on its own thread.
  void End();
  // Runs `task` at `time`; here and as ended after End(), or when no thread can be had.
  void RunAt(Context::Clock::time_point time, Task task);

 private:
  void Work();

  Mutex mu_;  // order: none is taken under it
  CondVar changed_;
  std::multimap<Context::Clock::time_point, Task> tasks_ HR_GUARDED_BY(mu_);
  bool ending_ HR_GUARDED_BY(mu_) = false;
  std::unique_ptr<Thread> thread_ HR_GUARDED_BY(mu_);
};

}  // namespace headrace::object
