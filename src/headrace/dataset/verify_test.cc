// Verification of a packed data set with damage in each of its parts.
#include "headrace/dataset/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headrace/dataset/pack.h"
#include "headrace/env/testing/faulty_file_system.h"
#include "headrace/env/testing/memory_file_system.h"

namespace headrace::dataset {
namespace {

using testing::HasSubstr;

class VerifyTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(memory_.MakeDirectories("/in/a").ok());
    for (int i = 0; i < 40; ++i) {
      std::string text(static_cast<size_t>(i * 100), 'x');
      ASSERT_TRUE(
          memory_.WriteAtomically("/in/a/" + std::to_string(i) + ".txt", AsBytes(text)).ok());
    }
    PackOptions options;
    options.shard_samples = 20;
    ASSERT_TRUE(Pack(&memory_, {"/in"}, "/set", options, Context()).ok());
  }

  Result<VerifyReport> Run(const VerifyOptions& options = {}, const Context& ctx = {}) {
    auto dataset = Dataset::Open(&files_, "/set", {});
    if (!dataset.ok()) return std::move(dataset).status();
    return Verify(*dataset, options, ctx);
  }

  // The offset of field "txt" of the sample with this number, and its key.
  std::pair<uint64_t, std::string> PlaceOf(uint64_t sample) {
    auto dataset = Dataset::Open(&memory_, "/set", {});
    auto reader = SampleReader::Create(*dataset, {});
    auto view = reader->Locate(sample);
    FieldId txt = *(*dataset)->FindField("txt");
    for (const FieldEntry& entry : view->entries)
      if (entry.field == txt) return {entry.offset, std::string(view->key)};
    return {};
  }

  MemoryFileSystem memory_;
  FaultyFileSystem files_{&memory_};
};

TEST_F(VerifyTest, WholeDatasetMatches) {
  for (uint32_t threads : {1u, 4u}) {
    VerifyProgress progress;
    VerifyOptions options;
    options.threads = threads;
    options.progress = &progress;
    auto report = Run(options);
    ASSERT_TRUE(report.ok()) << report.status().ToString();
    EXPECT_EQ(report->num_faults, 0u);
    ASSERT_EQ(report->shards.size(), 2u);
    EXPECT_EQ(report->shards[0].checked + report->shards[1].checked, 80u);
    EXPECT_EQ(progress.samples, 40u);
    EXPECT_EQ(progress.total_samples, 40u);
  }
}

TEST_F(VerifyTest, DamagedFieldIsNamedAndTheOthersAreChecked) {
  auto [offset, key] = PlaceOf(31);
  files_.FlipBit("shard-000001.tar", offset + 7);
  auto report = Run();
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  ASSERT_EQ(report->faults.size(), 1u);
  const Location& place = report->faults[0].location();
  EXPECT_EQ(report->faults[0].code(), Code::kDataLoss);
  EXPECT_EQ(place.key, key);
  EXPECT_EQ(place.field, "txt");
  EXPECT_EQ(*place.offset, offset);
  EXPECT_THAT(place.file, HasSubstr("shard-000001.tar"));
  EXPECT_EQ(report->shards[0].damaged, 0u);
  EXPECT_EQ(report->shards[1].checked, 39u) << "the sample's other field is right";
}

// 200 samples in one shard are several pieces of work.
TEST_F(VerifyTest, OneShardIsSharedOutAmongThreadsAndTheReportIsTheSame) {
  for (int i = 40; i < 200; ++i)
    ASSERT_TRUE(memory_.WriteAtomically(fmt::format("/in/a/{}.txt", i), AsBytes("text")).ok());
  ASSERT_TRUE(memory_.RemoveTree("/set").ok());
  ASSERT_TRUE(Pack(&memory_, {"/in"}, "/set", {}, Context()).ok());
  VerifyReport clean = Run({.threads = 3}).value();
  EXPECT_EQ(clean.num_faults, 0u);
  EXPECT_EQ(clean.shards[0].checked, 400u);
  files_.FlipBit("shard-000000.tar", PlaceOf(31).first - 1);  // a header, which no field covers
  EXPECT_EQ(Run({.threads = 3})->faults.size(), 1u);
  std::vector<std::string> keys;
  for (uint64_t sample : {3, 64, 65, 190, 199}) {
    auto [offset, key] = PlaceOf(sample);
    files_.FlipBit("shard-000000.tar", offset);
    keys.push_back(key);
  }
  for (uint32_t threads : {1u, 2u, 7u}) {
    auto report = Run({.threads = threads});
    ASSERT_TRUE(report.ok()) << report.status().ToString();
    ASSERT_EQ(report->shards.size(), 1u);
    EXPECT_EQ(report->shards[0].samples, 200u);
    EXPECT_EQ(report->shards[0].checked, 395u);
    ASSERT_EQ(report->faults.size(), keys.size()) << "the header is not named beside them";
    for (size_t i = 0; i < keys.size(); ++i)
      EXPECT_EQ(report->faults[i].location().key, keys[i]) << threads;
  }
}

