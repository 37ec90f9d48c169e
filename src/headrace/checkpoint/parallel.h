// Work on many items by a few threads. Internal to checkpoint.
#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <vector>

#include "headrace/base/mutex.h"
#include "headrace/base/status.h"
#include "headrace/env/process.h"

namespace headrace::checkpoint {

// Calls `work(i)` for i = 0 ... count - 1, each once, by up to `threads` threads, the caller's
// among them (fewer when the system refuses some). After a failure no more are begun; returns the
// first one.
inline Status ForEach(size_t count, int threads, const std::function<Status(size_t)>& work) {
  std::atomic<size_t> next{0};
  std::atomic<bool> failed{false};
  Mutex mu;
  Status first;
  auto run = [&] {
    for (size_t i = next.fetch_add(1); i < count && !failed; i = next.fetch_add(1)) {
      Status status = work(i);
      if (status.ok()) continue;
      MutexLock lock(&mu);
      if (first.ok()) first = std::move(status);
      failed = true;
    }
  };
  {
    std::vector<std::unique_ptr<Thread>> others;
    size_t wanted = std::min(static_cast<size_t>(std::max(threads, 1)), count);
    for (size_t i = 1; i < wanted; ++i) {
      auto thread = Thread::Start("hr-ckpt", run);
      if (!thread.ok()) break;
      others.push_back(std::move(*thread));
    }
    run();
  }
  return first;
}

}  // namespace headrace::checkpoint
