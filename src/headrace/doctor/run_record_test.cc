#include "headrace/doctor/run_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headrace/doctor/diagnose.h"
#include "headrace/doctor/testing/pipeline_simulator.h"
#include "headrace/doctor/testing/simulated_snapshots.h"
#include "headrace/env/testing/memory_file_system.h"

namespace headrace::doctor {
namespace {

using ::testing::HasSubstr;
using testing::PipelineConfig;
using testing::Simulate;
using testing::SnapshotsOf;

RunFacts FactsOf(const JobRun& run, const RankRun& rank) {
  return {run.name, rank.rank, rank.node, rank.machine, rank.job, run.dataset};
}

// Records what the ranks' processes tell. Returns the first failure.
Status Record(FileSystem* fs, const JobRun& run, uint64_t limit_bytes = 16 << 20) {
  for (const RankRun& rank : run.ranks) {
    HR_ASSIGN_OR_RETURN(auto recorder,
                        RunRecorder::Open(fs, FactsOf(run, rank), {"/run", limit_bytes}));
    for (const ProcessSnapshot& seen : SnapshotsOf(rank)) HR_RETURN_IF_ERROR(recorder->Add(seen));
  }
  return OkStatus();
}

std::vector<std::string> Names(const Diagnosis& diagnosis) {
  std::vector<std::string> names;
  for (const Finding& finding : diagnosis.findings) names.push_back(finding.check);
  return names;
}

PipelineConfig TwoRanks() {
  PipelineConfig c;
  c.ranks = 2;
  c.duration_s = 12;
  c.dataset = {"s3://bucket/train", "tar", 64, 1000, 120'000'000, 64};
  return c;
}

TEST(RunRecord, KeepsWhatTheDoctorNeeds) {
  PipelineConfig c = TwoRanks();
  c.python_s = 0.05;
  const JobRun run = Simulate(c);
  MemoryFileSystem files;
  ASSERT_TRUE(Record(&files, run).ok());
  auto record = ReadRunRecord(&files, "/run");
  ASSERT_TRUE(record.ok()) << record.status().ToString();
  EXPECT_TRUE(record->faults.empty());
  ASSERT_EQ(record->run.ranks.size(), 2u);
  EXPECT_EQ(record->run.dataset.name, "s3://bucket/train");
  EXPECT_EQ(record->run.ranks[1].node, "node1");
  EXPECT_EQ(record->run.ranks[1].windows.size(), 12u);
  EXPECT_NEAR(record->run.ranks[1].windows[3].start_s, 3, 1e-6);
  EXPECT_EQ(record->run.ranks[0].machine.cpus, 4);
  EXPECT_EQ(Names(Diagnose(record->run)), Names(Diagnose(run)));
  EXPECT_EQ(Names(Diagnose(record->run)), std::vector<std::string>{"python-transform"});
}

// Faults are found through snapshots, record and reading as in the windows themselves.
TEST(RunRecord, FindingsSurviveTheWay) {
  std::vector<PipelineConfig> faulty(4, TwoRanks());
  faulty[0].meta_s = 25e-3;
  faulty[1].origin_share = 1;
  faulty[1].network_bytes_per_s = 19e6;
  faulty[2].decode_s = 22e-3;
  faulty[3].save_every_s = 3;
  faulty[3].save_stall_s = 0.6;
  for (size_t i = 0; i < faulty.size(); ++i) {
    SCOPED_TRACE(i);
    const JobRun run = Simulate(faulty[i]);
    MemoryFileSystem files;
    ASSERT_TRUE(Record(&files, run).ok());
    auto record = ReadRunRecord(&files, "/run");
    ASSERT_TRUE(record.ok());
    EXPECT_EQ(Names(Diagnose(record->run)), Names(Diagnose(run)));
    EXPECT_EQ(Names(Diagnose(run)).size(), 1u);
  }
}

TEST(RunRecord, IsBounded) {
  PipelineConfig c = TwoRanks();
  c.ranks = 1;
  c.duration_s = 300;
  c.compute_s = 1;
  MemoryFileSystem files;
  constexpr uint64_t kLimit = 64 << 10;
  ASSERT_TRUE(Record(&files, Simulate(c), kLimit).ok());
  constexpr uint64_t kLine = 16 << 10;  // the last one may pass the limit
  EXPECT_LT(files.Stat("/run/rank-0.jsonl")->size_bytes, kLimit + kLine);
  EXPECT_LT(files.Stat("/run/rank-0.1.jsonl")->size_bytes, kLimit + kLine);
  auto record = ReadRunRecord(&files, "/run");
  ASSERT_TRUE(record.ok());
  const auto& windows = record->run.ranks[0].windows;
  ASSERT_GT(windows.size(), 10u);
  EXPECT_LT(windows.size(), 300u);
  // What is left is the end, in order, without a gap.
  for (size_t i = 1; i < windows.size(); ++i)
    EXPECT_NEAR(windows[i].start_s - windows[i - 1].start_s, 1, 1e-3);
}

TEST(RunRecord, LineCutByAKillIsLeftOutAndTheRecordGoesOn) {
  PipelineConfig c = TwoRanks();
  c.ranks = 1;
  const JobRun run = Simulate(c);
  MemoryFileSystem files;
  ASSERT_TRUE(Record(&files, run).ok());
  auto text = files.ReadWhole("/run/rank-0.jsonl", 1 << 30);
  ASSERT_TRUE(text.ok());
  ASSERT_TRUE(
      files.WriteAtomically("/run/rank-0.jsonl", AsBytes(text->substr(0, text->size() - 40))).ok());
  auto recorder = RunRecorder::Open(&files, FactsOf(run, run.ranks[0]), {"/run", 16 << 20});
  ASSERT_TRUE(recorder.ok());
  ASSERT_TRUE((*recorder)->AddLog("warning", "resumed\nhere", 1'700'000'020'000'000'000).ok());
  auto record = ReadRunRecord(&files, "/run");
  ASSERT_TRUE(record.ok());
  EXPECT_EQ(record->run.ranks[0].windows.size(), 11u);
  ASSERT_EQ(record->faults.size(), 1u);
  EXPECT_THAT(record->faults[0], HasSubstr("rank-0.jsonl, line 14"));
  ASSERT_EQ(record->log.size(), 1u);
  EXPECT_EQ(record->log[0].text, "resumed\\nhere");
}

TEST(RunRecord, ChangedSettingsAreEvents) {
  PipelineConfig c = TwoRanks();
  c.ranks = 1;
  const JobRun run = Simulate(c);
  std::vector<ProcessSnapshot> seen = SnapshotsOf(run.ranks[0]);
  for (size_t i = 3; i < seen.size(); ++i)  // a process goes on telling what was changed
    seen[i].changes = {{1, 1'700'000'003'000'000'000, "threads", 2, 4, "headrace doctor", "why"}};
  MemoryFileSystem files;
  auto recorder = RunRecorder::Open(&files, FactsOf(run, run.ranks[0]), {"/run", 16 << 20});
  ASSERT_TRUE(recorder.ok());
  for (const ProcessSnapshot& one : seen) ASSERT_TRUE((*recorder)->Add(one).ok());
  auto record = ReadRunRecord(&files, "/run");
  ASSERT_TRUE(record.ok());
  ASSERT_EQ(record->log.size(), 1u);
  EXPECT_EQ(record->log[0].level, "change");
  EXPECT_EQ(record->log[0].text, "threads: 2 to 4, by headrace doctor: why");
  EXPECT_EQ(record->log[0].unix_ns, 1'700'000'003'000'000'000);
}

TEST(RunRecord, EveryCutReadsOrSaysWhy) {
  PipelineConfig c = TwoRanks();
  c.ranks = 1;
  c.duration_s = 4;
  MemoryFileSystem files;
  ASSERT_TRUE(Record(&files, Simulate(c)).ok());
  auto text = files.ReadWhole("/run/rank-0.jsonl", 1 << 30);
  ASSERT_TRUE(text.ok());
  size_t most = 0;
  for (size_t cut = 0; cut <= text->size(); cut += 7) {
    RunRecord record;
    ASSERT_TRUE(ReadRecordLines(std::string_view(*text).substr(0, cut), "cut", &record).ok());
    EXPECT_LE(record.faults.size(), 1u);
    const size_t windows = record.run.ranks.empty() ? 0 : record.run.ranks[0].windows.size();
    EXPECT_GE(windows, most);
    most = windows;
  }
  EXPECT_GE(most, 3u);
}

TEST(RunRecord, FaultyInputIsNamed) {
  MemoryFileSystem files;
  EXPECT_EQ(ReadRunRecord(&files, "/none").status().code(), Code::kNotFound);
  ASSERT_TRUE(files.MakeDirectories("/empty").ok());
  EXPECT_EQ(ReadRunRecord(&files, "/empty").status().code(), Code::kNotFound);
  EXPECT_FALSE(IsRunRecord(&files, "/empty"));
  auto read = [&](std::string_view text) {
    EXPECT_TRUE(files.WriteAtomically("/empty/rank-0.jsonl", AsBytes(text)).ok());
    return ReadRunRecord(&files, "/empty").status();
  };
  EXPECT_EQ(read("").code(), Code::kInvalidArgument);
  EXPECT_EQ(read("{]\n").code(), Code::kInvalidArgument);
  EXPECT_THAT(std::string(read(R"({"type":"run","version":99})").message()), HasSubstr("newer"));
  EXPECT_THAT(std::string(read(R"({"type":"window","snapshot":{}})").message()),
              HasSubstr("whose run"));
  EXPECT_THAT(std::string(read(R"({"type":"run","version":1,"machine":{"cpus":"two"}})").message()),
              HasSubstr("machine: cpus"));
  EXPECT_TRUE(IsRunRecord(&files, "/empty"));
  EXPECT_TRUE(IsRunRecord(&files, "/empty/rank-0.jsonl"));
  // What a later version adds is skipped.
  EXPECT_TRUE(
      read("{\"type\":\"run\",\"version\":1,\"rank\":3,\"new\":1}\n{\"type\":\"new\"}").ok());
}

TEST(RunRecord, FailureToWriteIsToldAndTheNextWindowIsTried) {
  PipelineConfig c = TwoRanks();
  c.ranks = 1;
  const JobRun run = Simulate(c);
  MemoryFileSystem memory;
  auto recorder = RunRecorder::Open(&memory, FactsOf(run, run.ranks[0]), {"/run", 16 << 20});
  ASSERT_TRUE(recorder.ok());
  const auto seen = SnapshotsOf(run.ranks[0]);
  ASSERT_TRUE((*recorder)->Add(seen[0]).ok());
  ASSERT_TRUE((*recorder)->Add(seen[1]).ok());
  memory.PowerCut(Survival::kEverything);
  EXPECT_FALSE((*recorder)->Add(seen[2]).ok());
  memory.PowerOn();
  EXPECT_TRUE((*recorder)->Add(seen[3]).ok());
  auto record = ReadRunRecord(&memory, "/run");
  ASSERT_TRUE(record.ok());
  EXPECT_EQ(record->run.ranks[0].windows.size(), 2u);
}

// A record of version 1, as it must be read for ever.
TEST(RunRecord, GoldenRecord) {
  auto record = ReadRunRecord(PosixFileSystem(), HEADRACE_GOLDEN_DIR);
  ASSERT_TRUE(record.ok()) << record.status().ToString();
  EXPECT_TRUE(record->faults.empty());
  ASSERT_EQ(record->run.ranks.size(), 1u);
  EXPECT_EQ(record->run.dataset.num_shards, 64u);
  ASSERT_EQ(record->run.ranks[0].windows.size(), 12u);
  const Window& window = record->run.ranks[0].windows[5];
  EXPECT_EQ(window.samples, 320u);
  EXPECT_EQ(window.threads, 4u);
  EXPECT_DOUBLE_EQ(window.input_wait_s, 0.3);
  EXPECT_DOUBLE_EQ(window.step_s, 0.7);
  EXPECT_DOUBLE_EQ(window.busy_s(Stage::kDecode), 3.84);
  EXPECT_NEAR(window.start_s, 5, 1e-6);
  ASSERT_EQ(record->log.size(), 1u);
  EXPECT_EQ(Names(Diagnose(record->run)), std::vector<std::string>{"decode-bound"});
}

TEST(RunRecord, LimitHasALeast) {
  MemoryFileSystem files;
  EXPECT_EQ(RunRecorder::Open(&files, {}, {"/run", 1000}).status().code(), Code::kInvalidArgument);
}

TEST(RunRecord, FactsComeBack) {
  RunFacts facts;
  facts.name = "run 7";
  facts.rank = 12;
  facts.node = "n3";
  facts.machine = {1.5, 1000, 1.25e9, 2e9, "tsc", 2000, 3600};
  facts.job.world_size = 16;
  facts.job.node_ranks = 8;
  facts.job.has_cache = true;
  facts.job.cache_limit_bytes = 77;
  facts.job.epoch_bytes = 99;
  facts.dataset = {"d", "tar", 3, 4, 5, 6};
  auto json = Json::Parse(RunFactsJson(facts).Dump());
  ASSERT_TRUE(json.ok());
  auto back = ReadRunFacts(*json);
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(RunFactsJson(*back).Dump(), RunFactsJson(facts).Dump());
  EXPECT_EQ(back->machine.clock_source, "tsc");
  EXPECT_EQ(back->job.node_ranks, 8u);
}

}  // namespace
}  // namespace headrace::doctor
