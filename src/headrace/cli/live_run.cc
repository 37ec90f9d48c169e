#include "headrace/cli/live_run.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <utility>
#include <vector>

#include "headrace/agent/admin_server.h"
#include "headrace/base/mutex.h"
#include "headrace/base/text.h"
#include "headrace/doctor/machine_probe.h"
#include "headrace/doctor/snapshot_window.h"
#include "headrace/env/runtime_directory.h"

namespace headrace::cli {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kAskTimeout{5};
// How often an interrupt is looked for.
constexpr std::chrono::milliseconds kPatience{100};

}  // namespace

Result<std::vector<std::string>> SocketsOf(const std::string& who) {
  if (who.find('/') != std::string::npos) return std::vector<std::string>{who};
  int64_t pid = 0;
  if (who != "all") {
    auto parsed = std::from_chars(who.data(), who.data() + who.size(), pid);
    if (parsed.ec != std::errc() || parsed.ptr != who.data() + who.size() || pid <= 0)
      return Error(Code::kInvalidArgument,
                   "'{}' is no process: expected its id, the path of its admin socket, or all",
                   EscapeText(who));
  }
  HR_ASSIGN_OR_RETURN(auto sockets, agent::FindAdminSockets(pid));
  if (sockets.empty())
    return Error(Code::kNotFound,
                 "no process{} has an admin socket in {}: a job has one from its first batch on, "
                 "unless HEADRACE_ADMIN is off",
                 pid == 0 ? "" : fmt::format(" with the id {}", pid), RuntimeDirectoryPath());
  return sockets;
}

bool WaitUntil(const Session& session, Clock::time_point then) {
  Mutex mu;
  CondVar never;
  while (Clock::now() < then) {
    if (session.ctx.cancelled && session.ctx.cancelled->load()) return false;
    MutexLock lock(&mu);
    const auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(then - Clock::now());
    (void)never.WaitFor(
        &mu, std::clamp<std::chrono::nanoseconds>(left, std::chrono::nanoseconds(1), kPatience));
  }
  return true;
}

namespace {

// One process that is being watched.
class Watched {
 public:
  explicit Watched(std::string socket) : socket_(std::move(socket)) {}

  Status Look(const Session& session, LiveRun* live) {
    Context ctx = session.ctx;
    ctx.deadline = Clock::now() + kAskTimeout;
    HR_ASSIGN_OR_RETURN(ProcessSnapshot now, agent::AskSnapshot(socket_, ctx));
    if (now.window_ns > before_.window_ns && before_.window_ns > 0) {
      const ProcessSnapshot between = now.Since(before_);
      rank_.windows.push_back(doctor::WindowOf(between, seconds_));
      seconds_ += rank_.windows.back().seconds;
      doctor::AddJobFacts(between, &rank_.job);
    }
    rank_.rank = static_cast<uint32_t>(now.rank);
    rank_.node = now.host;
    if (live->run.name.empty()) live->run.name = now.job;
    if (live->run.dataset.name.empty()) live->run.dataset.name = now.dataset;
    before_ = std::move(now);
    return OkStatus();
  }

  // Gives what was seen, if it was seen twice.
  void MoveTo(const doctor::MachineFacts& machine, LiveRun* live) {
    if (rank_.windows.empty()) return;
    rank_.machine = machine;
    // The job may be held to other processors than who looks at it.
    const double cpus = before_.Value(Metric::kProcessCpus);
    if (cpus > 0) rank_.machine.cpus = cpus;
    live->run.ranks.push_back(std::move(rank_));
    live->processes.push_back({socket_, before_.pid, before_.settings});
  }

 private:
  const std::string socket_;
  ProcessSnapshot before_;
  doctor::RankRun rank_;
  double seconds_ = 0;
};

}  // namespace

Result<LiveRun> WatchLiveRun(const Session& session, const WatchOptions& options) {
  HR_ASSIGN_OR_RETURN(std::vector<std::string> sockets, SocketsOf(options.who));
  std::vector<Watched> processes;
  for (std::string& socket : sockets) processes.emplace_back(std::move(socket));
  LiveRun live;
  Status last;
  const Clock::time_point begin = Clock::now();
  for (Clock::time_point next = begin; next <= begin + options.length; next += options.window) {
    if (!WaitUntil(session, next)) break;
    size_t seen = 0;
    for (Watched& process : processes) {
      Status status = process.Look(session, &live);
      seen += status.ok();
      if (!status.ok()) last = std::move(status);
    }
    if (seen == 0) break;  // all have ended
  }
  const doctor::MachineFacts machine = doctor::ReadMachine(session.fs).facts;
  for (Watched& process : processes) process.MoveTo(machine, &live);
  for (doctor::RankRun& rank : live.run.ranks)
    rank.job.node_ranks = static_cast<uint32_t>(live.run.ranks.size());
  if (!live.run.ranks.empty()) return live;
  HR_RETURN_IF_ERROR(session.ctx.Check());
  HR_RETURN_IF_ERROR(std::move(last));
  return Status(Code::kNotFound, "the process ended before it could be watched");
}

}  // namespace headrace::cli
