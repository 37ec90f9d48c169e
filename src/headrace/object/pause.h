// Waiting between two tries. Safe from any thread.
#pragma once

#include <chrono>

#include "headrace/base/context.h"

namespace headrace::object {

// Waits for `pause`. kCancelled or kDeadlineExceeded when the context ends first, which is noticed
// within 50 ms.
Status PauseFor(std::chrono::nanoseconds pause, const Context& ctx);

}  // namespace headrace::object
