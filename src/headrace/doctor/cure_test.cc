#include "headrace/doctor/cure.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headrace/doctor/diagnose.h"
#include "headrace/doctor/testing/pipeline_simulator.h"

namespace headrace::doctor {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::PipelineConfig;
using testing::Simulate;

Finding Found(const std::string& check) {
  Finding finding;
  finding.check = check;
  finding.gain = 0.5;
  return finding;
}

Finding Found(const std::string& check, const std::string& setting, uint64_t value) {
  Finding finding = Found(check);
  AdviseSetting(setting, value, &finding);
  return finding;
}

TEST(PlanCures, TakesSettingsInsideTheirBudgets) {
  const std::vector<SettingValue> settings = {{"threads", 2, 1, 8},
                                              {"prefetch_requests", 32, 1, 32}};
  CurePlan plan = PlanCures({Found("decode-bound", "threads", 6)}, settings);
  ASSERT_EQ(plan.cures.size(), 1u);
  EXPECT_EQ(plan.cures[0].from, 2u);
  EXPECT_EQ(plan.cures[0].to, 6u);
  EXPECT_EQ(plan.cures[0].note, "");
  EXPECT_FALSE(plan.cures[0].gain_at_most);
  EXPECT_TRUE(plan.left.empty());
  // As far as the budget goes, and says so.
  plan = PlanCures({Found("decode-bound", "threads", 60)}, settings);
  ASSERT_EQ(plan.cures.size(), 1u);
  EXPECT_EQ(plan.cures[0].to, 8u);
  EXPECT_TRUE(plan.cures[0].gain_at_most);
  EXPECT_THAT(plan.cures[0].note, HasSubstr("1 to 8"));
  plan = PlanCures({Found("throttled", "prefetch_requests", 0)}, settings);
  ASSERT_EQ(plan.cures.size(), 1u);
  EXPECT_EQ(plan.cures[0].to, 1u);
}

TEST(PlanCures, LeavesTheRestAndSaysWhy) {
  const std::vector<SettingValue> settings = {{"threads", 8, 1, 8}};
  const CurePlan plan =
      PlanCures({Found("few-shards"), Found("decode-bound", "threads", 16),
                 Found("throttled", "prefetch_requests", 4),
                 Found("too-many-threads", "threads", 4), Found("other", "threads", 2)},
                settings);
  ASSERT_EQ(plan.cures.size(), 1u);
  EXPECT_EQ(plan.cures[0].check, "too-many-threads");
  EXPECT_THAT(plan.left,
              ElementsAre(HasSubstr("few-shards: the cure is no setting"),
                          HasSubstr("decode-bound: threads is 8 already"),
                          HasSubstr("throttled: the process has no setting prefetch_requests"),
                          HasSubstr("other: threads is changed for another finding")));
  EXPECT_THAT(PlanCures({Found("a", "threads", 1)}, {}).left, ElementsAre(HasSubstr("none")));
}

// A job with too few threads, as it is found and cured.
PipelineConfig TooFewThreads() {
  PipelineConfig c;
  c.threads = 2;
  c.cpus = 8;
  c.decode_s = 20e-3;
  return c;
}

TEST(Cures, MeasuredGainIsThePredictedOne) {
  PipelineConfig c = TooFewThreads();
  const JobRun before = Simulate(c);
  const CurePlan plan = PlanCures(Diagnose(before).findings, {{"threads", 2, 1, 8}});
  ASSERT_EQ(plan.cures.size(), 1u);
  EXPECT_EQ(plan.cures[0].check, "decode-bound");
  c.threads = static_cast<int>(plan.cures[0].to);
  const Outcome outcome = JudgeCures(before, Simulate(c));
  EXPECT_EQ(outcome.verdict, Verdict::kFaster);
  EXPECT_TRUE(outcome.keeps());
  ASSERT_TRUE(plan.cures[0].gain.has_value());
  EXPECT_NEAR((1 + outcome.gain) / (1 + *plan.cures[0].gain), 1, 0.2);
}

TEST(Cures, TooManyThreadsOfAllRanksTogether) {
  PipelineConfig c = TooFewThreads();
  c.ranks = 2;
  JobRun run = Simulate(c);
  for (RankRun& rank : run.ranks) rank.job.node_ranks = 2;  // 4 of the 8 processors for each
  const CurePlan plan = PlanCures(Diagnose(run).findings, {{"threads", 2, 1, 8}});
  ASSERT_EQ(plan.cures.size(), 1u);
  EXPECT_EQ(plan.cures[0].to, 4u);
}

TEST(JudgeCures, SeesWhatGotWorseAndWhatIsTheSame) {
  PipelineConfig c = TooFewThreads();
  const JobRun before = Simulate(c);
  c.seed = 2;
  Outcome outcome = JudgeCures(before, Simulate(c));
  EXPECT_EQ(outcome.verdict, Verdict::kSame) << outcome.gain;
  EXPECT_TRUE(outcome.keeps());
  c.threads = 1;
  outcome = JudgeCures(before, Simulate(c));
  EXPECT_EQ(outcome.verdict, Verdict::kSlower);
  EXPECT_NEAR(outcome.gain, -0.5, 0.05);
  EXPECT_FALSE(outcome.keeps());
}

TEST(JudgeCures, OfTooLittleNothingIsTold) {
  PipelineConfig c = TooFewThreads();
  const JobRun before = Simulate(c);
  JobRun after = before;
  after.ranks[0].windows.resize(2);
  EXPECT_EQ(JudgeCures(before, after).verdict, Verdict::kUnknown);
  EXPECT_FALSE(JudgeCures(before, after).keeps());
  for (Window& window : after.ranks[0].windows) window = Window();  // the loop stands still
  EXPECT_EQ(JudgeCures(before, after).verdict, Verdict::kUnknown);
  EXPECT_EQ(JudgeCures(before, {}).verdict, Verdict::kUnknown);
  EXPECT_EQ(VerdictName(Verdict::kUnknown), "unknown");
}

}  // namespace
}  // namespace headrace::doctor
