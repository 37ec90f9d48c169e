// Named places in production code where a test can make a call fail, stop the process, or wait.
// Off by default: one relaxed load. Thread-safe.
//
//   HR_RETURN_IF_ERROR(FaultPoint("pack.publish.before_rename"));
//
// A test arms a point in its process with ArmFault(), or in a child with the environment variable
// HEADRACE_FAULTS="pack.publish.before_rename=kill,pack.shard.write=error@3" (the third passage).
#pragma once

#include <functional>
#include <string_view>

#include "headrace/base/status.h"

namespace headrace {

// Runs what is armed at `name`: nothing (OK), an error (kIoError), or the end of the process by
// SIGKILL. Each passage is counted while any fault is armed.
Status FaultPoint(std::string_view name);

// Arms `name`: from its `nth` passage (1 = next) on, `action` decides the result of the passage.
void ArmFault(std::string_view name, int nth, std::function<Status()> action);
// Reads a HEADRACE_FAULTS text; kInvalidArgument when it cannot be read. Called by the program's
// main with the environment's value; libraries never read the environment for it.
Status ArmFaultsFromText(std::string_view text);
// Disarms everything and forgets the counts.
void DisarmFaults();

}  // namespace headrace
