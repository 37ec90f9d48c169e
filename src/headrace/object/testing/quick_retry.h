// Retries that wait in a time of their own: nothing sleeps, and a test sees how long it would have
// been. For tests only. Thread-safe. Must outlive the stores that use it.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>

#include "headrace/object/retrying_store.h"

namespace headrace::object {

class QuickRetry {
 public:
  RetryOptions Options() {
    RetryOptions options;
    options.num_retries = &retries_;
    options.now = [this] { return start_ + waited(); };
    options.random = [] { return 0.5; };
    options.pause = [this](std::chrono::nanoseconds pause, const Context& ctx) {
      waited_ns_ += pause.count();
      return ctx.Check();
    };
    options.run_after = [this](std::chrono::nanoseconds pause, const std::function<void()>& run) {
      waited_ns_ += pause.count();
      run();
    };
    return options;
  }

  std::chrono::nanoseconds waited() const { return std::chrono::nanoseconds(waited_ns_.load()); }
  uint64_t retries() const { return retries_; }

 private:
  const Context::Clock::time_point start_ = Context::Clock::now();
  std::atomic<int64_t> waited_ns_{0};
  std::atomic<uint64_t> retries_{0};
};

}  // namespace headrace::object
