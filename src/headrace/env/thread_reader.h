// The driver of AsyncReader that works everywhere: threads that read and wait. Internal to env.
// Thread-safe.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "headrace/base/mutex.h"
#include "headrace/env/async_read.h"
#include "headrace/env/process.h"
#include "headrace/env/read_progress.h"

namespace headrace {

class ThreadReader final : public AsyncReader {
 public:
  explicit ThreadReader(const Options& options) : options_(options) {}
  ~ThreadReader() override;
  void Submit(std::vector<AsyncRead> reads) override;
  Driver driver() const override { return Driver::kThreads; }

 private:
  void StartThreads() HR_REQUIRES(mu_);
  void Run();
  void Finish(ReadProgress* read) HR_EXCLUDES(mu_);
  void ReadNow(ReadProgress* read) const;

  const Options options_;
  Mutex mu_;  // order: none is taken under it; no I/O. Threads are started under it
  CondVar work_cv_, idle_cv_;
  uint64_t num_unfinished_ HR_GUARDED_BY(mu_) = 0;
  std::deque<ReadProgress> waiting_ HR_GUARDED_BY(mu_);
  size_t num_idle_ HR_GUARDED_BY(mu_) = 0;
  bool stopping_ HR_GUARDED_BY(mu_) = false;
  Status no_thread_ HR_GUARDED_BY(mu_);
  std::vector<std::unique_ptr<Thread>> threads_ HR_GUARDED_BY(mu_);
};

}  // namespace headrace
