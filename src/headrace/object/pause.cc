#include "headrace/object/pause.h"

#include <algorithm>

#include "headrace/base/mutex.h"

namespace headrace::object {

Status PauseFor(std::chrono::nanoseconds pause, const Context& ctx) {
  constexpr std::chrono::nanoseconds kSlice = std::chrono::milliseconds(50);
  const auto end = Context::Clock::now() + pause;
  Mutex mu;
  CondVar never;
  MutexLock lock(&mu);
  while (true) {
    HR_RETURN_IF_ERROR(ctx.Check());
    std::chrono::nanoseconds left = end - Context::Clock::now();
    if (left.count() <= 0) return OkStatus();
    (void)never.WaitFor(&mu, std::min(left, kSlice));
  }
}

}  // namespace headrace::object
