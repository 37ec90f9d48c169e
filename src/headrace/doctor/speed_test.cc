#include "headrace/doctor/speed.h"

#include <gtest/gtest.h>

#include <cmath>

#include "headrace/base/keyed_random.h"
#include "headrace/doctor/testing/pipeline_simulator.h"

namespace headrace::doctor {
namespace {

Window Ran(double seconds, uint64_t batches, uint64_t samples) {
  Window window;
  window.seconds = seconds;
  window.input_wait_s = seconds * 0.25;
  window.step_s = seconds * 0.75;
  window.batches = batches;
  window.samples = samples;
  return window;
}

TEST(SpeedGauge, GathersUntilAStretchIsLongEnough) {
  SpeedGauge gauge({.stretch_s = 2, .stretch_batches = 8});
  for (int i = 0; i < 7; ++i) gauge.Add(Ran(1, 1, 100));
  EXPECT_EQ(gauge.speed().stretches, 0u);  // long enough, and too few batches
  gauge.Add(Ran(1, 1, 100));
  EXPECT_EQ(gauge.speed().stretches, 1u);
  gauge.Add(Ran(1, 20, 100));
  EXPECT_EQ(gauge.speed().stretches, 1u);  // batches enough, and too short
  gauge.Add(Ran(1, 20, 100));
  EXPECT_EQ(gauge.speed().stretches, 2u);
  EXPECT_DOUBLE_EQ(gauge.speed().samples_per_s, 100);
  EXPECT_EQ(gauge.speed().error, 1) << "nothing can be told of two";
  gauge.Add(Ran(2, 20, 200));
  EXPECT_LT(gauge.speed().error, 1e-9);
  EXPECT_EQ(gauge.total().samples, 1200u);
  gauge.Clear();
  EXPECT_EQ(gauge.speed().stretches, 0u);
  EXPECT_EQ(gauge.total().samples, 0u);
}

TEST(SpeedGauge, LongStepsGiveAStretchAtLast) {
  SpeedGauge gauge({.stretch_s = 2, .stretch_batches = 8, .longest_s = 60});
  for (int i = 0; i < 6; ++i) gauge.Add(Ran(10, i == 5 ? 1 : 0, i == 5 ? 30 : 0));
  EXPECT_EQ(gauge.speed().stretches, 1u);
  EXPECT_DOUBLE_EQ(gauge.speed().samples_per_s, 0.5);
  for (int i = 0; i < 100; ++i) gauge.Add(Ran(10, 0, 0));
  EXPECT_EQ(gauge.speed().stretches, 1u) << "no batch, no speed";
}

TEST(SpeedGauge, PausesAndSavesDoNotCount) {
  SpeedGauge gauge({.stretch_s = 2, .stretch_batches = 8});
  Window save = Ran(2, 10, 1);
  save.saving_s = 1;
  Window pause;
  pause.seconds = 3600;  // between two epochs: the loop takes no batch
  for (int i = 0; i < 5; ++i) {
    gauge.Add(Ran(2, 10, 200));
    gauge.Add(save);
    gauge.Add(pause);
  }
  EXPECT_EQ(gauge.speed().stretches, 5u);
  EXPECT_DOUBLE_EQ(gauge.speed().samples_per_s, 100);
  // A pause inside of a step is one outlier.
  gauge.Add(Ran(3600, 10, 200));
  EXPECT_EQ(gauge.speed().stretches, 6u);
  EXPECT_DOUBLE_EQ(gauge.speed().samples_per_s, 100);
  EXPECT_LT(gauge.speed().error, 0.01);
  EXPECT_EQ(gauge.total().samples, 1000u);
}

// A window ends anywhere between two batches: with 10.3 of them in each, some have 10, some 11.
TEST(SpeedGauge, WholeBatchesDoNotSkewIt) {
  for (double batches : {8.1, 10.3, 12.5, 15.9}) {
    SpeedGauge gauge({.stretch_s = 2, .stretch_batches = 8});
    uint64_t before = 0;
    for (int i = 1; i <= 20; ++i) {
      const auto now = static_cast<uint64_t>(batches * i);
      gauge.Add(Ran(2, now - before, 32 * (now - before)));
      before = now;
    }
    EXPECT_NEAR(gauge.speed().samples_per_s / (16 * batches), 1, 0.005) << batches;
    EXPECT_LT(gauge.speed().error, 0.015) << batches;
  }
}

TEST(SpeedGauge, ErrorIsThatOfTheMean) {
  double sum = 0, squares = 0, told = 0;
  constexpr int kRuns = 300;
  for (uint64_t run = 0; run < kRuns; ++run) {
    SpeedGauge gauge({.stretch_s = 1, .stretch_batches = 1});
    KeyedRandom random(HashKey(run));
    for (int i = 0; i < 20; ++i) {
      double normal = -6;  // a sum of twelve uniform draws
      for (int j = 0; j < 12; ++j) normal += random.NextDouble();
      gauge.Add(Ran(1, 10, static_cast<uint64_t>(1e6 * (1 + 0.1 * normal))));
    }
    const Speed speed = gauge.speed();
    sum += speed.samples_per_s / 1e6;
    squares += speed.samples_per_s * speed.samples_per_s / 1e12;
    told += speed.error / kRuns;
  }
  const double mean = sum / kRuns;
  const double deviation = std::sqrt(squares / kRuns - mean * mean);
  EXPECT_NEAR(mean, 1, 0.01);
  EXPECT_NEAR(told / deviation, 1, 0.25);
}

TEST(SpeedOfRun, AddsItsRanksUp) {
  testing::PipelineConfig c;
  c.ranks = 3;
  const JobRun run = testing::Simulate(c);
  const Speed speed = SpeedOfRun(run, {.stretch_s = 1, .stretch_batches = 4});
  EXPECT_NEAR(speed.samples_per_s / (3 * testing::SpeedOf(run)), 1, 0.03);
  EXPECT_LT(speed.error, 0.03);
  EXPECT_EQ(SpeedOfRun({}, {}).error, 1);
}

}  // namespace
}  // namespace headrace::doctor
