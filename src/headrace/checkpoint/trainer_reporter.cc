#include "headrace/checkpoint/trainer_reporter.h"

#include <optional>
#include <utility>

namespace headrace::checkpoint {
namespace {

using Clock = Context::Clock;

uint64_t NowNs() {
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch())
          .count());
}

}  // namespace

TrainerReporter::TrainerReporter(HelperClient* client, Options options)
    : fork_(ForkGeneration()),
      client_(client),
      options_(std::move(options)),
      pace_(options_.look()) {}

Result<std::unique_ptr<TrainerReporter>> TrainerReporter::Start(HelperClient* client,
                                                                Options options) {
  std::unique_ptr<TrainerReporter> reporter(new TrainerReporter(client, std::move(options)));
  HR_ASSIGN_OR_RETURN(reporter->thread_,
                      Thread::Start("hr-report", [raw = reporter.get()] { raw->Work(); }));
  return reporter;
}

TrainerReporter::~TrainerReporter() {
  if (ForkGeneration() != fork_) {
    [[maybe_unused]] auto* of_the_parent = thread_.release();  // its lock may be held for ever
    return;
  }
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    stop_.NotifyAll();
  }
  thread_.reset();
  LookAfterSaves();
}

void TrainerReporter::Saved(uint64_t number) {
  MutexLock lock(&mu_);
  pace_.Saved(NowNs());
  saves_.push_back(number);
}

void TrainerReporter::ExpectSave(double seconds) {
  MutexLock lock(&mu_);
  pace_.ExpectSave(NowNs() + static_cast<uint64_t>(seconds * 1e9));
}

uint64_t TrainerReporter::pending() {
  MutexLock lock(&mu_);
  return saves_.size();
}

void TrainerReporter::Work() {
  for (;;) {
    Report();
    LookAfterSaves();
    const auto next = Clock::now() + options_.interval;
    MutexLock lock(&mu_);
    while (!stopping_ && Clock::now() < next) stop_.WaitFor(&mu_, next - Clock::now());
    if (stopping_) return;
  }
}

// A helper that is gone hears nothing: who waits for a save that it held gets an error.
void TrainerReporter::Report() {
  const LoopTime loop = options_.look();
  std::optional<double> stall;
  std::optional<uint64_t> until_save;
  {
    MutexLock lock(&mu_);
    stall = pace_.InputStall(loop);
    until_save = pace_.UntilSaveNs(NowNs());
  }
  if (until_save) (void)client_->SetDeadline(static_cast<double>(*until_save) * 1e-9);
  if (stall) (void)client_->ReportStall(*stall);
}

// They end in the order in which they came.
void TrainerReporter::LookAfterSaves() {
  for (;;) {
    uint64_t number = 0;
    {
      MutexLock lock(&mu_);
      if (saves_.empty()) return;
      number = saves_.front();
    }
    auto status = client_->Look(number);
    if (status.ok() && status->level == Level::kMemory && status->failed.ok()) return;
    KeptStatus ended;
    if (status.ok()) {
      ended = *std::move(status);
    } else {
      ended.failed = status.status();  // the helper is gone
    }
    options_.ended(ended);
    MutexLock lock(&mu_);
    saves_.pop_front();
  }
}

}  // namespace headrace::checkpoint
