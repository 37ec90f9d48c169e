#include "headrace/doctor/snapshot_window.h"

#include <gtest/gtest.h>

#include "headrace/base/metrics.h"
#include "headrace/doctor/testing/pipeline_simulator.h"
#include "headrace/doctor/testing/simulated_snapshots.h"

namespace headrace::doctor {
namespace {

using testing::PipelineConfig;
using testing::Simulate;
using testing::SnapshotsOf;

// The windows of a rank as they come back from its snapshots.
std::vector<Window> ThereAndBack(const RankRun& rank) {
  std::vector<Window> windows;
  const std::vector<ProcessSnapshot> all = SnapshotsOf(rank);
  for (size_t i = 1; i < all.size(); ++i)
    windows.push_back(WindowOf(all[i].Since(all[i - 1]), rank.windows[i - 1].start_s));
  return windows;
}

TEST(SnapshotWindow, TimesAndCountsComeThrough) {
  PipelineConfig c;
  c.python_s = 0.02;
  c.save_every_s = 5;
  c.save_stall_s = 0.5;
  const JobRun run = Simulate(c);
  const Window before = SteadyTotal(run.ranks[0].windows);
  const Window after = SteadyTotal(ThereAndBack(run.ranks[0]));
  EXPECT_EQ(after.samples, before.samples);
  EXPECT_EQ(after.batches, before.batches);
  EXPECT_EQ(after.threads, before.threads);
  EXPECT_EQ(after.device_bytes, before.device_bytes);
  EXPECT_NEAR(after.seconds, before.seconds, 1e-3);
  EXPECT_NEAR(after.input_wait_s, before.input_wait_s, 1e-3);
  EXPECT_NEAR(after.step_s, before.step_s, 1e-3);
  EXPECT_NEAR(after.python_s, before.python_s, 1e-3);
  EXPECT_NEAR(after.save_stall_s, before.save_stall_s, 1e-3);
  EXPECT_EQ(after.stage(Stage::kDecode).busy_ns, before.stage(Stage::kDecode).busy_ns);
  EXPECT_EQ(after.stage(Stage::kRead).count, before.stage(Stage::kRead).count);
  EXPECT_EQ(after.stage(Stage::kFetch).count, 0u);
}

TEST(SnapshotWindow, SlowestReadsAreTheMisses) {
  PipelineConfig c;
  c.job.has_cache = true;
  c.origin_share = 0.3;
  c.network_latency_s = 20e-3;
  const JobRun run = Simulate(c);
  const Window before = SteadyTotal(run.ranks[0].windows);
  const Window after = SteadyTotal(ThereAndBack(run.ranks[0]));
  EXPECT_EQ(after.origin_bytes, before.origin_bytes);
  EXPECT_NEAR(after.busy_s(Stage::kFetch) / before.busy_s(Stage::kFetch), 1, 0.15);
  EXPECT_NEAR(after.busy_s(Stage::kFetch) + after.busy_s(Stage::kCache),
              before.busy_s(Stage::kFetch) + before.busy_s(Stage::kCache), 1e-3);
  EXPECT_EQ(after.stage(Stage::kRead).count, 0u);
}

TEST(SnapshotWindow, WithoutACacheEverythingFromAStoreIsFetched) {
  PipelineConfig c;
  c.origin_share = 1;
  const Window after = SteadyTotal(ThereAndBack(Simulate(c).ranks[0]));
  // But for reads that are counted in the window after the one in which their bytes came.
  EXPECT_GT(after.stage(Stage::kFetch).count, 20 * after.stage(Stage::kRead).count);
}

TEST(SnapshotWindow, BackOffIsNoMoreThanTheFetchesTook) {
  PipelineConfig c;
  c.origin_share = 1;
  c.refused_share = 0.2;
  c.back_off_s = 30e-3;
  JobRun run = Simulate(c);
  const Window before = SteadyTotal(run.ranks[0].windows);
  const Window after = SteadyTotal(ThereAndBack(run.ranks[0]));
  EXPECT_GT(before.back_off_s, 0);
  EXPECT_NEAR(after.back_off_s / before.back_off_s, 1, 0.1);
  // Requests that no worker waits for.
  for (Window& window : run.ranks[0].windows) window.back_off_s = 1000;
  const Window most = SteadyTotal(ThereAndBack(run.ranks[0]));
  EXPECT_NEAR(most.back_off_s, most.busy_s(Stage::kFetch), 1e-3);
}

TEST(SnapshotWindow, EachDirectoryOfACacheComesThrough) {
  JobRun run = Simulate(PipelineConfig());
  for (Window& window : run.ranks[0].windows)
    window.sources = {{"/nvme0", 10, 1000, 0.25}, {"/nvme1", 20, 2000, 0.5}};
  const Window before = SteadyTotal(run.ranks[0].windows);
  const Window after = SteadyTotal(ThereAndBack(run.ranks[0]));
  ASSERT_EQ(after.sources.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(after.sources[i].name, before.sources[i].name);
    EXPECT_EQ(after.sources[i].reads, before.sources[i].reads);
    EXPECT_EQ(after.sources[i].bytes, before.sources[i].bytes);
    EXPECT_NEAR(after.sources[i].seconds, before.sources[i].seconds, 1e-6);
  }
}

TEST(SnapshotWindow, WaitingForProcessorsIsWhatStagesTakeLonger) {
  PipelineConfig c;
  c.compute_s = 1e-3;
  c.threads = 16;
  const JobRun run = Simulate(c);
  const Window before = SteadyTotal(run.ranks[0].windows);
  const Window after = SteadyTotal(ThereAndBack(run.ranks[0]));
  EXPECT_NEAR(after.run_delay_s / before.run_delay_s, 1, 0.1);
}

TEST(SnapshotWindow, EmptySnapshotIsAnEmptyWindow) {
  const Window window = WindowOf({}, 3);
  EXPECT_EQ(window.start_s, 3);
  EXPECT_EQ(window.seconds, 0);
  EXPECT_EQ(window.samples, 0u);
  EXPECT_FALSE(window.knows_device);
}

TEST(SnapshotWindow, CacheIsHeldAgainstWhatItsNodeReads) {
  ProcessSnapshot snapshot;
  snapshot.world_size = 4;
  snapshot.AddMetric(Metric::kCacheMisses, 5);
  snapshot.AddMetric(Metric::kCacheEpochBytes, 1000);
  JobFacts job;
  AddJobFacts(snapshot, &job);
  EXPECT_TRUE(job.has_cache);
  EXPECT_EQ(job.world_size, 4u);
  EXPECT_EQ(job.cache_limit_bytes, 0u) << "it is not known";
  EXPECT_EQ(job.epoch_bytes, 1000u);
  // Two ranks share it.
  snapshot.AddMetric(Metric::kCacheLimitBytes, 1600);
  snapshot.AddMetric(Metric::kCacheShareBytes, 800);
  AddJobFacts(snapshot, &job);
  EXPECT_EQ(job.cache_limit_bytes, 1600u);
  EXPECT_EQ(job.epoch_bytes, 2000u);
}

TEST(SnapshotWindow, RefusalsAreNotAllRetries) {
  ProcessSnapshot snapshot;
  snapshot.AddMetric(Metric::kStoreRequests, 100, "get");
  snapshot.AddMetric(Metric::kStoreRetries, 30);
  snapshot.AddMetric(Metric::kStoreThrottled, 20);
  const Window window = WindowOf(snapshot, 0);
  EXPECT_EQ(window.requests, 100u);
  EXPECT_EQ(window.refused_requests, 20u);
}

TEST(SnapshotWindow, ImagesAreAddedUp) {
  ProcessSnapshot snapshot;
  snapshot.AddMetric(Metric::kLoaderDecodes, 7, "seek_points");
  snapshot.AddMetric(Metric::kLoaderDecodes, 2, "progressive");
  JobFacts job;
  AddJobFacts(snapshot, &job);
  AddJobFacts(snapshot, &job);
  EXPECT_EQ(job.images, 18u);
  EXPECT_EQ(job.images_without_seek_points, 4u);
  EXPECT_EQ(job.progressive_images, 4u);
}

}  // namespace
}  // namespace headrace::doctor
