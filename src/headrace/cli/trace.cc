// headrace trace: what running jobs do in a window of time, event by event, as a file that Chrome
// and Perfetto show.
#include <algorithm>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "headrace/agent/admin_server.h"
#include "headrace/base/text.h"
#include "headrace/base/trace_json.h"
#include "headrace/cli/commands.h"
#include "headrace/cli/live_run.h"

namespace headrace::cli {
namespace {

using Clock = std::chrono::steady_clock;
// How often events are fetched: the ring of a busy process holds some seconds of them.
constexpr std::chrono::milliseconds kFetchPeriod{50};
constexpr std::chrono::seconds kTraceTimeout{5};
// Tracing ends so long after this program has died.
constexpr uint64_t kLeaseSeconds = 5;
constexpr std::chrono::seconds kRenewal{1};
constexpr uint64_t kMaxEvents = 4'000'000;  // about 800 MB of text

// One process that is being traced.
class Traced {
 public:
  explicit Traced(std::string socket) : socket_(std::move(socket)) {}

  Status Begin(const Session& session, TraceFile* file) {
    HR_ASSIGN_OR_RETURN(ProcessSnapshot snapshot, agent::AskSnapshot(socket_, Soon(session)));
    HR_ASSIGN_OR_RETURN(agent::TraceBegun begun,
                        agent::AskToTrace(socket_, kLeaseSeconds, Soon(session)));
    number_ = file->AddProcess(snapshot, begun.now_ns);
    next_ = begun.next;
    return OkStatus();
  }
  Status Renew(const Session& session) {
    return agent::AskToTrace(socket_, kLeaseSeconds, Soon(session)).status();
  }
  // Fetches what is there now: until an answer is not full.
  Status Fetch(const Session& session, TraceFile* file) {
    while (file->num_events() < kMaxEvents) {
      HR_ASSIGN_OR_RETURN(TraceChunk chunk, agent::AskTrace(socket_, next_, Soon(session)));
      for (const TraceEvent& event : chunk.events) file->Add(number_, event);
      file->AddLost(chunk.lost);
      next_ = chunk.next;
      if (chunk.events.size() < agent::kTraceEvents) return OkStatus();
    }
    return OkStatus();
  }

 private:
  static Context Soon(const Session& session) {
    Context ctx = session.ctx;
    ctx.deadline = Clock::now() + kTraceTimeout;
    return ctx;
  }

  std::string socket_;
  size_t number_ = 0;
  uint64_t next_ = 0;
};

class TraceCommand final : public Command {
 public:
  void Declare(Arguments* arguments) override;
  Result<ExitCode> Run(Session* session) override;

 private:
  Result<std::vector<Traced>> Begin(const Session& session, TraceFile* file) const;
  void Follow(const Session& session, std::vector<Traced>* processes, TraceFile* file) const;

  std::string who_, output_ = "trace.json";
  uint64_t seconds_ = 5;
};

void TraceCommand::Declare(Arguments* arguments) {
  arguments->Text("process", &who_,
                  "The id of a process, the path of its admin socket, or all of this machine");
  arguments->Count("--seconds", &seconds_, "How long to watch, at most an hour");
  arguments->Text("-o,--output", &output_, "Where the trace goes, '-' for standard output");
  arguments->Note(
      "The file is in the trace event format: open it at https://ui.perfetto.dev (it stays in the "
      "browser) or\nin chrome://tracing. Each thread has a line with the stages of each sample; "
      "batches, requests to\nstores and saves of checkpoints lie beside each other. A process "
      "traces only while it is asked to.");
  arguments->Example("headrace trace 4711 --seconds 5 -o trace.json", "Five seconds of one job");
  arguments->Example("headrace trace all", "All ranks of this machine in one picture");
}

// Processes that have ended are left out.
Result<std::vector<Traced>> TraceCommand::Begin(const Session& session, TraceFile* file) const {
  HR_ASSIGN_OR_RETURN(std::vector<std::string> sockets, SocketsOf(who_));
  std::vector<Traced> processes;
  Status last;
  for (std::string& socket : sockets) {
    Traced process(std::move(socket));
    Status begun = process.Begin(session, file);
    if (begun.ok())
      processes.push_back(std::move(process));
    else
      last = std::move(begun);
  }
  if (processes.empty()) return last;
  return processes;
}

// Fetches while time passes; what came is kept when the user interrupts, or when a process ends.
void TraceCommand::Follow(const Session& session, std::vector<Traced>* processes,
                          TraceFile* file) const {
  const Clock::time_point end = Clock::now() + std::chrono::seconds(seconds_);
  Clock::time_point renewal = Clock::now() + kRenewal;
  for (bool more = true; more && !processes->empty();) {
    const Clock::time_point next = std::min(Clock::now() + kFetchPeriod, end);
    more = WaitUntil(session, next) && next < end && file->num_events() < kMaxEvents;
    const bool renew = more && Clock::now() >= renewal;
    if (renew) renewal = Clock::now() + kRenewal;
    std::erase_if(*processes, [&](Traced& process) {
      return !process.Fetch(session, file).ok() || (renew && !process.Renew(session).ok());
    });
  }
}

Result<ExitCode> TraceCommand::Run(Session* session) {
  if (seconds_ < 1 || seconds_ > 3600)
    return Error(Code::kInvalidArgument, "--seconds: expected 1 to 3600, found {}", seconds_);
  if (output_ == "-" && session->json)
    return Status(Code::kInvalidArgument,
                  "--json and a trace on standard output do not go together: name a file with -o");
  TraceFile file;
  HR_ASSIGN_OR_RETURN(std::vector<Traced> processes, Begin(*session, &file));
  const size_t count = processes.size();
  Note(*session, fmt::format("tracing {} processes for {} s", count, seconds_));
  Follow(*session, &processes, &file);
  const std::string text = file.Finish();
  if (output_ == "-") {
    session->out->Write(AsBytes(text));
    return ExitCode::kOk;
  }
  HR_RETURN_IF_ERROR(session->fs->WriteAtomically(output_, AsBytes(text)));
  if (session->json)
    session->out->Print(Json::MakeObject()
                            .Set("trace", EscapeText(output_))
                            .Set("processes", static_cast<uint64_t>(count))
                            .Set("events", file.num_events())
                            .Set("lost_events", file.lost()));
  else
    session->out->Print(
        "{}: {} events of {} processes{}\n", EscapeText(output_), FormatCount(file.num_events()),
        count, file.lost() == 0 ? "" : fmt::format("; {} came too fast and are lost", file.lost()));
  return ExitCode::kOk;
}

}  // namespace

std::unique_ptr<Command> MakeTraceCommand() { return std::make_unique<TraceCommand>(); }

}  // namespace headrace::cli
