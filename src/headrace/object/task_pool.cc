#include "headrace/object/task_pool.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "headrace/base/mutex.h"
#include "headrace/env/process.h"

namespace headrace::object {

// The threads of one process. Each holds the queue, so that it may be the one that ends the crew:
// whoever drops the last reference to a store may do so at the end of a task of it.
class TaskPool::Crew {
 public:
  Crew(const std::string& name, uint32_t max_threads)
      : name_(name), max_threads_(std::max<uint32_t>(max_threads, 1)) {}
  ~Crew() {
    std::vector<std::unique_ptr<Thread>> threads;  // joined without the lock
    queue_->End(&threads);
    // Nobody else may be left for what is queued.
    if (OnOwnThread())
      while (auto task = queue_->Next(false)) task();
  }

  // Returns false, with the task left in place, when there is no thread for it.
  bool Add(std::function<void()>* task) {
    return queue_->Add(task, max_threads_, [this] {
      return Thread::Start(name_, [queue = queue_] {
        working_for_ = queue.get();
        while (auto next = queue->Next(true)) next();
      });
    });
  }

 private:
  class Queue {
   public:
    using StartThread = std::function<Result<std::unique_ptr<Thread>>()>;

    bool Add(std::function<void()>* task, size_t max_threads, const StartThread& start) {
      MutexLock lock(&mu_);
      if (idle_ <= tasks_.size() && threads_.size() < max_threads) {
        auto thread = start();
        if (thread.ok()) threads_.push_back(*std::move(thread));
      }
      if (threads_.empty()) return false;
      tasks_.push_back(std::move(*task));
      more_.NotifyOne();
      return true;
    }
    // The next task; empty at the end, or where there is none and `wait` is not set.
    std::function<void()> Next(bool wait) {
      MutexLock lock(&mu_);
      ++idle_;
      while (tasks_.empty() && wait && !ending_) more_.Wait(&mu_);
      --idle_;
      if (tasks_.empty()) return nullptr;
      std::function<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      return task;
    }
    void End(std::vector<std::unique_ptr<Thread>>* threads) {
      MutexLock lock(&mu_);
      ending_ = true;
      more_.NotifyAll();
      threads->swap(threads_);
    }

   private:
    Mutex mu_;  // order: none is taken under it
    CondVar more_;
    std::deque<std::function<void()>> tasks_ HR_GUARDED_BY(mu_);
    std::vector<std::unique_ptr<Thread>> threads_ HR_GUARDED_BY(mu_);
    size_t idle_ HR_GUARDED_BY(mu_) = 0;
    bool ending_ HR_GUARDED_BY(mu_) = false;
  };

  bool OnOwnThread() const { return working_for_ == queue_.get(); }

  static thread_local const Queue* working_for_;

  const std::string name_;
  const size_t max_threads_;
  const std::shared_ptr<Queue> queue_ = std::make_shared<Queue>();
};

thread_local const TaskPool::Crew::Queue* TaskPool::Crew::working_for_ = nullptr;

TaskPool::TaskPool(const std::string& name, uint32_t max_threads)
    : crew_([name, max_threads] { return std::make_unique<Crew>(name, max_threads); }) {}

TaskPool::~TaskPool() = default;

void TaskPool::Run(std::function<void()> task) {
  if (!crew_.Get().Add(&task)) task();
}

}  // namespace headrace::object
