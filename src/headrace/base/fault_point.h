// Named places in production code where a test can make a call fail, stop the process, or wait.
// Off by default: one relaxed load. Thread-safe.
//
//   HR_RETURN_IF_ERROR(FaultPoint("pack.publish.before_rename"));
//
// A test arms a point in its process with ArmFault(), or in a child with the environment variable
// HEADRACE_FAULTS="pack.publish.before_rename=kill,pack.shard.write=error@3" (from the third
// passage on).
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "headrace/base/status.h"

namespace headrace {

// Runs what is armed at `name`: nothing (OK), an error (kIoError), the end of the process by
// SIGKILL, or a stop of the whole process by SIGSTOP (OK once SIGCONT comes). Each passage is
// counted while any fault is armed. An action runs in the passing thread, under no lock, so it may
// wait for another thread.
Status FaultPoint(std::string_view name);

// Arms `name`: from its `nth` passage (1 = next) on, `action` decides the result of the passage.
void ArmFault(std::string_view name, int nth, std::function<Status()> action);
// Reads a HEADRACE_FAULTS text; kInvalidArgument when it cannot be read. Called by the program's
// main with the environment's value; libraries never read the environment for it.
Status ArmFaultsFromText(std::string_view text);
// How often `name` was passed since a first fault was armed.
uint64_t FaultPassages(std::string_view name);
// Disarms everything and forgets the counts.
void DisarmFaults();

}  // namespace headrace
