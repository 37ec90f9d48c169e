#include "headrace/agent/run_recording.h"

#include <gtest/gtest.h>

#include "headrace/env/testing/memory_file_system.h"

namespace headrace::agent {
namespace {

using std::chrono::milliseconds;

// A watch with one part that has done more at each look.
class RunRecordingTest : public testing::Test {
 protected:
  RunRecordingTest() {
    part_ = watch_.Add([this](ProcessSnapshot* snapshot) {
      MutexLock lock(&mu_);
      const uint64_t looks = ++looks_;
      looked_.NotifyAll();
      snapshot->rank = 2;
      snapshot->world_size = 4;
      snapshot->dataset = "/data/train";
      snapshot->batches += looks;
      snapshot->AddMetric(Metric::kLoaderSamples, static_cast<double>(32 * looks));
    });
  }
  void WaitForLooks(uint64_t count) {
    MutexLock lock(&mu_);
    while (looks_ < count) looked_.Wait(&mu_);
  }
  RunRecording::Options Options(std::chrono::nanoseconds interval) {
    return {"/run", interval, 16 << 20};
  }

  MemoryFileSystem files_;
  ProcessWatch watch_;
  Mutex mu_;
  CondVar looked_;
  uint64_t looks_ HR_GUARDED_BY(mu_) = 0;
  std::unique_ptr<ProcessWatch::Part> part_;  // destroyed first
};

TEST_F(RunRecordingTest, RecordsEachLookAndTheLast) {
  {
    auto recording = RunRecording::Start(&files_, &watch_, Options(std::chrono::hours(1)));
    ASSERT_TRUE(recording.ok()) << recording.status().ToString();
    EXPECT_TRUE((*recording)->Flush().ok());
    EXPECT_TRUE((*recording)->AddLog("warning", "slow").ok());
    EXPECT_EQ((*recording)->num_failures(), 0u);
  }
  auto record = doctor::ReadRunRecord(&files_, "/run");
  ASSERT_TRUE(record.ok()) << record.status().ToString();
  ASSERT_EQ(record->run.ranks.size(), 1u);
  const doctor::RankRun& rank = record->run.ranks[0];
  EXPECT_EQ(rank.rank, 2u);
  EXPECT_EQ(rank.job.world_size, 4u);
  EXPECT_EQ(record->run.dataset.name, "/data/train");
  ASSERT_EQ(rank.windows.size(), 2u);
  for (const doctor::Window& window : rank.windows) {
    EXPECT_EQ(window.batches, 1u);
    EXPECT_EQ(window.samples, 32u);
  }
  ASSERT_EQ(record->log.size(), 1u);
}

TEST_F(RunRecordingTest, LooksByItself) {
  auto recording = RunRecording::Start(&files_, &watch_, Options(milliseconds(100)));
  ASSERT_TRUE(recording.ok());
  WaitForLooks(4);
  recording->reset();
  auto record = doctor::ReadRunRecord(&files_, "/run");
  ASSERT_TRUE(record.ok());
  EXPECT_GE(record->run.ranks[0].windows.size(), 3u);
}

TEST_F(RunRecordingTest, FullDiskIsCountedAndNoFault) {
  auto recording = RunRecording::Start(&files_, &watch_, Options(std::chrono::hours(1)));
  ASSERT_TRUE(recording.ok());
  files_.PowerCut(Survival::kEverything);
  EXPECT_FALSE((*recording)->Flush().ok());
  EXPECT_EQ((*recording)->num_failures(), 1u);
  files_.PowerOn();
  EXPECT_TRUE((*recording)->Flush().ok());
}

TEST_F(RunRecordingTest, IntervalHasALeast) {
  EXPECT_EQ(RunRecording::Start(&files_, &watch_, Options(milliseconds(1))).status().code(),
            Code::kInvalidArgument);
}

}  // namespace
}  // namespace headrace::agent
