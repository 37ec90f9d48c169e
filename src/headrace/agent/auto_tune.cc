#include "headrace/agent/auto_tune.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "headrace/base/text.h"
#include "headrace/doctor/snapshot_window.h"
#include "headrace/loader/loader_snapshot.h"

namespace headrace::agent {
namespace {

doctor::Tuner::Options InBounds(doctor::Tuner::Options options, const SettingValue& setting) {
  options.least = std::max<uint64_t>(setting.min, 1);
  options.most = setting.max;
  return options;
}

}  // namespace

AutoTune::AutoTune(Look look, Change change, const Options& options, ProcessSnapshot first,
                   const SettingValue& setting)
    : look_(std::move(look)),
      change_(std::move(change)),
      options_(options),
      fork_generation_(ForkGeneration()),
      before_(std::move(first)),
      tuner_(InBounds(options.tuner, setting), setting.value) {}

Result<std::unique_ptr<AutoTune>> AutoTune::Start(Look look, Change change,
                                                  const Options& options) {
  ProcessSnapshot first = look();
  const SettingValue* setting = first.FindSetting(options.setting);
  if (setting == nullptr)
    return Error(Code::kNotFound, "there is no setting '{}' to tune", EscapeText(options.setting));
  const SettingValue known = *setting;
  std::unique_ptr<AutoTune> made(
      new AutoTune(std::move(look), std::move(change), options, std::move(first), known));
  AutoTune* self = made.get();
  MutexLock lock(&made->joining_mu_);
  HR_ASSIGN_OR_RETURN(made->thread_, Thread::Start("hr-tune", [self] { self->Work(); }));
  return made;
}

Result<std::unique_ptr<AutoTune>> AutoTune::OfLoader(const loader::Loader* loader,
                                                     ProcessWatch::Part* part) {
  auto look = [loader] {
    ProcessSnapshot snapshot;
    loader::AddToSnapshot(*loader, &snapshot);
    snapshot.window_ns = NowNanos();
    return snapshot;
  };
  auto change = [part](uint64_t value, const std::string& why) {
    return part->ChangeSetting("threads", value, {"autotune", why});
  };
  return Start(look, change, Options());
}

AutoTune::~AutoTune() {
  if (ForkGeneration() == fork_generation_)
    Stop();
  else [[maybe_unused]]
    auto* of_the_parent = thread_.release();  // there is no such thread in this process
}

void AutoTune::Stop() {
  if (ForkGeneration() != fork_generation_) return;
  MutexLock joining(&joining_mu_);
  {
    MutexLock lock(&mu_);
    ending_ = true;
    ending_changed_.NotifyAll();
  }
  thread_.reset();
}

void AutoTune::Work() {
  while (Wait()) Step();
}

// Until it is time for another look. False at the end.
bool AutoTune::Wait() {
  const uint64_t begin = NowNanos();
  const auto length = static_cast<uint64_t>(options_.interval.count());
  MutexLock lock(&mu_);
  while (!ending_) {
    const uint64_t passed = NowNanos() - begin;
    if (passed >= length) return true;
    (void)ending_changed_.WaitFor(&mu_, std::chrono::nanoseconds(length - passed));
  }
  return false;
}

void AutoTune::Step() {
  ProcessSnapshot now = look_();
  const doctor::Window window = doctor::WindowOf(now.Since(before_), at_s_);
  at_s_ += window.seconds;
  before_ = std::move(now);
  const SettingValue* setting = before_.FindSetting(options_.setting);
  if (setting == nullptr) return;
  // A user, or the doctor, has set it: that is where to go on from.
  if (setting->value != tuner_.value()) return tuner_.Restart(setting->value);
  const std::optional<doctor::Tuner::Move> move = tuner_.Add(window);
  // One that is refused is seen as somebody else's at the next look.
  if (move) (void)change_(move->value, move->why);
}

}  // namespace headrace::agent
