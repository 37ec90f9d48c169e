#include "headrace/cache/work_queue.h"

#include <algorithm>

namespace headrace::cache {

Result<std::unique_ptr<WorkQueue>> WorkQueue::Start(const std::string& name, int num_threads) {
  std::unique_ptr<WorkQueue> queue(new WorkQueue);
  for (int i = 0; i < std::max(num_threads, 1); ++i) {
    HR_ASSIGN_OR_RETURN(auto thread, Thread::Start(name, [q = queue.get()] { q->Run(); }));
    queue->threads_.push_back(std::move(thread));
  }
  return queue;
}

WorkQueue::~WorkQueue() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
  }
  work_cv_.NotifyAll();
  threads_.clear();
}

void WorkQueue::Submit(Urgency urgency, std::function<void()> task) {
  MutexLock lock(&mu_);
  (urgency == Urgency::kNow ? now_ : later_).push_back(std::move(task));
  // Under the lock: once the task can run it may let the owner end this queue.
  work_cv_.NotifyOne();
}

void WorkQueue::Run() {
  while (true) {
    std::function<void()> task;
    {
      MutexLock lock(&mu_);
      while (now_.empty() && later_.empty()) {
        if (stopping_) return;
        work_cv_.Wait(&mu_);
      }
      bool others_turn = ++num_taken_ % 4 == 0 && !later_.empty();
      std::deque<std::function<void()>>& from = now_.empty() || others_turn ? later_ : now_;
      task = std::move(from.front());
      from.pop_front();
    }
    task();
  }
}

}  // namespace headrace::cache
