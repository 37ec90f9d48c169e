// Tells a helper about once a second how its trainer does (policy/trainer_pace.h), so that the
// drain yields while the training waits for input, and ends before the next save; and looks what
// has become of the trainer's saves. One thread. Thread-safe; in a forked child it may only be
// destroyed.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>

#include "headrace/base/mutex.h"
#include "headrace/base/status.h"
#include "headrace/checkpoint/helper_client.h"
#include "headrace/checkpoint/policy/trainer_pace.h"
#include "headrace/env/process.h"

namespace headrace::checkpoint {

class TrainerReporter {
 public:
  struct Options {
    // How the training loop does; and who is told of each save that has come to the first durable
    // tier, or failed. Both are called under no lock, on the reporter's thread or on the one that
    // destroys it.
    std::function<LoopTime()> look;
    std::function<void(const KeptStatus&)> ended;
    std::chrono::nanoseconds interval = std::chrono::seconds(1);
  };

  // `client`, which must outlive it, is open. kResourceExhausted: there is no thread.
  static Result<std::unique_ptr<TrainerReporter>> Start(HelperClient* client, Options options);
  // Looks after the saves a last time. Takes as long as the helper does for its answers.
  ~TrainerReporter();

  // A save was handed in; its number.
  void Saved(uint64_t number);
  // The trainer knows when the next one comes.
  void ExpectSave(double seconds);
  // Saves that are not known to have ended.
  uint64_t pending();

 private:
  TrainerReporter(HelperClient* client, Options options);
  void Work();
  void Report();
  void LookAfterSaves();

  const uint64_t fork_;
  HelperClient* const client_;
  const Options options_;

  Mutex mu_;
  CondVar stop_;
  TrainerPace pace_ HR_GUARDED_BY(mu_);
  std::deque<uint64_t> saves_ HR_GUARDED_BY(mu_);  // that have not ended, in their order
  bool stopping_ HR_GUARDED_BY(mu_) = false;

  std::unique_ptr<Thread> thread_;  // last: joined first
};

}  // namespace headrace::checkpoint
