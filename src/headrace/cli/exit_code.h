// How the program ends. The numbers are part of its interface (docs/reference/cli.md). Pure
// functions, safe from any thread.
#pragma once

#include "headrace/base/status.h"

namespace headrace::cli {

enum class ExitCode : int {
  kOk = 0,
  kBadData = 1,        // data is damaged or missing: verify found damage, no such sample
  kProblemFound = 1,   // doctor found something that costs the job time
  kUsage = 2,          // the command line asks for something that cannot be done
  kEnvironment = 3,    // the machine: I/O, permission, a full disk, memory, a lock that is held
  kInterrupted = 130,  // SIGINT or SIGTERM
};

// The exit code that stands for a fault.
ExitCode ExitCodeFor(const Status& status);

}  // namespace headrace::cli
