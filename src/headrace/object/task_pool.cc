#include "headrace/object/task_pool.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "headrace/base/mutex.h"
#include "headrace/env/process.h"

namespace headrace::object {

// The threads of one process.
class TaskPool::Crew {
 public:
  Crew(const std::string& name, uint32_t max_threads)
      : name_(name), max_threads_(std::max<uint32_t>(max_threads, 1)) {}
  ~Crew() {
    std::vector<std::unique_ptr<Thread>> threads;  // joined without the lock
    MutexLock lock(&mu_);
    ending_ = true;
    more_.NotifyAll();
    threads.swap(threads_);
  }

  // Returns false, with the task left in place, when there is no thread for it.
  bool Add(std::function<void()>* task) {
    MutexLock lock(&mu_);
    if (idle_ <= tasks_.size() && threads_.size() < max_threads_) {
      auto thread = Thread::Start(name_, [this] { Work(); });
      if (thread.ok()) threads_.push_back(*std::move(thread));
    }
    if (threads_.empty()) return false;
    tasks_.push_back(std::move(*task));
    more_.NotifyOne();
    return true;
  }

 private:
  void Work() {
    while (auto task = Next()) task();
  }

  // The next task; empty at the end.
  std::function<void()> Next() {
    MutexLock lock(&mu_);
    ++idle_;
    while (tasks_.empty() && !ending_) more_.Wait(&mu_);
    --idle_;
    if (tasks_.empty()) return nullptr;
    std::function<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    return task;
  }

  const std::string name_;
  const size_t max_threads_;
  Mutex mu_;  // order: none is taken under it
  CondVar more_;
  std::deque<std::function<void()>> tasks_ HR_GUARDED_BY(mu_);
  std::vector<std::unique_ptr<Thread>> threads_ HR_GUARDED_BY(mu_);
  size_t idle_ HR_GUARDED_BY(mu_) = 0;
  bool ending_ HR_GUARDED_BY(mu_) = false;
};

TaskPool::TaskPool(const std::string& name, uint32_t max_threads)
    : crew_([name, max_threads] { return std::make_unique<Crew>(name, max_threads); }) {}

TaskPool::~TaskPool() = default;

void TaskPool::Run(std::function<void()> task) {
  if (!crew_.Get().Add(&task)) task();
}

}  // namespace headrace::object
