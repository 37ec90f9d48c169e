// The rules of the cache by themselves, and what they give over simulated epochs.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <vector>

#include "headrace/base/keyed_random.h"
#include "headrace/cache/policy/expected_use.h"
#include "headrace/cache/policy/latency_quantile.h"
#include "headrace/cache/policy/request_limit.h"
#include "headrace/cache/policy/suspension.h"

namespace headrace::cache {
namespace {

constexpr uint64_t kMs = 1'000'000;  // in ns

TEST(DistanceOfUse, WithoutAPlanItIsTheAge) {
  EXPECT_EQ(DistanceOfUse({kNoPlan, 70}, {}, 100), 30 * kMs);
  EXPECT_EQ(DistanceOfUse({kNoPlan, 100}, {}, 100), 0u);
  EXPECT_EQ(DistanceOfUse({kNoPlan, 101}, {}, 100), 0u);  // touched by another process just now
}

TEST(DistanceOfUse, WithAPlanItIsTheTimeUntilItsPosition) {
  std::vector<PlanProgress> plans = {
      {}, {.position = 50, .advanced = 900, .ns_per_position = 2'000'000}};
  EXPECT_EQ(DistanceOfUse({1, 60}, plans, 1000), 20 * kMs);
  EXPECT_EQ(DistanceOfUse({1, 61}, plans, 1000), 22 * kMs);
  EXPECT_EQ(DistanceOfUse({1, 50}, plans, 1000), 0u);
  EXPECT_EQ(DistanceOfUse({1, 49}, plans, 1000), kFarthest);
  EXPECT_EQ(DistanceOfUse({2, 60}, plans, 1000), kFarthest);
  EXPECT_LT(DistanceOfUse({1, UINT64_MAX}, plans, 1000), kFarthest);
}

TEST(DistanceOfUse, APlanOfUnknownSpeedKeepsItsOrder) {
  std::vector<PlanProgress> plans(2);
  EXPECT_LT(DistanceOfUse({1, 60}, plans, 1000), DistanceOfUse({1, 61}, plans, 1000));
}

TEST(DistanceOfUse, APlanThatStandsStillAgesAfterAWhile) {
  std::vector<PlanProgress> plans = {{},
                                     {.position = 50, .advanced = 0, .ns_per_position = 1'000'000}};
  EXPECT_EQ(DistanceOfUse({1, 60}, plans, kPlanGraceMs), 10 * kMs);
  EXPECT_EQ(DistanceOfUse({1, 60}, plans, kPlanGraceMs * 2), (10 + kPlanGraceMs * 2) * kMs);
}

TEST(MayDisplace, APlannedBlockTakesThePlaceOfWhatIsNeededLater) {
  std::vector<PlanProgress> plans = {
      {}, {.position = 50, .advanced = 1000, .ns_per_position = 1'000'000}};
  auto may = [&](ExpectedUse fresh, std::optional<ExpectedUse> old) {
    return MayDisplace(Displace::kFarther, fresh, old, plans, 1000);
  };
  EXPECT_TRUE(may({1, 60}, ExpectedUse{1, 61}));
  EXPECT_FALSE(may({1, 60}, ExpectedUse{1, 60}));
  EXPECT_FALSE(may({1, 60}, ExpectedUse{1, 55}));
  EXPECT_TRUE(may({1, 60}, ExpectedUse{1, 40}));  // the plan is past it
  EXPECT_TRUE(may({1, 60}, ExpectedUse{kNoPlan, 980}));
  EXPECT_FALSE(may({1, 60}, ExpectedUse{kNoPlan, 995}));
  EXPECT_TRUE(may({1, 60}, std::nullopt));
  EXPECT_TRUE(may({kNoPlan, 1000}, ExpectedUse{kNoPlan, 1000}));  // without a plan: whatever goes
}

TEST(MayDisplace, WhatALivePlanNeedsIsClaimed) {
  constexpr Tick kNow = 2 * kPlanGraceMs;
  std::vector<PlanProgress> plans = {
      {},
      {.position = 50, .advanced = kNow, .ns_per_position = 1'000'000},
      {.position = 50, .advanced = 10, .ns_per_position = 1'000'000}};
  auto may = [&](std::optional<ExpectedUse> old) {
    return MayDisplace(Displace::kUnclaimed, {1, 60}, old, plans, kNow);
  };
  EXPECT_FALSE(may(ExpectedUse{1, 1000}));
  EXPECT_TRUE(may(ExpectedUse{1, 49}));
  EXPECT_TRUE(may(ExpectedUse{2, 1000}));  // that plan has not moved for long
  EXPECT_TRUE(may(ExpectedUse{kNoPlan, kNow}));
  EXPECT_TRUE(may(std::nullopt));
  EXPECT_FALSE(MayDisplace(Displace::kNothing, {1, 60}, std::nullopt, plans, kNow));
}

TEST(ChooseVictims, TakesTheFarthestAndNoMoreThanWanted) {
  std::vector<EvictionCandidate> blocks = {{5, 10}, {9, 10}, {7, 10}, {9, 10}};
  EXPECT_EQ(ChooseVictims(blocks, 0), (std::vector<size_t>{}));
  EXPECT_EQ(ChooseVictims(blocks, 10), (std::vector<size_t>{1}));
  EXPECT_EQ(ChooseVictims(blocks, 21), (std::vector<size_t>{1, 3, 2}));
  EXPECT_EQ(ChooseVictims(blocks, 1000), (std::vector<size_t>{1, 3, 2, 0}));
  EXPECT_EQ(ChooseVictims({}, 5).size(), 0u);
}

TEST(ChooseVictims, PinnedBlocksStay) {
  std::vector<EvictionCandidate> blocks = {{kFarthest, 1, true}, {2, 1}, {3, 1, true}};
  EXPECT_EQ(ChooseVictims(blocks, 100), std::vector<size_t>{1});
}

enum class Knowledge { kNothing, kEpochOnly, kNextOrder };

// Reads `blocks` blocks once an epoch, in another order each time, through a cache of `capacity`
// that admits what it fetches. Returns the hit ratio from the second epoch on.
double HitRatio(size_t blocks, size_t capacity, Knowledge knowledge) {
  constexpr uint64_t kEpochs = 6, kMsPerBlock = 10;
  KeyedRandom random(7);
  std::vector<std::vector<size_t>> order(kEpochs + 1, std::vector<size_t>(blocks));
  std::vector<std::vector<size_t>> place(kEpochs + 1, std::vector<size_t>(blocks));
  for (uint64_t epoch = 0; epoch <= kEpochs; ++epoch) {
    std::iota(order[epoch].begin(), order[epoch].end(), 0);
    for (size_t i = blocks; i > 1; --i)
      std::swap(order[epoch][i - 1], order[epoch][random.NextBelow(i)]);
    for (size_t i = 0; i < blocks; ++i) place[epoch][order[epoch][i]] = i;
  }
  std::map<size_t, ExpectedUse> cached;
  std::vector<PlanProgress> plans = {{}, {.ns_per_position = kMsPerBlock * 1'000'000}};
  Tick now = 1'000'000;
  size_t hits = 0;
  for (uint64_t epoch = 0; epoch < kEpochs; ++epoch) {
    for (size_t i = 0; i < blocks; ++i, now += kMsPerBlock) {
      size_t block = order[epoch][i];
      plans[1].position = epoch * blocks + i;
      plans[1].advanced = now;
      if (cached.contains(block)) {
        if (epoch > 0) ++hits;
      } else if (cached.size() == capacity) {
        std::vector<EvictionCandidate> candidates;
        std::vector<size_t> ids;
        for (auto [id, use] : cached) {
          candidates.push_back({DistanceOfUse(use, plans, now), 1});
          ids.push_back(id);
        }
        cached.erase(ids[ChooseVictims(candidates, 1).at(0)]);
      }
      uint64_t next_epoch = (epoch + 1) * blocks;
      ExpectedUse& use = cached[block];
      if (knowledge == Knowledge::kNothing) use = {kNoPlan, now};
      if (knowledge == Knowledge::kEpochOnly) use = {1, next_epoch + blocks};
      if (knowledge == Knowledge::kNextOrder) use = {1, next_epoch + place[epoch + 1][block]};
    }
  }
  return static_cast<double>(hits) / static_cast<double>((kEpochs - 1) * blocks);
}

TEST(Epochs, HitRatioReachesTheCachedFraction) {
  constexpr size_t kBlocks = 400;
  for (int tenth = 1; tenth <= 9; ++tenth) {
    double fraction = tenth / 10.0;
    auto capacity = static_cast<size_t>(fraction * kBlocks);
    EXPECT_NEAR(HitRatio(kBlocks, capacity, Knowledge::kNextOrder), fraction, 0.01) << fraction;
    EXPECT_NEAR(HitRatio(kBlocks, capacity, Knowledge::kEpochOnly), fraction, 0.01) << fraction;
  }
}

TEST(Epochs, WithoutAPlanItIsLruAndFarBelow) {
  EXPECT_NEAR(HitRatio(400, 200, Knowledge::kNothing), 0.154, 0.03);
}

TEST(RequestLimit, ClimbsByOneARoundAndHalvesOnce) {
  RequestLimit limit({.start = 4, .most = 6, .hold_ms = 100});
  for (int i = 0; i < 4; ++i) limit.Succeed(false);
  EXPECT_EQ(limit.limit(), 4u);  // nobody asked for more
  for (int i = 0; i < 5; ++i) limit.Succeed(true);
  EXPECT_EQ(limit.limit(), 5u);
  for (int i = 0; i < 50; ++i) limit.Succeed(true);
  EXPECT_EQ(limit.limit(), 6u);
  EXPECT_TRUE(limit.Overload(1000));
  EXPECT_EQ(limit.limit(), 3u);
  EXPECT_FALSE(limit.Overload(1050));  // of the same burst
  EXPECT_EQ(limit.limit(), 3u);
  for (uint64_t t = 2000; t < 4000; t += 200) limit.Overload(t);
  EXPECT_EQ(limit.limit(), 1u);
}

TEST(RequestLimit, MostMayChange) {
  RequestLimit limit({.start = 8, .most = 8});
  limit.SetMost(3);
  EXPECT_EQ(limit.limit(), 3u);
  for (int i = 0; i < 50; ++i) limit.Succeed(true);
  EXPECT_EQ(limit.limit(), 3u);
  limit.SetMost(5);
  EXPECT_EQ(limit.limit(), 3u);  // what more bears is tried first
  for (int i = 0; i < 50; ++i) limit.Succeed(true);
  EXPECT_EQ(limit.limit(), 5u);
  limit.SetMost(0);
  EXPECT_EQ(limit.limit(), 1u);
}

TEST(LatencyQuantile, BoundsTheQuantileFromAbove) {
  LatencyQuantile latency;
  EXPECT_FALSE(latency.Get().has_value());
  for (uint64_t i = 1; i <= 1000; ++i) latency.Add(i * 10);
  ASSERT_TRUE(latency.Get().has_value());
  EXPECT_GE(*latency.Get(), 9900u);
  EXPECT_LE(*latency.Get(), 9900u * 5 / 4);
  for (int i = 0; i < 20000; ++i) latency.Add(100);  // the store got faster
  EXPECT_LE(*latency.Get(), 125u);
}

TEST(LatencyQuantile, AnyValueHasABucket) {
  LatencyQuantile latency(0.5, 1);
  for (uint64_t value : {uint64_t{0}, uint64_t{1}, uint64_t{3}, uint64_t{4}, UINT64_MAX}) {
    LatencyQuantile one(0.5, 1);
    one.Add(value);
    EXPECT_GE(*one.Get(), value == UINT64_MAX ? 0 : value);
  }
}

TEST(Suspension, ProbesWithLongerAndLongerWaits) {
  Suspension disk({.first_ms = 10, .longest_ms = 30});
  EXPECT_TRUE(disk.Allow(0));
  EXPECT_TRUE(disk.Fail(100));
  EXPECT_FALSE(disk.Allow(105));
  EXPECT_TRUE(disk.Allow(110));
  EXPECT_FALSE(disk.Allow(110));  // one probe
  EXPECT_FALSE(disk.Fail(111));   // warned already
  EXPECT_FALSE(disk.Allow(130));
  EXPECT_TRUE(disk.Allow(131));
  EXPECT_FALSE(disk.Fail(131));
  EXPECT_TRUE(disk.Allow(161));
  EXPECT_TRUE(disk.Succeed());
  EXPECT_TRUE(disk.Allow(161));
  EXPECT_FALSE(disk.Succeed());
}

TEST(Suspension, AProbeThatNeverEndsIsReplaced) {
  Suspension disk({.first_ms = 10, .longest_ms = 30});
  EXPECT_TRUE(disk.Fail(0));
  EXPECT_TRUE(disk.Allow(10));
  EXPECT_FALSE(disk.Allow(19));
  EXPECT_TRUE(disk.Allow(20));
}

}  // namespace
}  // namespace headrace::cache
