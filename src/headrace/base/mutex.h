// Mutex and condition variable with clang's thread-safety annotations. The only place in the tree
// that names std::mutex. Thread-safe by nature; a Mutex is not recursive.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#if defined(__clang__)
#define HR_ATTRIBUTE_(x) __attribute__((x))
#else
#define HR_ATTRIBUTE_(x)
#endif
#define HR_CAPABILITY(x) HR_ATTRIBUTE_(capability(x))
#define HR_SCOPED_CAPABILITY HR_ATTRIBUTE_(scoped_lockable)
#define HR_GUARDED_BY(x) HR_ATTRIBUTE_(guarded_by(x))
#define HR_REQUIRES(...) HR_ATTRIBUTE_(requires_capability(__VA_ARGS__))
#define HR_EXCLUDES(...) HR_ATTRIBUTE_(locks_excluded(__VA_ARGS__))
#define HR_ACQUIRE(...) HR_ATTRIBUTE_(acquire_capability(__VA_ARGS__))
#define HR_RELEASE(...) HR_ATTRIBUTE_(release_capability(__VA_ARGS__))
#define HR_NO_THREAD_SAFETY_ANALYSIS HR_ATTRIBUTE_(no_thread_safety_analysis)

namespace headrace {

class HR_CAPABILITY("mutex") Mutex {
 public:
  void Lock() HR_ACQUIRE() { mu_.lock(); }
  void Unlock() HR_RELEASE() { mu_.unlock(); }

 private:
  friend class CondVar;
  std::mutex mu_;
};

class HR_SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex* mu) HR_ACQUIRE(mu) : mu_(mu) { mu_->Lock(); }
  ~MutexLock() HR_RELEASE() { mu_->Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex* mu_;
};

// Wakes threads that wait for a condition guarded by a Mutex. Wake-ups can be spurious: wait in a
// loop that checks the condition.
class CondVar {
 public:
  void Wait(Mutex* mu) HR_REQUIRES(mu) {
    std::unique_lock<std::mutex> lock(mu->mu_, std::adopt_lock);
    cv_.wait(lock);
    lock.release();
  }
  // Returns false when `timeout` passed first.
  bool WaitFor(Mutex* mu, std::chrono::nanoseconds timeout) HR_REQUIRES(mu) {
    std::unique_lock<std::mutex> lock(mu->mu_, std::adopt_lock);
    bool woken = cv_.wait_for(lock, timeout) == std::cv_status::no_timeout;
    lock.release();
    return woken;
  }
  void NotifyOne() { cv_.notify_one(); }
  void NotifyAll() { cv_.notify_all(); }

 private:
  std::condition_variable cv_;
};

}  // namespace headrace
