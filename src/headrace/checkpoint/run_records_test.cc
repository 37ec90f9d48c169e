#include "headrace/checkpoint/run_records.h"

#include <gtest/gtest.h>

#include "headrace/env/testing/memory_file_system.h"

namespace headrace::checkpoint {
namespace {

class RunRecordsTest : public ::testing::Test {
 protected:
  void Record(uint64_t epoch) {
    const std::string folder = RunRecordFolder("/ckpt", epoch);
    ASSERT_TRUE(fs_.MakeDirectories(folder).ok());
    ASSERT_TRUE(fs_.WriteAtomically(JoinPath(folder, "rank-0.jsonl"), AsBytes("{}")).ok());
  }
  uint64_t Prune(const std::set<uint64_t>& epochs, uint64_t running) {
    auto removed = PruneRunRecords(&fs_, "/ckpt", epochs, running);
    EXPECT_TRUE(removed.ok()) << removed.status().ToString();
    return removed.ok() ? *removed : 0;
  }
  std::set<uint64_t> Left() {
    std::set<uint64_t> left;
    for (uint64_t epoch = 0; epoch < 20; ++epoch)
      if (fs_.Exists(RunRecordFolder("/ckpt", epoch))) left.insert(epoch);
    return left;
  }

  MemoryFileSystem fs_;
};

using Epochs = std::set<uint64_t>;

TEST_F(RunRecordsTest, LieInAFolderOfTheStore) {
  EXPECT_EQ(RunRecordFolder("/ckpt", 7), "/ckpt/records/000007");
  EXPECT_EQ(RunRecordFolder("/ckpt", 12345678), "/ckpt/records/12345678");
  EXPECT_EQ(Prune({1, 2}, 3), 0u);  // there are none
}

TEST_F(RunRecordsTest, GoWithTheLastCheckpointOfTheirRun) {
  for (uint64_t epoch : {1, 2, 3}) Record(epoch);
  EXPECT_EQ(Prune({1, 2, 3}, 3), 0u);
  EXPECT_EQ(Prune({2, 3}, 3), 1u);
  EXPECT_EQ(Left(), (Epochs{2, 3}));
  EXPECT_EQ(Prune({2}, 4), 1u);  // an older run's may outlive a later one's
  EXPECT_EQ(Left(), (Epochs{2}));
}

TEST_F(RunRecordsTest, ThatOfWhoWritesNowStays) {
  for (uint64_t epoch : {4, 5, 6}) Record(epoch);
  EXPECT_EQ(Prune({4, 5, 6}, 6), 0u);
  EXPECT_EQ(Prune({}, 5), 1u);  // 6 has taken over meanwhile
  EXPECT_EQ(Left(), (Epochs{5, 6}));
}

TEST_F(RunRecordsTest, OfRunsWithoutACheckpointTheNewestStays) {
  for (uint64_t epoch : {1, 2, 3, 4}) Record(epoch);
  EXPECT_EQ(Prune({1}, 4), 1u);
  EXPECT_EQ(Left(), (Epochs{1, 3, 4}));
  EXPECT_EQ(Prune({1, 4}, 5), 0u);
  EXPECT_EQ(Prune({5}, 5), 2u);
  EXPECT_EQ(Left(), (Epochs{3}));
}

TEST_F(RunRecordsTest, OtherThingsInTheFolderStay) {
  for (const char* name : {"7", "0000007", "000007.html", "notes", "-00007"})
    ASSERT_TRUE(fs_.MakeDirectories(JoinPath("/ckpt/records", name)).ok());
  for (uint64_t epoch : {1, 2}) {
    Record(epoch);
    ASSERT_TRUE(
        fs_.WriteAtomically(JoinPath(RunRecordFolder("/ckpt", epoch), "mine.txt"), {}).ok());
  }
  EXPECT_EQ(Prune({}, 20), 0u);
  EXPECT_EQ(Left(), (Epochs{1, 2}));
  EXPECT_TRUE(fs_.Exists("/ckpt/records/7"));
  EXPECT_TRUE(fs_.Exists("/ckpt/records/0000007"));
}

}  // namespace
}  // namespace headrace::checkpoint
