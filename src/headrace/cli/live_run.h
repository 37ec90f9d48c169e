// Watches running jobs of this machine through their admin sockets, for the doctor and for traces.
// The main thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "headrace/base/process_snapshot.h"
#include "headrace/cli/commands.h"
#include "headrace/doctor/run.h"

namespace headrace::cli {

// The admin sockets of `who`: the id of a process, the path of a socket, or "all".
//   kInvalidArgument  `who` is none of these.
//   kNotFound         no such process has a socket.
Result<std::vector<std::string>> SocketsOf(const std::string& who);

// Waits until then, or until the user interrupts. False: interrupted.
bool WaitUntil(const Session& session, std::chrono::steady_clock::time_point then);

struct LiveProcess {
  std::string socket;
  int64_t pid = 0;
  std::vector<SettingValue> settings;  // as they were at the end
};
struct LiveRun {
  doctor::JobRun run;
  std::vector<LiveProcess> processes;  // that of each rank of the run
};

struct WatchOptions {
  std::string who;
  std::chrono::nanoseconds length = std::chrono::seconds(15);
  std::chrono::nanoseconds window = std::chrono::seconds(1);
};

// Watches for about `length`, in windows, and returns what was seen, with the facts of this
// machine. `who` as for SocketsOf; each process is a rank. Failures of SocketsOf, and:
//   kNotFound          it ended before it was seen twice.
//   kCancelled         interrupted before anything was seen twice; else what was seen is returned.
//   kPermissionDenied  another user's.
Result<LiveRun> WatchLiveRun(const Session& session, const WatchOptions& options);

}  // namespace headrace::cli
