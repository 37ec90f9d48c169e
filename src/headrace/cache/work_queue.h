// A fixed number of threads that do what they are given, urgent things first; of four things one
// may be another, so that those are done at all. Thread-safe.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "headrace/base/mutex.h"
#include "headrace/env/process.h"

namespace headrace::cache {

class WorkQueue {
 public:
  enum class Urgency : uint8_t { kNow, kLater };

  // kResourceExhausted when the system refuses the threads.
  static Result<std::unique_ptr<WorkQueue>> Start(const std::string& name, int num_threads);
  // Does what it was given until then, then ends the threads.
  ~WorkQueue();

  // From any thread, also one of this queue.
  void Submit(Urgency urgency, std::function<void()> task);

 private:
  WorkQueue() = default;
  void Run();

  Mutex mu_;  // order: none is taken under it; no task runs under it
  CondVar work_cv_;
  std::deque<std::function<void()>> now_ HR_GUARDED_BY(mu_), later_ HR_GUARDED_BY(mu_);
  uint64_t num_taken_ HR_GUARDED_BY(mu_) = 0;
  bool stopping_ HR_GUARDED_BY(mu_) = false;
  std::vector<std::unique_ptr<Thread>> threads_;  // last: joined first
};

}  // namespace headrace::cache
