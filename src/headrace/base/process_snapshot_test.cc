#include "headrace/base/process_snapshot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <array>
#include <vector>

namespace headrace {
namespace {

using testing::HasSubstr;

constexpr uint64_t kStart = 1000;  // a clock that begins at 0 would say "not yet"

// Threads on a clock of their own: each does one thing after the other.
struct VirtualPool {
  explicit VirtualPool(size_t threads) : recorders(threads), clocks(threads, kStart) {
    for (StageRecorder& recorder : recorders) recorder.Begin(kStart);
  }
  // kind 0: busy, 1: waits, 2: is in no stage.
  void Do(size_t thread, uint8_t kind, uint8_t stage, uint32_t ns) {
    thread %= recorders.size();
    const auto what = static_cast<Stage>(stage % kNumStages);
    if (kind % 3 == 0) recorders[thread].Busy(what, ns, ns / 2);
    if (kind % 3 == 1) recorders[thread].Wait(what, ns);
    clocks[thread] += ns;
  }
  uint64_t Latest() const { return *std::max_element(clocks.begin(), clocks.end()); }
  ProcessSnapshot Look(uint64_t now) const {
    StageReport report{};
    PoolSnapshot pool{"loader", recorders.size(), 0};
    for (const StageRecorder& recorder : recorders) {
      recorder.AddTo(&report);
      pool.thread_ns += recorder.LifeNs(now);
    }
    ProcessSnapshot snapshot;
    snapshot.window_ns = now - kStart;
    snapshot.AddPool(pool, report);
    return snapshot;
  }

