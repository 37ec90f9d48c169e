// Tunes settings of a running loader inside their budgets: looks at the loader each so often, asks
// the tuner (doctor/tuning_turns.h), and sets what it says. Each change is kept with its reason
// (ProcessWatch). Thread-safe. In a forked child nothing is tuned, and destroying it there lets go
// of nothing that is the parent's.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "headrace/agent/process_watch.h"
#include "headrace/base/mutex.h"
#include "headrace/doctor/tuning_turns.h"
#include "headrace/env/process.h"
#include "headrace/loader/loader.h"

namespace headrace::agent {

class AutoTune {
 public:
  struct Options {
    // In the order of their turns. Those that there are not, or that leave no choice, are left out.
    std::vector<std::string> settings = {"threads", "prefetch_requests", "prefetch_bytes"};
    std::chrono::nanoseconds interval = std::chrono::seconds(1);
    doctor::Tuner::Options tuner = {};  // what depends on the setting is taken from there
  };
  // What the loader did so far; window_ns by a steady clock, from any moment on.
  using Look = std::function<ProcessSnapshot()>;
  using Change =
      std::function<Status(const std::string& setting, uint64_t value, const std::string& why)>;

  // Takes the first look, and starts a thread. `look` and `change` are called on it and must not
  // wait for the GIL.
  //   kNotFound           what is looked at has no such setting with a choice.
  //   kResourceExhausted  the thread is refused.
  static Result<std::unique_ptr<AutoTune>> Start(Look look, Change change, const Options& options);
  // Whether there is anything to choose from.
  static bool HasChoice(const std::vector<SettingValue>& settings);
  // All that can be tuned of a loader. Both must outlive this, or Stop().
  static Result<std::unique_ptr<AutoTune>> OfLoader(const loader::Loader* loader,
                                                    ProcessWatch::Part* part);
  ~AutoTune();

  // Waits for the thread; after that nothing is looked at or changed. Idempotent.
  void Stop() HR_EXCLUDES(joining_mu_, mu_);

 private:
  AutoTune(Look look, Change change, std::chrono::nanoseconds interval, ProcessSnapshot first,
           const std::vector<doctor::TuningTurns::Knob>& knobs);
  void Work();
  void Step();
  bool Wait() HR_EXCLUDES(mu_);

  const Look look_;
  const Change change_;
  const std::chrono::nanoseconds interval_;
  const uint64_t fork_generation_;
  // Of the thread alone.
  ProcessSnapshot before_;
  doctor::TuningTurns turns_;
  double at_s_ = 0;

  Mutex joining_mu_;  // held while the thread is joined: before mu_ and what the thread takes
  Mutex mu_;          // order: none is taken under it
  CondVar ending_changed_;
  bool ending_ HR_GUARDED_BY(mu_) = false;
  std::unique_ptr<Thread> thread_ HR_GUARDED_BY(joining_mu_);  // last: joined first
};

}  // namespace headrace::agent
