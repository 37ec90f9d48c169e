#include "headrace/base/stage_timer.h"

#include <gtest/gtest.h>

#include <set>
#include <thread>
#include <vector>

namespace headrace {
namespace {

StageTotals Totals(const StageRecorder& recorder, Stage stage) {
  StageReport report{};
  recorder.AddTo(&report);
  return report[static_cast<size_t>(stage)];
}

TEST(StageTimer, EveryStageHasItsOwnName) {
  std::set<std::string_view> names;
  for (size_t i = 0; i < kNumStages; ++i) names.insert(StageName(static_cast<Stage>(i)));
  EXPECT_EQ(names.size(), kNumStages);
  EXPECT_EQ(StageName(Stage::kPlan), "plan");
  EXPECT_EQ(StageName(Stage::kChecksum), "checksum");
  EXPECT_EQ(StageName(Stage::kStep), "step");
}

TEST(StageTimer, AddsBusyWaitBytesAndCounts) {
  StageRecorder recorder;
  recorder.Busy(Stage::kRead, 1000, 64);
  recorder.Busy(Stage::kRead, 3000, 36);
  recorder.Wait(Stage::kRead, 500);
  recorder.Busy(Stage::kDecode, 7);
  StageTotals read = Totals(recorder, Stage::kRead);
  EXPECT_EQ(read.busy_ns, 4000u);
  EXPECT_EQ(read.wait_ns, 500u);
  EXPECT_EQ(read.bytes, 100u);
  EXPECT_EQ(read.count, 2u);
  EXPECT_EQ(Totals(recorder, Stage::kDecode).busy_ns, 7u);
  EXPECT_EQ(Totals(recorder, Stage::kCopy).count, 0u);
}

TEST(StageTimer, BucketsArePowersOfTwo) {
  StageRecorder recorder;
  for (uint64_t ns : {uint64_t{0}, uint64_t{1}, uint64_t{2}, uint64_t{3}, uint64_t{4},
                      uint64_t{1} << 39, UINT64_MAX})
    recorder.Busy(Stage::kPlan, ns);
  StageTotals totals = Totals(recorder, Stage::kPlan);
  EXPECT_EQ(totals.histogram[0], 2u);
  EXPECT_EQ(totals.histogram[1], 2u);
  EXPECT_EQ(totals.histogram[2], 1u);
  EXPECT_EQ(totals.histogram[39], 2u);
}

TEST(StageTimer, PercentilesAreUpperEdges) {
  StageRecorder recorder;
  EXPECT_EQ(Totals(recorder, Stage::kPlan).Percentile(0.5), 0u);
  for (int i = 0; i < 98; ++i) recorder.Busy(Stage::kPlan, 1000);  // in [512, 1024)
  recorder.Busy(Stage::kPlan, 5000);                               // in [4096, 8192)
  recorder.Busy(Stage::kPlan, 100'000);                            // in [65536, 131072)
  StageTotals totals = Totals(recorder, Stage::kPlan);
  EXPECT_EQ(totals.Percentile(0), 1024u);
  EXPECT_EQ(totals.Percentile(0.5), 1024u);
  EXPECT_EQ(totals.Percentile(0.98), 1024u);
  EXPECT_EQ(totals.Percentile(0.99), 8192u);
  EXPECT_EQ(totals.Percentile(1), 131072u);
}

TEST(StageTimer, TotalsOfSeveralRecordersAdd) {
  StageRecorder one, two;
  one.Busy(Stage::kRead, 10, 1);
  two.Busy(Stage::kRead, 20, 2);
  two.Wait(Stage::kRead, 5);
  StageReport report{};
  one.AddTo(&report);
  two.AddTo(&report);
  StageTotals sum = report[static_cast<size_t>(Stage::kRead)];
  EXPECT_EQ(sum.busy_ns, 30u);
  StageTotals twice = sum;
  twice.Add(sum);
  EXPECT_EQ(twice.busy_ns, 60u);
  EXPECT_EQ(twice.wait_ns, 10u);
  EXPECT_EQ(twice.bytes, 6u);
  EXPECT_EQ(twice.count, 4u);
  EXPECT_EQ(twice.histogram[4], 2u);
}

TEST(StageTimer, AReaderSeesFiguresThatOnlyGrow) {
  StageRecorder recorder;
  constexpr uint64_t kEvents = 20'000;
  std::thread owner([&] {
    for (uint64_t i = 0; i < kEvents; ++i) recorder.Busy(Stage::kRead, 3, 2);
  });
  uint64_t last = 0;
  while (last < kEvents) {
    StageTotals totals = Totals(recorder, Stage::kRead);
    ASSERT_GE(totals.count, last);
    ASSERT_LE(totals.bytes, kEvents * 2);
    last = totals.count;
  }
  owner.join();
  EXPECT_EQ(Totals(recorder, Stage::kRead).busy_ns, kEvents * 3);
}

TEST(StageClock, BooksEveryLapOnce) {
  StageRecorder recorder;
  uint64_t before = NowNanos();
  StageClock clock(&recorder);
  clock.Lap(Stage::kRead, 10);
  clock.Lap(Stage::kDecode);
  clock.Lap(Stage::kRead, 5);
  uint64_t elapsed = NowNanos() - before;
  StageTotals read = Totals(recorder, Stage::kRead), decode = Totals(recorder, Stage::kDecode);
  EXPECT_EQ(read.count, 2u);
  EXPECT_EQ(read.bytes, 15u);
  EXPECT_EQ(decode.count, 1u);
  EXPECT_LE(read.busy_ns + decode.busy_ns, elapsed);
}

TEST(StageTimer, WaitsHaveAHistogramOfTheirOwn) {
  StageRecorder recorder;
  recorder.Wait(Stage::kQueue, 1000);
  recorder.Wait(Stage::kQueue, 1'000'000);
  StageTotals queue = Totals(recorder, Stage::kQueue);
  EXPECT_EQ(queue.waits.Total(), 2u);
  EXPECT_EQ(queue.histogram.Total(), 0u);
  EXPECT_EQ(queue.waits.Percentile(1), uint64_t{1} << 20);
}

TEST(SharedStageRecorder, ManyThreadsAddToTheSameFigures) {
  SharedStageRecorder recorder;
  constexpr uint64_t kThreads = 4, kEvents = 5'000;
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < kThreads; ++t)
    threads.emplace_back([&] {
      for (uint64_t i = 0; i < kEvents; ++i) recorder.Busy(Stage::kFetch, 3, 2);
    });
  for (std::thread& thread : threads) thread.join();
  StageReport report{};
  recorder.AddTo(&report);
  const StageTotals& fetch = report[static_cast<size_t>(Stage::kFetch)];
  EXPECT_EQ(fetch.count, kThreads * kEvents);
  EXPECT_EQ(fetch.busy_ns, kThreads * kEvents * 3);
  EXPECT_EQ(fetch.bytes, kThreads * kEvents * 2);
  EXPECT_EQ(fetch.histogram[1], kThreads * kEvents);
}

uint64_t virtual_now = 0;

TEST(StageClock, RunsOnAnyClock) {
  StageRecorder recorder;
  virtual_now = 100;
  StageClock clock(&recorder, [] { return virtual_now; });
  virtual_now = 130;
  clock.Lap(Stage::kRead);
  virtual_now = 131;
  clock.Lap(Stage::kDecode);
  EXPECT_EQ(Totals(recorder, Stage::kRead).busy_ns, 30u);
  EXPECT_EQ(Totals(recorder, Stage::kDecode).busy_ns, 1u);
}

TEST(StageClock, WithoutARecorderItDoesNothing) {
  StageClock clock(nullptr);
  clock.Restart();
  clock.Lap(Stage::kRead, 10);
}

}  // namespace
}  // namespace headrace
