#include "headrace/agent/auto_tune.h"

#include <algorithm>
#include <utility>

#include "headrace/base/text.h"
#include "headrace/doctor/snapshot_window.h"
#include "headrace/loader/loader_snapshot.h"

namespace headrace::agent {
namespace {

using Knob = doctor::TuningTurns::Knob;

// With less than a few blocks the prefetcher does not come to a request of neighbours.
constexpr uint64_t kLeastAheadBytes = 16 << 20;

Knob KnobOf(const SettingValue& setting, const ProcessSnapshot& now,
            doctor::Tuner::Options options) {
  options.least = std::max<uint64_t>(setting.min, 1);
  options.most = setting.max;
  options.of_fetches = setting.name != "threads";
  if (setting.name == "prefetch_bytes") {
    options.unit = "bytes";
    options.least = std::max(options.least, kLeastAheadBytes);
  }
  const SettingValue* ahead = now.FindSetting("prefetch_bytes");
  if (options.of_fetches && ahead != nullptr) options.settle_bytes = ahead->max;
  return {setting.name, options, setting.value};
}

std::vector<Knob> KnobsOf(const ProcessSnapshot& now, const AutoTune::Options& options) {
  std::vector<Knob> knobs;
  for (const std::string& name : options.settings) {
    const SettingValue* setting = now.FindSetting(name);
    if (setting == nullptr) continue;
    knobs.push_back(KnobOf(*setting, now, options.tuner));
    if (knobs.back().options.least >= knobs.back().options.most) knobs.pop_back();
  }
  return knobs;
}

// What the process's cache did for this loader, as who watches the process adds it for all.
void AddCache(const loader::CacheStats& stats, ProcessSnapshot* snapshot) {
  if (!stats.has_cache) return;
  auto add = [&](Metric metric, const Counter& count, std::string_view label = "") {
    snapshot->AddMetric(metric, static_cast<double>(count.value()), label);
  };
  add(Metric::kCacheMisses, stats.cache.misses);
  add(Metric::kCacheOriginBytes, stats.cache.origin_bytes);
  add(Metric::kCacheReadBytes, stats.cache.memory_bytes, "memory");
  add(Metric::kCacheReadBytes, stats.cache.disk_bytes, "disk");
}

}  // namespace

AutoTune::AutoTune(Look look, Change change, std::chrono::nanoseconds interval,
                   ProcessSnapshot first, const std::vector<Knob>& knobs)
    : look_(std::move(look)),
      change_(std::move(change)),
      interval_(interval),
      fork_generation_(ForkGeneration()),
      before_(std::move(first)),
      turns_(knobs) {}

bool AutoTune::HasChoice(const std::vector<SettingValue>& settings) {
  ProcessSnapshot now;
  now.settings = settings;
  return !KnobsOf(now, Options()).empty();
}

Result<std::unique_ptr<AutoTune>> AutoTune::Start(Look look, Change change,
                                                  const Options& options) {
  ProcessSnapshot first = look();
  const std::vector<Knob> knobs = KnobsOf(first, options);
  if (knobs.empty())
    return Status(Code::kNotFound, "there is no setting to tune that leaves a choice");
  std::unique_ptr<AutoTune> made(
      new AutoTune(std::move(look), std::move(change), options.interval, std::move(first), knobs));
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
    AddCache(loader->stats().cache, &snapshot);
    snapshot.window_ns = NowNanos();
    return snapshot;
  };
  auto change = [part](const std::string& setting, uint64_t value, const std::string& why) {
    return part->ChangeSetting(setting, value, {"autotune", why});
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
  const auto length = static_cast<uint64_t>(interval_.count());
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
  for (size_t i = 0; i < turns_.num_knobs(); ++i) {
    const SettingValue* setting = before_.FindSetting(turns_.setting(i));
    if (setting == nullptr) return;
    // A user, or the doctor, has set it: that is where to go on from.
    if (setting->value != turns_.value(i)) return turns_.Restart(i, setting->value);
  }
  // One that is refused is seen as somebody else's at the next look.
  for (const doctor::TuningTurns::Move& move : turns_.Add(window))
    (void)change_(move.setting, move.value, move.why);
}

}  // namespace headrace::agent
