// The commands doctor, report and compare on records and data sets in memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headrace/cli/command_line.h"
#include "headrace/doctor/run_record.h"
#include "headrace/doctor/testing/pipeline_simulator.h"
#include "headrace/doctor/testing/simulated_snapshots.h"
#include "headrace/env/testing/memory_file_system.h"

namespace headrace::cli {
namespace {

using doctor::testing::PipelineConfig;
using ::testing::HasSubstr;

class DoctorCommandTest : public ::testing::Test {
 protected:
  ExitCode Run(const std::vector<std::string>& arguments) {
    printed_.clear();
    Output output([this](Bytes data) {
      printed_ += AsText(data);
      return OkStatus();
    });
    Session session;
    session.fs = &files_;
    session.out = &output;
    return RunCommandLine(arguments, &session);
  }

  void Record(const std::string& folder, const PipelineConfig& config) {
    const doctor::JobRun run = doctor::testing::Simulate(config);
    for (const doctor::RankRun& rank : run.ranks) {
      auto recorder = doctor::RunRecorder::Open(
          &files_, {"run", rank.rank, rank.node, rank.machine, rank.job, run.dataset},
          {folder, 16 << 20});
      ASSERT_TRUE(recorder.ok());
      for (const ProcessSnapshot& seen : doctor::testing::SnapshotsOf(rank))
        ASSERT_TRUE((*recorder)->Add(seen).ok());
    }
  }

