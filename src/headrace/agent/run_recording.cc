#include "headrace/agent/run_recording.h"

#include <utility>

#include "headrace/base/text.h"
#include "headrace/doctor/machine_probe.h"

namespace headrace::agent {
namespace {
constexpr std::chrono::milliseconds kLeastInterval{100};
}  // namespace

RunRecording::RunRecording(ProcessWatch* watch, std::unique_ptr<doctor::RunRecorder> recorder,
                           std::chrono::nanoseconds interval)
    : watch_(watch),
      recorder_(std::move(recorder)),
      interval_(interval),
      fork_generation_(ForkGeneration()) {}

Result<std::unique_ptr<RunRecording>> RunRecording::Start(FileSystem* fs, ProcessWatch* watch,
                                                          const Options& options) {
  if (options.interval < kLeastInterval)
    return Error(Code::kInvalidArgument, "a run is recorded every {} at most, not every {}",
                 FormatDuration(kLeastInterval), FormatDuration(options.interval));
  const ProcessSnapshot first = watch->Snapshot();
  doctor::RunFacts facts;
  facts.name = first.job;
  facts.rank = static_cast<uint32_t>(first.rank);
  facts.node = first.host;
  facts.machine = doctor::ReadMachine(fs).facts;
  facts.job.world_size = static_cast<uint32_t>(first.world_size);
  facts.dataset.name = first.dataset;
  HR_ASSIGN_OR_RETURN(
      auto recorder,
      doctor::RunRecorder::Open(fs, facts,
                                {options.directory, options.limit_bytes, options.from_beginning}));
  HR_RETURN_IF_ERROR(recorder->Add(first));
  std::unique_ptr<RunRecording> recording(
      new RunRecording(watch, std::move(recorder), options.interval));
  RunRecording* self = recording.get();
  HR_ASSIGN_OR_RETURN(recording->thread_, Thread::Start("hr-record", [self] { self->Work(); }));
  return recording;
}

RunRecording::~RunRecording() {
  if (ForkGeneration() != fork_generation_) {
    [[maybe_unused]] auto* of_the_parent =
        thread_.release();  // there is no such thread in this process
    return;
  }
  {
    MutexLock lock(&mu_);
    ending_ = true;
    ending_changed_.NotifyAll();
  }
  if (!thread_) return;  // it was refused: nobody records
  thread_.reset();
  (void)Flush();
}

Status RunRecording::Flush() {
  Status status = recorder_->Add(watch_->Snapshot());
  if (!status.ok()) ++failures_;
  return status;
}

Status RunRecording::AddLog(std::string_view level, std::string_view text) {
  return recorder_->AddLog(level, text, WallClockNanos());
}

void RunRecording::Work() {
  while (true) {
    {
      MutexLock lock(&mu_);
      const uint64_t begin = NowNanos();
      const auto length = static_cast<uint64_t>(interval_.count());
      while (!ending_) {
        const uint64_t passed = NowNanos() - begin;
        if (passed >= length) break;
        (void)ending_changed_.WaitFor(&mu_, std::chrono::nanoseconds(length - passed));
      }
      if (ending_) return;
    }
    // A disk that is full now may have room later; the job goes on in any case.
    (void)Flush();
  }
}

}  // namespace headrace::agent
