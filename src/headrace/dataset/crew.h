// Several threads that share out numbered pieces of work, such as the shards of a pack; the first
// fault stops all. Run is called once; Take and stop are for the threads it runs.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "headrace/base/mutex.h"
#include "headrace/base/status.h"

namespace headrace::dataset {

class Crew {
 public:
  // Pieces are numbered from 0. With 0 `threads` one for each processor; never more than pieces.
  Crew(std::string thread_name, uint64_t threads, uint64_t pieces);

  // Calls `work` once on each thread, the caller's being one of them, and waits for all. Threads
  // that the system refuses are done without. Returns the first failure; std::bad_alloc from
  // `work` is kResourceExhausted.
  Status Run(const std::function<Status()>& work);

  // A piece that no other thread has; none when all are taken or a thread has failed.
  std::optional<uint64_t> Take();
  // True once a thread has failed: what is under way is no longer wanted.
  const std::atomic<bool>& stop() const { return stop_; }

 private:
  void Work(const std::function<Status()>& work);

  const std::string thread_name_;
  const uint64_t threads_, pieces_;
  std::atomic<uint64_t> next_{0};
  std::atomic<bool> stop_{false};
  Mutex mu_;  // taken last; no I/O under it
  Status failure_ HR_GUARDED_BY(mu_);
};

}  // namespace headrace::dataset
