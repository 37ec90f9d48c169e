// Accounts for the training loop's time: waiting for batches, the steps between them, and what lies
// outside of epochs. Each time is told by the caller, so that tests have a clock of their own.
//
// Begin, Ask, Deliver, EndEpoch and Close are called one by one, by whoever calls the loader; the
// others by any thread at any time.
#pragma once

#include <atomic>
#include <cstdint>

#include "headrace/base/stage_timer.h"

namespace headrace::loader {

class LoopClock {
 public:
  // An epoch begins: what was before it belongs to no step.
  void Begin(uint64_t now);
  // The loop wants a batch. Asking again before one came has no effect.
  void Ask(uint64_t now);
  // It got one. `item` names it in a trace.
  void Deliver(uint64_t now, uint64_t item = kNoTraceId);
  // It was told that there are no more: the step that led here was the epoch's last.
  void EndEpoch();
  void Close(uint64_t now) { recorder_.End(now); }

  struct Totals {
    uint64_t wait_ns = 0;  // with the wait that goes on now
    uint64_t step_ns = 0;
    uint64_t first_batch_ns = 0;  // from the first Begin
  };
  Totals totals(uint64_t now) const;
  // Waits are of the stage "queue", steps of "step".
  void AddTo(uint64_t now, StageReport* report) const;
  uint64_t LifeNs(uint64_t now) const { return recorder_.LifeNs(now); }
  bool IsLive() const { return recorder_.IsLive(); }

 private:
  void BookStep();

  StageRecorder recorder_{TracePool::kConsumer};
  bool begun_ = false;
  bool in_step_ = false;         // a batch was given, and its step is not booked
  uint64_t last_return_ns_ = 0;  // when
  uint64_t first_begin_ns_ = 0;
  std::atomic<uint64_t> wait_since_ns_{0};  // 0: not waiting
  std::atomic<uint64_t> first_batch_ns_{0};
};

}  // namespace headrace::loader
