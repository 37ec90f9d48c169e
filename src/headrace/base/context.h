// What every call that does I/O is given: how long it may take and whether it is still wanted.
// A Context is copied freely; the cancel flag it points to must outlive the call.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "headrace/base/status.h"

namespace headrace {

// What a cache on the way does with what is read and it does not have.
enum class Caching : uint8_t {
  kKeep,        // keeps it, and gives up something else where it must
  kKeepIfRoom,  // keeps it where there is room, or where a plan expects it; else passes it on
  kPass,        // passes on exactly what is asked for
};

struct Context {
  using Clock = std::chrono::steady_clock;
  Clock::time_point deadline = Clock::time_point::max();
  const std::atomic<bool>* cancelled = nullptr;  // not owned; null = cannot be cancelled
  Caching caching = Caching::kKeep;

  // Returns kCancelled or kDeadlineExceeded when the call should end now. Cheap without a deadline.
  Status Check() const {
    if (cancelled && cancelled->load(std::memory_order_relaxed))
      return Status(Code::kCancelled, "the operation was cancelled");
    if (deadline != Clock::time_point::max() && Clock::now() > deadline)
      return Status(Code::kDeadlineExceeded, "the operation passed its deadline");
    return OkStatus();
  }
};

}  // namespace headrace
