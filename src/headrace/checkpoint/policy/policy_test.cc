// Intervals, retention and drain rates by themselves, and a simulated job that holds the formula
// against what it describes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>

#include "headrace/base/keyed_random.h"
#include "headrace/checkpoint/policy/drain_rate.h"
#include "headrace/checkpoint/policy/interval.h"
#include "headrace/checkpoint/policy/retention.h"
#include "headrace/checkpoint/policy/trainer_pace.h"

namespace headrace::checkpoint {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(Level, NamesAndOrder) {
  EXPECT_LT(Level::kMemory, Level::kLocal);
  EXPECT_LT(Level::kPeer, Level::kRemote);
  for (Level level : {Level::kMemory, Level::kLocal, Level::kPeer, Level::kRemote})
    EXPECT_EQ(LevelNamed(LevelName(level)), level);
  EXPECT_EQ(LevelNamed("archive"), std::nullopt);
}

// A job that fails once in 3.09 hours, as one of 16,384 GPUs did.
constexpr double kMtbf = 11'135;

IntervalInputs OneClass(double stall, double drain = 0, double restart = 0) {
  return {.stall = stall,
          .failures = {{.name = "node", .mtbf = kMtbf, .drain = drain, .restart = restart}},
          .step = 0};
}

TEST(AdviseInterval, AgreesWithYoung) {
  struct Row {
    double stall, minutes, waste_percent;
  };
  for (const Row& row : {Row{120, 27.2, 14.7}, Row{60, 19.3, 10.4}, Row{30, 13.6, 7.3},
                         Row{6.3, 6.2, 3.4}, Row{1, 2.5, 1.3}, Row{0.5, 1.8, 0.95}}) {
    const IntervalAdvice advice = AdviseInterval(OneClass(row.stall));
    EXPECT_NEAR(advice.interval / 60, row.minutes, 0.06);
    EXPECT_NEAR(100 * advice.expected_waste, row.waste_percent, 0.06);
    EXPECT_EQ(advice.interval, advice.young);
    EXPECT_NEAR(advice.daly / advice.young, 1, 0.1);
    EXPECT_FALSE(advice.bound_by_drain);
  }
}

TEST(AdviseInterval, TheDrainBoundsIt) {
  struct Row {
    double drain, waste_percent;
  };
  for (const Row& row : {Row{300, 4.2}, Row{600, 8.2}}) {
    const IntervalInputs inputs = OneClass(0.5, row.drain);
    const IntervalAdvice advice = AdviseInterval(inputs);
    EXPECT_EQ(advice.interval, row.drain);
    EXPECT_TRUE(advice.bound_by_drain);
    EXPECT_NEAR(100 * advice.expected_waste, row.waste_percent, 0.06);
    EXPECT_THAT(advice.Explain(inputs), HasSubstr("a faster drain helps most"));
    EXPECT_THAT(WarnOfInterval(inputs, row.drain - 1), HasSubstr("shorter than the drain"));
    EXPECT_EQ(WarnOfInterval(inputs, row.drain), "");
  }
}

TEST(AdviseInterval, EachClassOfFailuresHasItsLevel) {
  IntervalInputs inputs = {
      .stall = 1,
      .failures = {{.name = "process", .mtbf = 4 * 3600, .drain = 0, .restart = 20},
                   {.name = "node", .mtbf = 12 * 3600, .drain = 10, .restart = 60},
                   {.name = "site",
                    .mtbf = 1000 * 3600,
                    .drain = 900,
                    .restart = 600,
                    .every_nth_save = 10}},
      .step = 0};
  const IntervalAdvice advice = AdviseInterval(inputs);
  EXPECT_EQ(advice.shortest, 90);
  const double rate = 1 / 14400.0 + 1 / 43200.0 + 10 / 3.6e6;
  EXPECT_NEAR(advice.young, std::sqrt(2 / rate), 1e-6);
  const double t = advice.interval;
  EXPECT_NEAR(advice.expected_waste,
              1 / t + (t / 2 + 20) / 14400 + (t / 2 + 70) / 43200 + (5 * t + 1500) / 3.6e6, 1e-9);
  EXPECT_THAT(advice.Explain(inputs), HasSubstr("every 10 saves"));
}

TEST(AdviseInterval, IsAWholeNumberOfSteps) {
  IntervalInputs inputs = OneClass(1, 100);
  inputs.step = 7;
  IntervalAdvice advice = AdviseInterval(inputs);
  EXPECT_EQ(advice.steps, 21);  // 149.2 s are 21.3 steps
  EXPECT_EQ(advice.interval, 147);
  inputs.failures[0].drain = 148;
  EXPECT_EQ(AdviseInterval(inputs).steps, 22);
  inputs.step = 1000;
  EXPECT_EQ(AdviseInterval(inputs).steps, 1);
}

TEST(AdviseInterval, WhatNeverFailsNeedsNone) {
  IntervalInputs inputs{.stall = 1, .failures = {}, .step = 1};
  EXPECT_TRUE(std::isinf(AdviseInterval(inputs).interval));
  EXPECT_EQ(AdviseInterval(inputs).expected_goodput, 1);
  inputs.failures.push_back(
      {.name = "x", .mtbf = std::numeric_limits<double>::infinity(), .drain = 0, .restart = 0});
  EXPECT_TRUE(std::isinf(AdviseInterval(inputs).interval));
  EXPECT_THAT(AdviseInterval(inputs).Explain(inputs), HasSubstr("No failures"));
  // Without a stall it is saved as often as it drains.
  EXPECT_EQ(AdviseInterval(OneClass(0, 30)).interval, 30);
  EXPECT_EQ(AdviseInterval(OneClass(0)).expected_waste, 0);
}

RC_GTEST_PROP(AdviseIntervalProperty, NoOtherIntervalWastesLess, ()) {
  IntervalInputs inputs;
  inputs.stall = *rc::gen::inRange(0, 1000) / 100.0;
  const int classes = *rc::gen::inRange(1, 4);
  for (int i = 0; i < classes; ++i)
    inputs.failures.push_back({.name = "f",
                               .mtbf = *rc::gen::inRange(5000, 1'000'000) * 1.0,
                               .drain = *rc::gen::inRange(0, 600) * 1.0,
                               .restart = 1,
                               .every_nth_save = *rc::gen::inRange(1, 5) * 1.0});
  const IntervalAdvice advice = AdviseInterval(inputs);
  for (double factor : {0.5, 0.9, 0.99, 1.01, 1.1, 2.0}) {
    const double other = advice.interval * factor;
    if (other < advice.shortest) continue;
    RC_ASSERT(ExpectedWaste(inputs, other) >= advice.expected_waste - 1e-12);
  }
}

// A job of many failures, second by second as the formula's model has it: what is lost agrees.
TEST(AdviseInterval, ASimulatedJobLosesWhatIsSaid) {
  const double stall = 2, drain = 60, restart = 120, mtbf = 20'000;
  IntervalInputs inputs{
      .stall = stall,
      .failures = {{.name = "node", .mtbf = mtbf, .drain = drain, .restart = restart}},
      .step = 0};
  const IntervalAdvice advice = AdviseInterval(inputs);
  KeyedRandom random(11);
  double useful = 0, total = 0;
  for (int failure = 0; failure < 20'000; ++failure) {
    // Time until the failure: cycles of work and a stall; a save counts once it is drained.
    const double life = -mtbf * std::log(1 - random.NextDouble());
    const double cycle = advice.interval;  // with the stall in it
    const double drained = std::floor(std::max(0.0, life - drain) / cycle);
    useful += drained * (cycle - stall);
    total += life + restart;
  }
  EXPECT_NEAR(1 - useful / total, advice.expected_waste, 0.1 * advice.expected_waste);
}

std::vector<size_t> Kept(const RetentionRules& rules,
                         const std::vector<RetentionCandidate>& candidates) {
  std::vector<size_t> kept;
  const auto decisions = PlanRetention(rules, candidates);
  EXPECT_EQ(decisions.size(), candidates.size());
  for (size_t i = 0; i < decisions.size(); ++i) {
    EXPECT_FALSE(decisions[i].why.empty());
    if (decisions[i].keep) kept.push_back(i);
  }
  return kept;
}

std::vector<RetentionCandidate> Steps(std::initializer_list<uint64_t> steps) {
  std::vector<RetentionCandidate> candidates;
  for (uint64_t step : steps) candidates.push_back({.step = step});
  return candidates;
}

TEST(PlanRetention, LastAndEvery) {
  const auto candidates = Steps({100, 200, 300, 400, 500, 600});
  EXPECT_THAT(Kept({.keep_last = 2}, candidates), ElementsAre(4, 5));
  EXPECT_THAT(Kept({.keep_last = 2, .keep_every = 200}, candidates), ElementsAre(1, 3, 4, 5));
  EXPECT_THAT(Kept({.keep_last = 0}, candidates), ElementsAre(5));
  EXPECT_THAT(Kept({.keep_last = 10}, candidates), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_TRUE(Kept({}, {}).empty());
}

TEST(PlanRetention, OfSeveralAttemptsAtAStepTheNewestStays) {
  EXPECT_THAT(Kept({.keep_last = 1, .keep_every = 100}, Steps({100, 200, 100, 150})),
              ElementsAre(1, 2, 3));
}

TEST(PlanRetention, NeverTheNewestThatIsDurableWhereItShouldBe) {
  auto candidates = Steps({100, 200, 300, 400, 500});
  candidates[1].level = Level::kRemote;
  const RetentionRules rules = {.keep_last = 2, .keep_every = 0, .level = Level::kRemote};
  EXPECT_THAT(Kept(rules, candidates), ElementsAre(1, 3, 4));
  EXPECT_THAT(PlanRetention(rules, candidates)[1].why, HasSubstr("durable at remote"));
  // None is there yet: the newest of those that came farthest.
  candidates[1].level = Level::kPeer;
  candidates[0].level = Level::kPeer;
  EXPECT_THAT(Kept(rules, candidates), ElementsAre(1, 3, 4));
}

TEST(PlanRetention, LightOnesAreCountedApart) {
  auto candidates = Steps({100, 110, 120, 130, 200, 210, 220});
  for (size_t i : {1, 2, 3, 5, 6}) candidates[i].light = true;
  EXPECT_THAT(Kept({.keep_last = 2}, candidates), ElementsAre(0, 4, 5, 6));
  EXPECT_THAT(Kept({.keep_last = 0}, candidates), ElementsAre(4));
}

TEST(PlanRetention, TheFullOneThatALightOneNeedsStaysWithIt) {
  auto candidates = Steps({100, 110, 200, 210, 220, 300});
  for (size_t i : {1, 3, 4}) candidates[i].light = true;
  EXPECT_THAT(Kept({.keep_last = 1}, candidates), ElementsAre(2, 4, 5));
  EXPECT_EQ(PlanRetention({.keep_last = 1}, candidates)[2].why, "light step 220 needs it");
  // Whatever rule keeps the light one.
  EXPECT_THAT(Kept({.keep_last = 0, .keep_every = 110}, candidates), ElementsAre(0, 1, 2, 4, 5));
  candidates[1].in_use = true;
  EXPECT_THAT(Kept({.keep_last = 0}, candidates), ElementsAre(0, 1, 5));
  // One without any before it stays by itself.
  candidates[0].light = true;
  EXPECT_THAT(Kept({.keep_last = 0}, candidates), ElementsAre(1, 5));
}

TEST(PlanRetention, ALightOneFindsAFullOneWhereverItself) {
  auto candidates = Steps({100, 200, 300, 310, 400});
  candidates[3].light = true;
  candidates[0].level = candidates[1].level = candidates[3].level = Level::kRemote;
  EXPECT_THAT(Kept({.keep_last = 1}, candidates), ElementsAre(1, 2, 3, 4));
  candidates[1].level = Level::kLocal;
  EXPECT_THAT(Kept({.keep_last = 1}, candidates), ElementsAre(0, 2, 3, 4));
}

TEST(PlanRetention, WhatIsInUseStays) {
  auto candidates = Steps({100, 200, 300});
  candidates[0].in_use = true;
  EXPECT_THAT(Kept({.keep_last = 1}, candidates), ElementsAre(0, 2));
}

RC_GTEST_PROP(PlanRetentionProperty, AFullOneThatIsDurableEnoughAlwaysStays, ()) {
  std::vector<RetentionCandidate> candidates(*rc::gen::inRange<size_t>(0, 12));
  for (RetentionCandidate& c : candidates) {
    c.step = *rc::gen::inRange<uint64_t>(0, 10);
    c.level = static_cast<Level>(*rc::gen::inRange(1, 5));
    c.light = *rc::gen::arbitrary<bool>();
  }
  RetentionRules rules;
  rules.keep_last = *rc::gen::inRange<size_t>(0, 4);
  rules.keep_every = *rc::gen::inRange<uint64_t>(0, 4);
  rules.level = static_cast<Level>(*rc::gen::inRange(1, 5));
  const auto decisions = PlanRetention(rules, candidates);
  size_t newest = candidates.size();
  for (size_t i = 0; i < candidates.size(); ++i)
    if (!candidates[i].light && candidates[i].level >= rules.level) newest = i;
  if (newest < candidates.size()) RC_ASSERT(decisions[newest].keep);
  const bool any_full = std::any_of(candidates.begin(), candidates.end(),
                                    [](const RetentionCandidate& c) { return !c.light; });
  bool full_stays = false;
  for (size_t i = 0; i < candidates.size(); ++i)
    full_stays = full_stays || (decisions[i].keep && !candidates[i].light);
  RC_ASSERT(full_stays == any_full);
}

RC_GTEST_PROP(PlanRetentionProperty, WhatWasRestorableWithALightOneThatStaysStillIs, ()) {
  std::vector<RetentionCandidate> candidates(*rc::gen::inRange<size_t>(0, 12));
  for (RetentionCandidate& c : candidates) {
    c.step = *rc::gen::inRange<uint64_t>(0, 10);
    c.level = static_cast<Level>(*rc::gen::inRange(1, 5));
    c.light = *rc::gen::arbitrary<bool>();
    c.in_use = *rc::gen::inRange(0, 8) == 0;
  }
  const RetentionRules rules = {.keep_last = *rc::gen::inRange<size_t>(0, 4),
                                .keep_every = *rc::gen::inRange<uint64_t>(0, 4)};
  const auto decisions = PlanRetention(rules, candidates);
  for (size_t light = 0; light < candidates.size(); ++light) {
    if (!candidates[light].light || !decisions[light].keep) continue;
    // From each place that the light one has come to, as a restore looks for it.
    for (int level = 1; level <= static_cast<int>(candidates[light].level); ++level) {
      bool was = false, is = false;
      for (size_t i = 0; i < light; ++i) {
        if (candidates[i].light || candidates[i].level < static_cast<Level>(level)) continue;
        was = true;
        is = is || decisions[i].keep;
      }
      RC_ASSERT(was == is);
    }
  }
}

constexpr uint64_t kMiB = 1 << 20, kMs = 1'000'000, kSecondNs = 1'000'000'000;

// Drains pieces of 4 MiB for `ns`, on a virtual clock. Returns the bytes that went.
uint64_t Drain(DrainRate* rate, uint64_t* now, uint64_t ns, uint64_t disk_bytes_per_second) {
  const uint64_t end = *now + ns, piece = 4 * kMiB;
  uint64_t went = 0;
  while (*now < end) {
    if (const uint64_t wait = rate->WaitNs(*now, piece); wait > 0) {
      *now += std::min(wait, end - *now);
      continue;
    }
    rate->Take(*now, piece);
    went += piece;
    *now += piece * kSecondNs / disk_bytes_per_second;
  }
  return went;
}

TEST(DrainRate, TheLimitIsKept) {
  uint64_t now = 5 * kSecondNs;
  DrainRate rate({.limit = 100 * kMiB}, now);
  const uint64_t went = Drain(&rate, &now, 10 * kSecondNs, 1000 * kMiB);
  EXPECT_LE(went, 1000 * kMiB + 32 * kMiB);  // and the burst
  EXPECT_GE(went, 1000 * kMiB - 8 * kMiB);
}

TEST(DrainRate, APieceLargerThanTheBurstIsPaidBack) {
  DrainRate rate({.limit = kMiB, .burst = kMiB}, 0);
  EXPECT_EQ(rate.WaitNs(0, 10 * kMiB), 0u);
  rate.Take(0, 10 * kMiB);
  EXPECT_GE(rate.WaitNs(0, 10 * kMiB), 10 * kSecondNs);
  EXPECT_GT(rate.WaitNs(9 * kSecondNs, 10 * kMiB), 0u);
  EXPECT_EQ(rate.WaitNs(11 * kSecondNs, 10 * kMiB), 0u);
}

TEST(DrainRate, WithoutALimitNothingWaits) {
  DrainRate rate({}, 0);
  EXPECT_EQ(rate.WaitNs(0, uint64_t{1} << 50), 0u);
  rate.Take(0, uint64_t{1} << 50);
  EXPECT_EQ(rate.WaitNs(0, uint64_t{1} << 50), 0u);
}

TEST(DrainRate, AClockThatGoesBackGivesNothing) {
  DrainRate rate({.limit = kMiB, .burst = kMiB}, 10 * kSecondNs);
  rate.Take(10 * kSecondNs, kMiB);
  EXPECT_GT(rate.WaitNs(kSecondNs, kMiB), 0u);
  EXPECT_GT(rate.WaitNs(10 * kSecondNs, kMiB), 0u);
  EXPECT_EQ(rate.WaitNs(12 * kSecondNs, kMiB), 0u);
}

TEST(DrainRate, BacksOffWhileTheInputStallsAndComesBack) {
  uint64_t now = 0;
  DrainRate rate({.least = 8 * kMiB}, now);
  rate.ReportIdleStall(0.02);
  Drain(&rate, &now, 2 * kSecondNs, 400 * kMiB);
  rate.ReportStall(now, 0.025);  // within the margin
  EXPECT_TRUE(std::isinf(rate.rate()));
  Drain(&rate, &now, 2 * kSecondNs, 400 * kMiB);
  rate.ReportStall(now, 0.20);
  EXPECT_NEAR(rate.rate() / kMiB, 200, 5);
  rate.ReportStall(now, 0.20);  // too early to know better
  EXPECT_NEAR(rate.rate() / kMiB, 200, 5);
  for (int i = 0; i < 20; ++i) {
    Drain(&rate, &now, 2 * kSecondNs, 400 * kMiB);
    rate.ReportStall(now, 0.20);
  }
  EXPECT_EQ(rate.rate(), 8 * kMiB);
  for (int i = 0; i < 40; ++i) {
    Drain(&rate, &now, 2 * kSecondNs, 400 * kMiB);
    rate.ReportStall(now, 0.02);
  }
  EXPECT_TRUE(std::isinf(rate.rate()));
}

TEST(TrainerPace, TellsTheStallSinceItWasLastAsked) {
  TrainerPace pace({.input_wait_ns = 7 * kSecondNs, .between_batches_ns = 90 * kSecondNs});
  EXPECT_EQ(pace.InputStall({7 * kSecondNs, 90 * kSecondNs}), std::nullopt);
  EXPECT_EQ(pace.InputStall({8 * kSecondNs, 93 * kSecondNs}), 0.25);
  // Too short to tell; it counts with what follows.
  EXPECT_EQ(pace.InputStall({8 * kSecondNs + 50 * kMs, 93 * kSecondNs}), std::nullopt);
  EXPECT_EQ(pace.InputStall({8 * kSecondNs + 50 * kMs, 93 * kSecondNs + 50 * kMs}), 0.5);
  EXPECT_EQ(pace.InputStall({7 * kSecondNs, 99 * kSecondNs}), std::nullopt);  // a torn look
  EXPECT_EQ(pace.InputStall({18 * kSecondNs, 93 * kSecondNs + 50 * kMs}), 1.0);
}

TEST(TrainerPace, ExpectsSavesToGoOnAsTheyCame) {
  TrainerPace pace({});
  EXPECT_EQ(pace.UntilSaveNs(0), std::nullopt);
  pace.Saved(100 * kSecondNs);
  EXPECT_EQ(pace.UntilSaveNs(101 * kSecondNs), std::nullopt);
  pace.Saved(130 * kSecondNs);
  EXPECT_EQ(pace.UntilSaveNs(131 * kSecondNs), 29 * kSecondNs);
  EXPECT_EQ(pace.UntilSaveNs(160 * kSecondNs), std::nullopt);  // late
  pace.ExpectSave(200 * kSecondNs);
  EXPECT_EQ(pace.UntilSaveNs(190 * kSecondNs), 10 * kSecondNs);
  pace.Saved(190 * kSecondNs);
  EXPECT_EQ(pace.UntilSaveNs(190 * kSecondNs), 60 * kSecondNs);
  pace.Saved(180 * kSecondNs);  // a clock that goes back says nothing
  EXPECT_EQ(pace.UntilSaveNs(190 * kSecondNs), std::nullopt);
}

// A loader whose stall grows with the drain beyond what the disk leaves over.
TEST(DrainRate, FindsWhatTheDiskLeavesOver) {
  uint64_t now = 0;
  DrainRate rate({.limit = 1000 * kMiB}, now);
  rate.ReportIdleStall(0.01);
  double sum = 0;
  for (int i = 0; i < 100; ++i) {
    const uint64_t begin = now;
    const uint64_t went = Drain(&rate, &now, 2 * kSecondNs, 2000 * kMiB);
    const double mib = static_cast<double>(went) / kMiB / (static_cast<double>(now - begin) / 1e9);
    rate.ReportStall(now, mib > 300 ? 0.01 + (mib - 300) / 1000 : 0.01);
    if (i >= 20) sum += mib / 80;
  }
  EXPECT_GT(sum, 180);
  EXPECT_LT(sum, 330);
}

TEST(DrainRate, ADeadlineIsKeptThoughTheInputStalls) {
  uint64_t now = 0;
  DrainRate rate({.limit = 500 * kMiB, .least = kMiB}, now);
  uint64_t left = 3000 * kMiB;
  const uint64_t deadline = 30 * kSecondNs;
  while (now < deadline && left > 0) {
    rate.SetDeadline(now, left, deadline);
    EXPECT_FALSE(rate.late());
    left -= std::min(left, Drain(&rate, &now, 500 * kMs, 2000 * kMiB));
    rate.ReportStall(now, 0.5);
  }
  EXPECT_EQ(left, 0u);
  EXPECT_LE(rate.rate(), 500 * kMiB);
  rate.SetDeadline(now, 3000 * kMiB, now + kSecondNs);
  EXPECT_TRUE(rate.late());
  EXPECT_EQ(rate.rate(), 500 * kMiB);  // the limit holds all the same
  rate.SetDeadline(now, 0, 0);
  EXPECT_FALSE(rate.late());
}

}  // namespace
}  // namespace headrace::checkpoint
