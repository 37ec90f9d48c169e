// Which shards a memory is given to: never more than it holds, never less than it could, and none
// of which a part would be fetched for nothing.
#include "headrace/loader/plan/held_shards.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include "headrace/loader/testing/random_plan.h"

namespace headrace::loader {
namespace {

// What one rank asks for from some position on.
struct Case : testing::RandomPlan {
  uint64_t epoch = 0, position = 0;
  uint32_t rank = 0;
  HeldShardsOptions held = {};

  BatchPlan Plan() const { return RandomPlan::Plan(rank); }
};

Case DrawCase() {
  Case c{testing::DrawPlan()};
  c.rank = *rc::gen::inRange<uint32_t>(0, c.world);
  c.epoch = *rc::gen::inRange<uint64_t>(0, 3);
  if (*rc::gen::arbitrary<bool>())
    c.position = *rc::gen::inRange<uint64_t>(0, EpochPositions(c.Plan()) + 1);
  c.held.shard_bytes =
      *rc::gen::container<std::vector<uint64_t>>(c.shards.size(), rc::gen::inRange<uint64_t>(0, 9));
  c.held.limit_bytes = *rc::gen::inRange<uint64_t>(0, 60);
  c.held.lead = *rc::gen::inRange<uint64_t>(0, 30);
  return c;
}

struct Decision {
  ShardRead read;
  bool is_held = false;
};

// All of this and the next two epochs.
std::vector<Decision> Decisions(const Case& c) {
  HeldShards shards(c.MakeOrder(), c.Plan(), c.held, c.epoch, c.position);
  const uint64_t end = (c.epoch + 3) * EpochPositions(c.Plan());
  std::vector<Decision> all;
  Decision one;
  while (shards.Next(&one.read, &one.is_held) && one.read.first_use < end) all.push_back(one);
  return all;
}

// What those before `number` take that have to be there when the readers come to its shard.
std::map<uint32_t, uint64_t> HeldAt(const Case& c, const std::vector<Decision>& all,
                                    size_t number) {
  std::map<uint32_t, uint64_t> held;
  for (size_t i = 0; i < number; ++i)
    if (all[i].is_held && all[i].read.last_use + c.held.lead >= all[number].read.first_use)
      held[all[i].read.shard] = c.held.shard_bytes[all[i].read.shard];
  return held;
}
uint64_t Sum(const std::map<uint32_t, uint64_t>& held) {
  return std::accumulate(held.begin(), held.end(), uint64_t{0},
                         [](uint64_t sum, const auto& one) { return sum + one.second; });
}

RC_GTEST_PROP(HeldShardsProperty, TakeWhatThereIsAndNoMore, ()) {
  const Case c = DrawCase();
  const std::vector<Decision> all = Decisions(c);
  for (size_t i = 0; i < all.size(); ++i) {
    const uint64_t bytes = c.held.shard_bytes[all[i].read.shard];
    auto held = HeldAt(c, all, i);
    const bool is_there = held.contains(all[i].read.shard);
    const bool fits = is_there || (bytes > 0 && Sum(held) + bytes <= c.held.limit_bytes);
    RC_ASSERT(all[i].is_held == (all[i].read.is_whole && fits));
    held[all[i].read.shard] = bytes;
    if (all[i].is_held) RC_ASSERT(Sum(held) <= c.held.limit_bytes);
  }
}

RC_GTEST_PROP(HeldShardsProperty, WhatIsWantedIsEnoughForAllOfThem, ()) {
  Case c = DrawCase();
  for (uint64_t& bytes : c.held.shard_bytes) bytes = 3;
  c.held.limit_bytes = MemoryWanted(c.MakeOrder(), c.Plan(), c.held, c.epoch, c.position);
  RC_ASSERT(c.held.limit_bytes <= 3 * OwnShards(c.MakeOrder(), c.Plan()).size());
  const uint64_t end = (c.epoch + 2) * EpochPositions(c.Plan());
  for (const Decision& one : Decisions(c))
    if (one.read.first_use < end) RC_ASSERT(one.is_held == one.read.is_whole);
}

RC_GTEST_PROP(HeldShardsProperty, TheTableSaysTheSame, ()) {
  const Case c = DrawCase();
  const uint64_t length = EpochPositions(c.Plan());
  std::set<std::pair<uint64_t, uint32_t>> held;
  for (const Decision& one : Decisions(c))
    if (one.is_held) held.emplace(one.read.first_use / length, one.read.shard);
  HeldShardTable table(c.MakeOrder(), c.Plan(), c.held, c.epoch, c.position);
  for (uint64_t epoch : {c.epoch + 1, uint64_t{0}, c.epoch, c.epoch + 2, c.epoch + 1})
    for (uint32_t shard = 0; shard < c.held.shard_bytes.size(); ++shard)
      RC_ASSERT(table.IsHeld(epoch, shard) == held.contains({epoch, shard}));
  RC_ASSERT(!table.IsHeld(c.epoch + 1000, 0));
}

// The samples of each window that the rank is given in an epoch, against those that there are.
RC_GTEST_PROP(HeldShardsProperty, WholeWindowsAreTheRanksOwn, ()) {
  const Case c = DrawCase();
  const Order order = c.MakeOrder();
  const BatchPlan plan = c.Plan();
  const uint64_t length = EpochPositions(plan);
  std::map<std::pair<uint64_t, uint32_t>, uint64_t> given;  // by epoch and shard
  for (uint64_t epoch = c.epoch; epoch < c.epoch + 3; ++epoch) {
    const EpochOrder stream = order.ForEpoch(epoch);
    for (uint64_t batch = 0; batch < plan.num_batches(); ++batch)
      for (uint64_t row = 0; row < plan.NumRows(batch); ++row) {
        const uint64_t position = plan.PositionOf(batch, row);
        const bool is_before = epoch == c.epoch && position < c.position;
        if (position < plan.BatchBegin(batch) || is_before) continue;
        ++given[{epoch, order.Locate(stream.SampleAt(position)).shard}];
      }
  }
  // Windows of a lane are ranges of positions of their own.
  std::map<std::pair<uint64_t, uint64_t>, std::pair<uint64_t, uint64_t>> windows;  // given, all
  bool some_are_not = false;
  for (const Decision& one : Decisions(c)) {
    some_are_not |= !one.read.is_whole;
    if (!one.read.is_whole) continue;
    auto& [own, all] = windows[{one.read.first_use, one.read.last_use}];
    own += given[{one.read.first_use / length, one.read.shard}];
    all += order.ShardSamples(one.read.shard);
  }
  for (const auto& [window, samples] : windows)
    RC_ASSERT(samples.first * 50 >= samples.second * 49);
  const bool takes_all = c.world == 1 && c.position == 0 && length >= c.num_samples();
  if (takes_all) RC_ASSERT(!some_are_not);
}

TEST(HeldShards, RanksThatShareTheirLanesHoldNothing) {
  const std::vector<uint64_t> shards(16, 10);
  HeldShardsOptions options{.shard_bytes = std::vector<uint64_t>(16, 1), .limit_bytes = 100};
  OrderOptions lanes;
  lanes.lanes = 4;
  const Order order = *Order::Create(shards, "v", lanes);
  for (uint32_t world : {1u, 2u, 3u, 4u, 8u}) {
    const BatchPlan plan = *BatchPlan::Create(160, 16, world, 0, Tail::kDrop);
    HeldShardTable table(order, plan, options, 0, 0);
    uint64_t held = 0;
    for (uint32_t shard = 0; shard < 16; ++shard) held += table.IsHeld(0, shard);
    EXPECT_EQ(held, 4 % world == 0 ? 16 / world : 0) << world;
    EXPECT_EQ(MemoryWanted(order, plan, options, 0, 0), held);
  }
}

TEST(HeldShards, AWindowThatIsBegunIsNotHeld) {
  OrderOptions narrow;
  narrow.lanes = 1;
  narrow.window_shards = 2;
  const Order order = *Order::Create(std::vector<uint64_t>(8, 10), "v", narrow);
  const BatchPlan plan = *BatchPlan::Create(80, 10, 1, 0, Tail::kDrop);
  HeldShards shards(order, plan, {.shard_bytes = std::vector<uint64_t>(8, 1), .limit_bytes = 100},
                    0, 30);
  ShardRead read;
  bool is_held = true;
  for (int i = 0; i < 6; ++i) {
    ASSERT_TRUE(shards.Next(&read, &is_held));
    EXPECT_EQ(is_held, i >= 2) << i;
  }
}

}  // namespace
}  // namespace headrace::loader