TEST_F(VerifyTest, AShardThatCannotBeOpenedIsOneFault) {
  for (int i = 40; i < 200; ++i)
    ASSERT_TRUE(memory_.WriteAtomically(fmt::format("/in/a/{}.txt", i), AsBytes("text")).ok());
  ASSERT_TRUE(memory_.RemoveTree("/set").ok());
  ASSERT_TRUE(Pack(&memory_, {"/in"}, "/set", {}, Context()).ok());
  files_.FlipBit("shard-000000.tar", 1);  // in the bytes that tie it to its index
  auto report = Run({.threads = 3});
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  EXPECT_EQ(report->num_faults, 1u);
  EXPECT_EQ(report->faults.size(), 1u);
}

TEST_F(VerifyTest, DamagedHeaderBetweenFieldsIsFound) {
  // The last byte of padding before the data is in the header block: part of no field.
  files_.FlipBit("shard-000001.tar", PlaceOf(31).first - 1);
  auto report = Run();
  ASSERT_TRUE(report.ok());
  ASSERT_EQ(report->faults.size(), 1u);
  EXPECT_THAT(report->faults[0].ToString(), HasSubstr("stands between them is damaged"));
}

TEST_F(VerifyTest, DamagedIndexIsFoundAndOtherShardsAreChecked) {
  files_.FlipBit("shard-000000.tar.hridx", 4300);
  auto report = Run();
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  EXPECT_GE(report->shards[0].damaged, 1u);
  EXPECT_EQ(report->shards[1].damaged, 0u);
  EXPECT_EQ(report->shards[1].checked, 40u);
}

TEST_F(VerifyTest, FaultOfTheMachineEndsTheRun) {
  std::atomic<bool> cancelled{true};
  Context ctx;
  ctx.cancelled = &cancelled;
  EXPECT_EQ(Run({}, ctx).status().code(), Code::kCancelled);
  // For good: opening a shard is tried once more when descriptors are short.
  files_.FailNth(FileOperation::kRead, 5, Error(Code::kResourceExhausted, "no descriptor"), 1000);
  EXPECT_EQ(Run({.threads = 1}).status().code(), Code::kResourceExhausted);
}

TEST_F(VerifyTest, ReadFaultIsDamage) {
  files_.FailNth(FileOperation::kRead, 12, Error(Code::kIoError, "bad sector"));
  auto report = Run({.threads = 1});
  ASSERT_TRUE(report.ok());
  // Read again field by field, the sample is whole: the fault was a passing one.
  EXPECT_EQ(report->num_faults, 0u);
  files_.FailNth(FileOperation::kRead, 12, Error(Code::kIoError, "bad sector"), 2);
  report = Run({.threads = 1});
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->num_faults, 1u);
  EXPECT_THAT(report->faults[0].ToString(), HasSubstr("bad sector"));
}

TEST_F(VerifyTest, MissingChecksumsAreLearnedOnlyWhenAsked) {
  std::string tar = *memory_.ReadWhole("/set/shard-000000.tar", 1 << 20);
  ASSERT_TRUE(memory_.RemoveTree("/set").ok());
  ASSERT_TRUE(memory_.MakeDirectories("/set").ok());
  ASSERT_TRUE(memory_.WriteAtomically("/set/x.tar", AsBytes(tar)).ok());
  auto report = Run();
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  EXPECT_EQ(report->shards[0].unverified, 40u);
  VerifyOptions learn;
  learn.learn = true;
  report = Run(learn);
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->shards[0].learned, 40u);
  EXPECT_EQ(report->shards[0].unverified, 0u);
}

}  // namespace
}  // namespace headrace::dataset