  std::vector<StageRecorder> recorders;
  std::vector<uint64_t> clocks;
};

struct Event {
  size_t thread;
  uint8_t kind, stage;
  uint32_t ns;
};

std::vector<Event> DrawEvents() {
  return *rc::gen::container<std::vector<Event>>(rc::gen::construct<Event>(
      rc::gen::inRange<size_t>(0, 8), rc::gen::arbitrary<uint8_t>(), rc::gen::arbitrary<uint8_t>(),
      rc::gen::inRange<uint32_t>(0, 1'000'000)));
}

void CheckSums(const ProcessSnapshot& snapshot, uint64_t wall_ns, uint64_t threads) {
  const PoolSnapshot* pool = snapshot.FindPool("loader");
  RC_ASSERT(pool != nullptr);
  RC_ASSERT(pool->thread_ns == wall_ns * threads);
  uint64_t booked = 0;
  for (const StageSnapshot& stage : snapshot.stages) {
    RC_ASSERT(stage.busy_ns + stage.wait_ns + snapshot.IdleNs(stage) == wall_ns * threads);
    RC_ASSERT(stage.durations.Total() == stage.count);
    booked += stage.busy_ns + stage.wait_ns;
  }
  RC_ASSERT(booked + snapshot.UnbookedNs("loader") == wall_ns * threads);
}

RC_GTEST_PROP(ProcessSnapshotProperties, BusyWaitAndIdleAreWallTimeTimesThreads, ()) {
  const auto threads = *rc::gen::inRange<size_t>(1, 8);
  VirtualPool pool(threads);
  for (const Event& event : DrawEvents()) pool.Do(event.thread, event.kind, event.stage, event.ns);
  const uint64_t now = pool.Latest() + *rc::gen::inRange<uint64_t>(0, 1000);
  CheckSums(pool.Look(now), now - kStart, threads);
}

RC_GTEST_PROP(ProcessSnapshotProperties, WindowsAddUpAndEachIsExact, ()) {
  const auto threads = *rc::gen::inRange<size_t>(1, 4);
  VirtualPool pool(threads);
  ProcessSnapshot last = pool.Look(kStart);
  uint64_t last_now = kStart, busy = 0, items = 0;
  for (int window = 0; window < 3; ++window) {
    for (const Event& event : DrawEvents())
      pool.Do(event.thread, event.kind, event.stage, event.ns);
    // All threads come to the same moment, so that no event lies across the border.
    const uint64_t now = pool.Latest();
    for (uint64_t& clock : pool.clocks) clock = now;
    ProcessSnapshot look = pool.Look(now);
    ProcessSnapshot between = look.Since(last);
    CheckSums(between, now - last_now, threads);
    RC_ASSERT(between.window_ns == now - last_now);
    for (const StageSnapshot& stage : between.stages) {
      busy += stage.busy_ns;
      items += stage.count;
    }
    last = look;
    last_now = now;
  }
  uint64_t all_busy = 0, all_items = 0;
  for (const StageSnapshot& stage : last.stages) {
    all_busy += stage.busy_ns;
    all_items += stage.count;
  }
  RC_ASSERT(busy == all_busy);
  RC_ASSERT(items == all_items);
}

TEST(ProcessSnapshot, AThreadThatEndedLivesNoLonger) {
  StageRecorder recorder;
  EXPECT_EQ(recorder.LifeNs(500), 0u);
  EXPECT_FALSE(recorder.IsLive());
  recorder.Begin(100);
  EXPECT_TRUE(recorder.IsLive());
  EXPECT_EQ(recorder.LifeNs(150), 50u);
  EXPECT_EQ(recorder.LifeNs(90), 0u);
  recorder.End(300);
  EXPECT_EQ(recorder.LifeNs(1000), 200u);
  EXPECT_FALSE(recorder.IsLive());
}

TEST(ProcessSnapshot, TheLoopIsWaitingComputingOrSaving) {
  ProcessSnapshot snapshot;
  EXPECT_EQ(snapshot.InputStall(), 0);
  EXPECT_EQ(snapshot.Au(), 0);
  EXPECT_FALSE(snapshot.Mfu());
  snapshot.input_wait_ns = 1'000'000'000;
  snapshot.between_batches_ns = 3'000'000'000;
  snapshot.save_stall_ns = 1'000'000'000;
  snapshot.batches = 10;
  EXPECT_DOUBLE_EQ(snapshot.InputStall(), 0.25);
  EXPECT_DOUBLE_EQ(snapshot.SaveStall(), 0.25);
  EXPECT_DOUBLE_EQ(snapshot.Au(), 0.5);
  snapshot.model_flops_per_step = 2e12;
  EXPECT_FALSE(snapshot.Mfu());
  snapshot.peak_flops_per_second = 10e12;
  EXPECT_DOUBLE_EQ(*snapshot.Mfu(), 0.5);
  snapshot.save_stall_ns = 9'000'000'000;  // saves before the first batch
  EXPECT_DOUBLE_EQ(snapshot.Au(), 0);
  EXPECT_DOUBLE_EQ(snapshot.InputStall() + snapshot.SaveStall(), 1);
}

TEST(ProcessSnapshot, CountersAreOfTheWindowAndGaugesOfNow) {
  ProcessSnapshot first, second;
  first.AddMetric(Metric::kCacheHits, 5, "disk");
  first.AddMetric(Metric::kLoaderReadyBatches, 3);
  second.AddMetric(Metric::kCacheHits, 4, "disk");
  second.AddMetric(Metric::kCacheHits, 4, "disk");
  second.AddMetric(Metric::kCacheHits, 1, "memory");
  second.AddMetric(Metric::kLoaderReadyBatches, 2);
  const ProcessSnapshot between = second.Since(first);
  EXPECT_EQ(between.Value(Metric::kCacheHits, "disk"), 3);
  EXPECT_EQ(between.Value(Metric::kCacheHits, "memory"), 1);
  EXPECT_EQ(between.Value(Metric::kLoaderReadyBatches), 2);
  EXPECT_TRUE(between.Has(Metric::kCacheHits, "memory"));
  EXPECT_FALSE(between.Has(Metric::kCacheMisses));
}

TEST(ProcessSnapshot, ChangesAreOfTheWindow) {
  ProcessSnapshot first, second;
  first.changes = {{7, 1, "threads", 1, 2, "me", ""}};
  second.changes = {{7, 1, "threads", 1, 2, "me", ""}, {8, 2, "threads", 2, 3, "me", "why\n"}};
  const ProcessSnapshot between = second.Since(first);
  ASSERT_EQ(between.changes.size(), 1u);
  EXPECT_EQ(between.changes[0].to, 3u);
  EXPECT_EQ(ChangeText(between.changes[0]), "threads: 2 to 3, by me: why\\n");
  EXPECT_EQ(ChangeText(first.changes[0]), "threads: 1 to 2, by me");
  EXPECT_TRUE(second.Since(second).changes.empty());
  // A process that tells of none any more has none that are new.
  EXPECT_TRUE(ProcessSnapshot().Since(first).changes.empty());
}

TEST(ProcessSnapshot, TwoPoolsOfANameAreOne) {
  StageReport report{};
  report[static_cast<size_t>(Stage::kRead)].busy_ns = 10;
  report[static_cast<size_t>(Stage::kRead)].count = 1;
  ProcessSnapshot snapshot;
  snapshot.AddPool({"loader", 2, 100}, report);
  snapshot.AddPool({"loader", 3, 50}, report);
  EXPECT_EQ(snapshot.FindPool("loader")->threads, 5u);
  EXPECT_EQ(snapshot.FindPool("loader")->thread_ns, 150u);
  ASSERT_EQ(snapshot.stages.size(), 1u);
  EXPECT_EQ(snapshot.stages[0].busy_ns, 20u);
  EXPECT_EQ(snapshot.IdleNs(snapshot.stages[0]), 130u);
  // Events that came between two looks at a live thread make its life longer, never idle negative.
  snapshot.AddPool({"loader", 0, 1}, report);
  EXPECT_EQ(snapshot.FindPool("loader")->thread_ns, 160u);
  // Requests have no threads.
  snapshot.AddPool({"store", 0, 0}, report);
  EXPECT_EQ(snapshot.IdleNs(*snapshot.FindStage("store", "read")), 0u);
}

ProcessSnapshot Full() {
  ProcessSnapshot snapshot;
  snapshot.job = "a \"job\"";
  snapshot.rank = 3;
  snapshot.world_size = 8;
  snapshot.pid = 4711;
  snapshot.host = "node7";
  snapshot.dataset = "s3://bucket/photos.hr";
  snapshot.begin_unix_ns = 1'780'000'000'000'000'000;
  snapshot.end_unix_ns = 1'780'000'060'000'000'000;
  snapshot.window_ns = 60'000'000'000;
  snapshot.input_wait_ns = 10;
  snapshot.between_batches_ns = 30;
  snapshot.save_stall_ns = 5;
  snapshot.batches = 4;
  snapshot.model_flops_per_step = 1e12;
  snapshot.peak_flops_per_second = 3.5e14;
  StageReport report{};
  StageTotals& decode = report[static_cast<size_t>(Stage::kDecode)];
  decode.busy_ns = 9;
  decode.wait_ns = 4;
  decode.count = 1;
  decode.bytes = 77;
  decode.histogram.Record(9);
  decode.waits.Record(4);
  snapshot.AddPool({"loader", 4, 240}, report);
  snapshot.AddMetric(Metric::kCacheHits, 12, "disk");
  snapshot.AddMetric(Metric::kProcessCpuSeconds, 1.25);
  snapshot.sources = {{"/nvme0", 3, 300, 30}, {"/nvme1", 5, 500, 5000}};
  snapshot.settings = {{"threads", 4, 1, 8, "threads"}};
  snapshot.changes = {{1, 1'780'000'001'000'000'000, "threads", 2, 4, "autotune", "faster"},
                      {2, 1'780'000'002'000'000'000, "threads", 4, 3, "me", ""}};
  return snapshot;
}

TEST(ProcessSnapshot, JsonReadsBackAsTheSame) {
  const Json json = Full().ToJson();
  auto parsed = Json::Parse(json.Dump(2));
  ASSERT_TRUE(parsed.ok());
  auto back = ProcessSnapshot::FromJson(*parsed);
  ASSERT_TRUE(back.ok()) << back.status().ToString();
  EXPECT_EQ(back->ToJson().Dump(), json.Dump());
  EXPECT_EQ(back->job, "a \"job\"");
  EXPECT_EQ(back->stages[0].durations, Full().stages[0].durations);
  EXPECT_EQ(back->Value(Metric::kCacheHits, "disk"), 12);
  EXPECT_EQ(json.Find("loop")->Find("au")->AsDouble(), Full().Au());
  EXPECT_EQ(json.Find("stages")->items()[0].Find("idle_ns")->AsUint(), 227u);
  ASSERT_EQ(back->sources.size(), 2u);
  EXPECT_EQ(back->sources[1].name, "/nvme1");
  EXPECT_EQ(back->sources[1].busy_ns, 5000u);
  ASSERT_NE(back->FindSetting("threads"), nullptr);
  EXPECT_EQ(back->FindSetting("threads")->max, 8u);
  EXPECT_EQ(back->FindSetting("threads")->unit, "threads");
  EXPECT_EQ(back->FindSetting("other"), nullptr);
  ASSERT_EQ(back->changes.size(), 2u);
  EXPECT_EQ(back->changes[0].by, "autotune");
}

TEST(ProcessSnapshot, SourcesSinceAnEarlierOne) {
  const ProcessSnapshot before = Full();
  ProcessSnapshot after = before;
  after.sources[1] = {"/nvme1", 9, 900, 9000};
  after.sources.push_back({"/nvme2", 1, 100, 10});  // another cache was made meanwhile
  const ProcessSnapshot between = after.Since(before);
  ASSERT_EQ(between.sources.size(), 3u);
  EXPECT_EQ(between.sources[0].reads, 0u);
  EXPECT_EQ(between.sources[1].reads, 4u);
  EXPECT_EQ(between.sources[1].bytes, 400u);
  EXPECT_EQ(between.sources[1].busy_ns, 4000u);
  EXPECT_EQ(between.sources[2].reads, 1u);
}

TEST(ProcessSnapshot, AnOlderReaderSkipsWhatItDoesNotKnow) {
  Json json = Full().ToJson();
  json.Set("later", 1);
  Json metrics = *json.Find("metrics");
  metrics.Append(Json::MakeObject().Set("name", "headrace_of_tomorrow_total").Set("value", 1));
  json.Set("metrics", std::move(metrics));
  auto back = ProcessSnapshot::FromJson(json);
  ASSERT_TRUE(back.ok()) << back.status().ToString();
  EXPECT_EQ(back->metrics.size(), 2u);
}

TEST(ProcessSnapshot, BadJsonSaysWhatIsWrong) {
  auto fails = [](const Json& json, const std::string& word) {
    auto back = ProcessSnapshot::FromJson(json);
    ASSERT_FALSE(back.ok());
    EXPECT_EQ(back.status().code(), Code::kInvalidArgument);
    EXPECT_THAT(std::string(back.status().message()), HasSubstr(word));
  };
  fails(Json::MakeArray(), "object");
  fails(Json::MakeObject(), "version");
  fails(Full().ToJson().Set("version", 2), "version 2");
  fails(Full().ToJson().Set("stages", 3), "stages");
  fails(Full().ToJson().Set("pid", "x"), "pid");
  Json long_histogram = Json::MakeArray();
  for (int i = 0; i < 41; ++i) long_histogram.Append(1);
  Json stages = Json::MakeArray();
  stages.Append(Json::MakeObject().Set("pool", "p").Set("durations", std::move(long_histogram)));
  fails(Full().ToJson().Set("stages", std::move(stages)), "stages[0]: durations");
}

}  // namespace
}  // namespace headrace
