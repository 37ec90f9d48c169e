#include <algorithm>
#include <chrono>
#include <map>
#include <tuple>

#include "headrace/agent/admin_server.h"
#include "headrace/base/metrics_text.h"
#include "headrace/cli/commands.h"
#include "headrace/cli/top_screen.h"
#include "headrace/env/console.h"
#include "headrace/env/runtime_directory.h"

namespace headrace::cli {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kKeyPeriod{100};  // how often keys and the size are looked at
constexpr std::chrono::seconds kAskTimeout{2};        // for one process

class TopCommand final : public Command {
 public:
  void Declare(Arguments* arguments) override;
  Result<ExitCode> Run(Session* session) override;

 private:
  Result<std::vector<TopProcess>> Ask(const Session& session);
  Result<ExitCode> Once(Session* session);
  Result<ExitCode> Watch(Session* session);
  void Select(const std::string& keys, size_t count);

  uint64_t pid_ = 0, interval_s_ = 1;
  bool once_ = false, list_metrics_ = false;
  std::map<std::string, ProcessSnapshot> last_;  // by socket
  size_t selected_ = 0;
  bool quit_ = false;
};

void TopCommand::Declare(Arguments* arguments) {
  arguments->Flag("--once", &once_, "Print one table of what was done so far, and end");
  arguments->Flag("--list-metrics", &list_metrics_,
                  "Print what metrics a process exports, as a Markdown table or JSON, and end");
  arguments->Count("--pid", &pid_, "Only this process; default: all of this user on this machine");
  arguments->Count("--interval", &interval_s_, "Seconds between two looks");
  arguments->Note(
      "Shows where the time of running loaders and savers goes: one line for each process, and\n"
      "the stages of the one that is selected (arrows, or j and k; q quits). Shares are of the\n"
      "time since the last look. For requests to a store, 'busy' is how many ran at once.\n"
      "Processes are found by their admin sockets, in HEADRACE_RUNTIME_DIR.");
  arguments->Example("headrace top", "Watch the loaders of this machine");
  arguments->Example("headrace top --once --json", "All figures of each, for a program");
}

// Processes that have ended are left out.
Result<std::vector<TopProcess>> TopCommand::Ask(const Session& session) {
  HR_ASSIGN_OR_RETURN(auto sockets, agent::FindAdminSockets(static_cast<int64_t>(pid_)));
  std::vector<TopProcess> processes;
  std::map<std::string, ProcessSnapshot> seen;
  for (const std::string& path : sockets) {
    HR_RETURN_IF_ERROR(session.ctx.Check());
    Context ctx = session.ctx;
    ctx.deadline = Clock::now() + kAskTimeout;
    auto snapshot = agent::AskSnapshot(path, ctx);
    if (!snapshot.ok()) continue;
    auto before = last_.find(path);
    TopProcess process{path, *snapshot, *snapshot};
    if (before != last_.end()) process.recent = snapshot->Since(before->second);
    seen.emplace(path, *std::move(snapshot));
    processes.push_back(std::move(process));
  }
  last_ = std::move(seen);
  std::sort(processes.begin(), processes.end(), [](const TopProcess& a, const TopProcess& b) {
    return std::tie(a.total.job, a.total.rank, a.total.pid) <
           std::tie(b.total.job, b.total.rank, b.total.pid);
  });
  return processes;
}

Result<ExitCode> TopCommand::Once(Session* session) {
  HR_ASSIGN_OR_RETURN(std::vector<TopProcess> processes, Ask(*session));
  if (processes.empty())
    return Error(Code::kNotFound, "no process with an admin socket in {}{}", RuntimeDirectoryPath(),
                 pid_ == 0 ? "" : fmt::format(" has the id {}", pid_));
  if (session->json) {
    Json list = Json::MakeArray();
    for (const TopProcess& process : processes)
      list.Append(
          Json::MakeObject().Set("socket", process.socket).Set("snapshot", process.total.ToJson()));
    session->out->Print(Json::MakeObject().Set("processes", std::move(list)));
    return ExitCode::kOk;
  }
  for (size_t i = 0; i < processes.size(); ++i) {
    if (i > 0) session->out->Print("\n");
    for (const std::string& line : TopLines({processes[i]}, 0, 0, 0))
      session->out->Print("{}\n", line);
  }
  return ExitCode::kOk;
}

void TopCommand::Select(const std::string& keys, size_t count) {
  quit_ = quit_ || keys.find('q') != std::string::npos || keys.find('Q') != std::string::npos;
  const bool up = keys == "k" || keys == "\x1b[A" || keys == "\x1bOA";
  const bool down = keys == "j" || keys == "\x1b[B" || keys == "\x1bOB";
  if (up && selected_ > 0) --selected_;
  if (down) ++selected_;
  selected_ = count == 0 ? 0 : std::min(selected_, count - 1);
}

Result<ExitCode> TopCommand::Watch(Session* session) {
  HR_ASSIGN_OR_RETURN(std::unique_ptr<FullScreen> screen, FullScreen::Enter());
  const auto interval = std::chrono::seconds(std::clamp<uint64_t>(interval_s_, 1, 3600));
  std::vector<TopProcess> processes;
  Clock::time_point next = Clock::now();
  TerminalSize drawn{0, 0};
  bool changed = true;
  while (!quit_) {
    if (session->ctx.cancelled && session->ctx.cancelled->load()) return ExitCode::kInterrupted;
    if (Clock::now() >= next) {
      HR_ASSIGN_OR_RETURN(processes, Ask(*session));
      next = Clock::now() + interval;
      changed = true;
    }
    const TerminalSize size = StdoutSize();
    if (changed || size != drawn) {
      Select("", processes.size());
      std::string text = "\x1b[H";
      for (const std::string& line : TopLines(processes, selected_, size.columns, size.rows - 1))
        text += line + "\x1b[K\r\n";
      if (processes.empty())
        text +=
            "waiting for a process with an admin socket in " + RuntimeDirectoryPath() + "\x1b[K";
      HR_RETURN_IF_ERROR(WriteStdout(AsBytes(text + "\x1b[J")));
      drawn = size;
    }
    const std::string keys = screen->ReadKeys(kKeyPeriod);
    changed = !keys.empty();
    Select(keys, processes.size());
  }
  return ExitCode::kOk;
}

Result<ExitCode> TopCommand::Run(Session* session) {
  if (list_metrics_) {
    if (session->json)
      session->out->Print(MetricsReferenceJson());
    else
      session->out->Print("{}", MetricsReference());
    return ExitCode::kOk;
  }
  if (once_ || session->json) return Once(session);
  if (!StdoutIsTerminal())
    return Error(Code::kInvalidArgument,
                 "standard output is no terminal: add --once, or --once --json");
  return Watch(session);
}

}  // namespace

std::unique_ptr<Command> MakeTopCommand() { return std::make_unique<TopCommand>(); }

}  // namespace headrace::cli
