#include "headrace/loader/loop_clock.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <utility>
#include <vector>

namespace headrace::loader {
namespace {

constexpr uint64_t kStart = 1000;

StageTotals Of(const LoopClock& clock, uint64_t now, Stage stage) {
  StageReport report{};
  clock.AddTo(now, &report);
  return report[static_cast<size_t>(stage)];
}

// An epoch of any waits and steps: each nanosecond is one or the other, or outside of epochs.
RC_GTEST_PROP(LoopClockProperties, WaitsAndStepsAreAllOfAnEpoch, ()) {
  using Times = std::vector<std::pair<uint32_t, uint32_t>>;
  LoopClock clock;
  uint64_t now = kStart, waits = 0, steps = 0, outside = 0, batches = 0;
  const auto epochs = *rc::gen::inRange(1, 4);
  for (int epoch = 0; epoch < epochs; ++epoch) {
    clock.Begin(now);
    for (auto [wait, step] : *rc::gen::arbitrary<Times>()) {
      clock.Ask(now);
      now += wait / 2;
      clock.Ask(now);  // the call ran into its deadline, and another follows
      now += wait - wait / 2;
      clock.Deliver(now);
      now += step;
      waits += wait;
      steps += step;
      ++batches;
    }
    clock.Ask(now);
    clock.EndEpoch();
    const auto between = *rc::gen::inRange<uint64_t>(0, 1'000'000);
    now += between;
    outside += between;
  }
  const StageTotals queue = Of(clock, now, Stage::kQueue), step = Of(clock, now, Stage::kStep);
  RC_ASSERT(queue.wait_ns == waits);
  RC_ASSERT(step.busy_ns == steps);
  RC_ASSERT(step.count == batches);
  RC_ASSERT(queue.waits.Total() == batches);
  RC_ASSERT(clock.LifeNs(now) == waits + steps + outside);
  RC_ASSERT(clock.totals(now).wait_ns == waits);
  RC_ASSERT(clock.totals(now).step_ns == steps);
}

TEST(LoopClock, AWaitThatGoesOnIsTold) {
  LoopClock clock;
  clock.Begin(kStart);
  clock.Ask(kStart + 10);
  EXPECT_EQ(clock.totals(kStart + 60).wait_ns, 50u);
  EXPECT_EQ(Of(clock, kStart + 60, Stage::kQueue).waits.Total(), 0u);
  clock.Deliver(kStart + 110);
  EXPECT_EQ(clock.totals(kStart + 500).wait_ns, 100u);
  EXPECT_EQ(clock.totals(kStart + 500).first_batch_ns, 110u);
}

TEST(LoopClock, AnEpochThatIsLeftHasNoLastStep) {
  LoopClock clock;
  clock.Begin(kStart);
  clock.Ask(kStart);
  clock.Deliver(kStart + 10);
  clock.Begin(kStart + 1'000'000);  // who knows what was done meanwhile
  clock.Ask(kStart + 1'000'000);
  clock.Deliver(kStart + 1'000'005);
  EXPECT_EQ(clock.totals(kStart + 1'000'005).step_ns, 0u);
  EXPECT_EQ(clock.totals(kStart + 1'000'005).wait_ns, 15u);
}

TEST(LoopClock, LivesFromTheFirstEpochToTheEnd) {
  LoopClock clock;
  EXPECT_FALSE(clock.IsLive());
  clock.Begin(kStart);
  EXPECT_TRUE(clock.IsLive());
  clock.Close(kStart + 77);
  EXPECT_FALSE(clock.IsLive());
  EXPECT_EQ(clock.LifeNs(kStart + 1000), 77u);
}

}  // namespace
}  // namespace headrace::loader
