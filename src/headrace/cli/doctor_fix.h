// headrace doctor --fix: cures a running job by its settings, and takes back what does no good. The
// main thread.
#pragma once

#include <functional>

#include "headrace/cli/commands.h"
#include "headrace/cli/live_run.h"

namespace headrace::cli {

struct FixOptions {
  WatchOptions watch;
  bool dry_run = false;  // only says what would be done
  // Adds what the user knows of the run to what was seen.
  std::function<void(doctor::JobRun*)> prepare;
};

// Watches the job, changes the settings that the findings name, inside their budgets, watches it
// again, and says what that gained; settings with which it is slower are set back. kProblemFound
// when a problem is left.
//   Failures of WatchLiveRun and of agent::AskSetting. Whatever fails, or an interrupt while the
//   job is watched again: what was changed is set back first.
Result<ExitCode> FixLiveRun(Session* session, const FixOptions& options);

}  // namespace headrace::cli
