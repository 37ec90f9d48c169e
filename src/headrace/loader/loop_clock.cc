#include "headrace/loader/loop_clock.h"

namespace headrace::loader {

namespace {
constexpr auto kRelaxed = std::memory_order_relaxed;
}  // namespace

void LoopClock::Begin(uint64_t now) {
  if (!begun_) {
    recorder_.Begin(now);
    first_begin_ns_ = now;
    begun_ = true;
  }
  in_step_ = false;
  wait_since_ns_.store(0, kRelaxed);
}

void LoopClock::Ask(uint64_t now) {
  if (wait_since_ns_.load(kRelaxed) == 0) wait_since_ns_.store(now, kRelaxed);
}

void LoopClock::BookStep() {
  const uint64_t asked = wait_since_ns_.load(kRelaxed);
  if (in_step_) recorder_.Busy(Stage::kStep, asked - last_return_ns_, 0, asked);
  in_step_ = false;
}

void LoopClock::Deliver(uint64_t now, uint64_t item) {
  BookStep();
  recorder_.SetItem(item);
  const uint64_t since = wait_since_ns_.load(kRelaxed);
  // Not both at once for a reader in between: it would count this wait twice.
  wait_since_ns_.store(0, kRelaxed);
  recorder_.Wait(Stage::kQueue, now - since, now);
  if (first_batch_ns_.load(kRelaxed) == 0) first_batch_ns_.store(now - first_begin_ns_, kRelaxed);
  last_return_ns_ = now;
  in_step_ = true;
}

void LoopClock::EndEpoch() {
  BookStep();
  wait_since_ns_.store(0, kRelaxed);
}

LoopClock::Totals LoopClock::totals(uint64_t now) const {
  StageReport report{};
  AddTo(now, &report);
  return {.wait_ns = report[static_cast<size_t>(Stage::kQueue)].wait_ns,
          .step_ns = report[static_cast<size_t>(Stage::kStep)].busy_ns,
          .first_batch_ns = first_batch_ns_.load(kRelaxed)};
}

void LoopClock::AddTo(uint64_t now, StageReport* report) const {
  // A wait that ends between the two looks is booked already, or missing; never there twice.
  const uint64_t since = wait_since_ns_.load(kRelaxed);
  StageReport mine{};
  recorder_.AddTo(&mine);
  if (since != 0 && now > since && wait_since_ns_.load(kRelaxed) == since)
    mine[static_cast<size_t>(Stage::kQueue)].wait_ns += now - since;
  for (size_t i = 0; i < kNumStages; ++i) (*report)[i].Add(mine[i]);
}

}  // namespace headrace::loader
