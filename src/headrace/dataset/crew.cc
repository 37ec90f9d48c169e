#include "headrace/dataset/crew.h"

#include <algorithm>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "headrace/env/process.h"

namespace headrace::dataset {

Crew::Crew(std::string thread_name, uint64_t threads, uint64_t pieces)
    : thread_name_(std::move(thread_name)),
      threads_(std::min(threads != 0 ? threads : static_cast<uint64_t>(AvailableCpus()), pieces)),
      pieces_(pieces) {}

Status Crew::Run(const std::function<Status()>& work) {
  std::vector<std::unique_ptr<Thread>> helpers;
  while (helpers.size() + 1 < threads_) {
    auto started = Thread::Start(thread_name_, [this, &work] { Work(work); });
    if (!started.ok()) break;  // slower with fewer
    helpers.push_back(std::move(started).value());
  }
  Work(work);
  helpers.clear();  // joins
  MutexLock lock(&mu_);
  return std::move(failure_);
}

void Crew::Work(const std::function<Status()>& work) {
  Status status;
  try {
    status = work();
  } catch (const std::bad_alloc&) {  // from the standard library's containers
    status = Status(Code::kResourceExhausted, "out of memory; use fewer --threads");
  }
  if (status.ok()) return;
  MutexLock lock(&mu_);
  if (failure_.ok()) failure_ = std::move(status);
  stop_.store(true);
}

std::optional<uint64_t> Crew::Take() {
  if (stop_.load(std::memory_order_relaxed)) return std::nullopt;
  uint64_t piece = next_.fetch_add(1);
  if (piece >= pieces_) return std::nullopt;
  return piece;
}

}  // namespace headrace::dataset