  MemoryFileSystem files_;
  std::string printed_;
};

TEST_F(DoctorCommandTest, RecordWithAFault) {
  PipelineConfig slow;
  slow.duration_s = 12;
  slow.decode_s = 25e-3;
  Record("/slow", slow);
  EXPECT_EQ(Run({"doctor", "/slow"}), ExitCode::kProblemFound);
  EXPECT_THAT(printed_, HasSubstr("problem: decode-bound"));
  EXPECT_THAT(printed_, HasSubstr("disproof"));
  EXPECT_EQ(Run({"doctor", "/slow", "--json"}), ExitCode::kProblemFound);
  auto json = Json::Parse(printed_);
  ASSERT_TRUE(json.ok()) << printed_;
  EXPECT_EQ(json->Find("findings")->items().at(0).Find("check")->AsString(), "decode-bound");
  EXPECT_EQ(Run({"doctor", "/slow/rank-0.jsonl", "-q"}), ExitCode::kProblemFound);

  EXPECT_EQ(Run({"doctor", "/slow", "--without", "decode", "--json"}), ExitCode::kOk);
  json = Json::Parse(printed_);
  ASSERT_TRUE(json.ok()) << printed_;
  EXPECT_GT(json->Find("change")->AsDouble(), 0.5);
  EXPECT_EQ(Run({"doctor", "/slow", "--without", "gpu"}), ExitCode::kUsage);
  EXPECT_EQ(Run({"doctor", "--without", "decode"}), ExitCode::kUsage);
}

TEST_F(DoctorCommandTest, HealthyRecordIsCodeZero) {
  PipelineConfig well;
  well.duration_s = 12;
  Record("/well", well);
  EXPECT_EQ(Run({"doctor", "/well"}), ExitCode::kOk);
  EXPECT_THAT(printed_, HasSubstr("Nothing was found"));
}

TEST_F(DoctorCommandTest, LimitOfTheUserCountsInARecord) {
  PipelineConfig far;
  far.duration_s = 12;
  far.origin_share = 1;
  far.network_bytes_per_s = 19e6;
  far.machine.network_bytes_per_s = 1e12;  // what the link says of itself
  Record("/far", far);
  Run({"doctor", "/far"});
  EXPECT_THAT(printed_, ::testing::Not(HasSubstr("network-full")));
  EXPECT_EQ(Run({"doctor", "/far", "--network-limit", "19MB"}), ExitCode::kProblemFound);
  EXPECT_THAT(printed_, HasSubstr("network-full"));
}

// Of a data set a record has the name only.
TEST_F(DoctorCommandTest, ShardsOfARecordAreLookedUp) {
  PipelineConfig c;
  c.duration_s = 12;
  ASSERT_TRUE(files_.MakeDirectories("/many").ok());
  for (int i = 10; i < 40; ++i)
    ASSERT_TRUE(
        files_.WriteAtomically("/many/" + std::to_string(i) + ".tar", AsBytes("a shard")).ok());
  c.dataset.name = "/many/17.tar";
  Record("/one", c);
  EXPECT_EQ(Run({"doctor", "/one"}), ExitCode::kOk);
  EXPECT_THAT(printed_, HasSubstr("warning: sliver: the data set has 1 of the 30 files"));
  // A manifest in the folder of shards that are read in place.
  ASSERT_TRUE(files_.MakeDirectories("/in").ok());
  for (int i = 0; i < 20; ++i)
    ASSERT_TRUE(files_.WriteAtomically("/in/" + std::to_string(i) + ".txt", AsBytes("x")).ok());
  ASSERT_EQ(Run({"pack", "/in", "/out", "-q", "--shard-samples", "10"}), ExitCode::kOk);
  ASSERT_TRUE(files_.Remove("/out/headrace.json").ok());
  ASSERT_EQ(Run({"index", "/out", "-q"}), ExitCode::kOk);
  c.dataset.name = "/out";
  c.job.world_size = 8;
  Record("/few", c);
  EXPECT_EQ(Run({"doctor", "/few"}), ExitCode::kOk);
  EXPECT_THAT(printed_, HasSubstr("warning: few-shards: 8 ranks share 2 shards"));
}

TEST_F(DoctorCommandTest, BeforeAJob) {
  ASSERT_TRUE(files_.MakeDirectories("/in").ok());
  for (int i = 0; i < 20; ++i)
    ASSERT_TRUE(
        files_
            .WriteAtomically("/in/" + std::to_string(i) + ".txt", AsBytes(std::string(10'000, 'x')))
            .ok());
  ASSERT_EQ(Run({"pack", "/in", "/out", "-q"}), ExitCode::kOk);
  EXPECT_EQ(Run({"doctor", "/out", "--no-measure", "--world-size", "4", "--json"}), ExitCode::kOk);
  auto json = Json::Parse(printed_);
  ASSERT_TRUE(json.ok()) << printed_;
  EXPECT_EQ(json->Find("dataset")->Find("samples")->AsUint(), 20u);
  EXPECT_EQ(json->Find("findings")->items().at(0).Find("check")->AsString(), "few-shards");
  EXPECT_EQ(Run({"doctor", "/out", "-q"}), ExitCode::kOk);
  EXPECT_THAT(printed_, HasSubstr("disk "));
  EXPECT_EQ(Run({"doctor", "/nowhere"}), ExitCode::kBadData);
  EXPECT_EQ(Run({"doctor"}), ExitCode::kOk) << "the machine alone";
}

TEST_F(DoctorCommandTest, FixWantsARunningJob) {
  EXPECT_EQ(Run({"doctor", "--fix"}), ExitCode::kUsage);
  EXPECT_EQ(Run({"doctor", "--fix", "nonsense"}), ExitCode::kUsage);
  EXPECT_EQ(Run({"doctor", "--fix", "4711", "--attach", "4711"}), ExitCode::kUsage);
  EXPECT_EQ(Run({"doctor", "--fix", "4711", "--without", "decode"}), ExitCode::kUsage);
  EXPECT_EQ(Run({"doctor", "--dry-run"}), ExitCode::kUsage);
  EXPECT_EQ(Run({"doctor", "--fix", "/no/such.sock"}), ExitCode::kBadData);
}

TEST_F(DoctorCommandTest, RulesAreTold) {
  EXPECT_EQ(Run({"doctor", "--rules"}), ExitCode::kOk);
  EXPECT_THAT(printed_, HasSubstr("too-many-threads"));
  EXPECT_EQ(Run({"doctor", "--rules", "--json"}), ExitCode::kOk);
  auto json = Json::Parse(printed_);
  ASSERT_TRUE(json.ok());
  EXPECT_GE(json->items().size(), 14u);
}

TEST_F(DoctorCommandTest, ReportAndCompare) {
  PipelineConfig a, b;
  a.duration_s = b.duration_s = 12;
  a.meta_s = 20e-3;
  Record("/a", a);
  Record("/b", b);
  EXPECT_EQ(Run({"report", "/a/"}), ExitCode::kOk);
  EXPECT_EQ(printed_, "/a.html\n");
  auto page = files_.ReadWhole("/a.html", 1 << 24);
  ASSERT_TRUE(page.ok());
  EXPECT_THAT(*page, HasSubstr("small-files"));
  EXPECT_EQ(Run({"report", "/a", "-o", "-"}), ExitCode::kOk);
  EXPECT_THAT(printed_, HasSubstr("</html>"));
  EXPECT_EQ(Run({"report", "/a", "-o", "-", "--json"}), ExitCode::kUsage);
  EXPECT_EQ(Run({"report", "/none"}), ExitCode::kBadData);
  EXPECT_EQ(Run({"compare", "/a", "/b"}), ExitCode::kOk);
  EXPECT_THAT(printed_, HasSubstr("gone: small-files"));
  EXPECT_EQ(Run({"compare", "/a", "/b", "--json"}), ExitCode::kOk);
  EXPECT_TRUE(Json::Parse(printed_).ok());
}

}  // namespace
}  // namespace headrace::cli
