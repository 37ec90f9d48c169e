// The reads of a rank against what it is really given, position by position.
#include "headrace/loader/plan/shard_reads.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "headrace/loader/testing/random_plan.h"

namespace headrace::loader {
namespace {

using testing::DrawPlan;
using testing::RandomPlan;

// The shards that a rank reads in an epoch, with the running positions at which it does; without
// those of foreign lanes and of padding.
std::map<uint32_t, std::set<uint64_t>> Uses(const Order& order, const BatchPlan& plan,
                                            uint64_t epoch, uint64_t from) {
  std::map<uint32_t, std::set<uint64_t>> uses;
  const EpochOrder stream = order.ForEpoch(epoch);
  for (uint64_t batch = 0; batch < plan.num_batches(); ++batch) {
    for (uint64_t row = 0; row < plan.NumRows(batch); ++row) {
      const uint64_t position = plan.PositionOf(batch, row);
      if (position < std::max(plan.BatchBegin(batch), from)) continue;
      if (IsForeign(order, plan, position)) continue;
      uses[order.Locate(stream.SampleAt(position)).shard].insert(epoch * EpochPositions(plan) +
                                                                 position);
    }
  }
  return uses;
}

RC_GTEST_PROP(ShardReadsProperty, CoverWhatIsReadAndComeByFirstUse, ()) {
  const RandomPlan c = DrawPlan();
  const Order order = c.MakeOrder();
  const BatchPlan plan = c.Plan(*rc::gen::inRange<uint32_t>(0, c.world));
  const uint64_t epoch = *rc::gen::inRange<uint64_t>(0, 3), length = EpochPositions(plan);
  const uint64_t from = *rc::gen::inRange<uint64_t>(0, length + 1);
  ShardReads reads(order, plan, epoch, from);
  uint64_t last_first_use = 0;
  std::map<std::pair<uint64_t, uint32_t>, ShardRead> found;  // by epoch and shard
  ShardRead read;
  bool more = true;
  while ((more = reads.Next(&read)) && read.first_use < (epoch + 2) * length) {
    RC_ASSERT(read.first_use >= last_first_use);
    RC_ASSERT(read.first_use >= epoch * length + from);
    RC_ASSERT(read.last_use >= read.first_use);
    last_first_use = read.first_use;
    RC_ASSERT(found.emplace(std::pair(read.first_use / length, read.shard), read).second);
  }
  RC_ASSERT(more != OwnShards(order, plan).empty());
  for (uint64_t e : {epoch, epoch + 1}) {
    for (const auto& [shard, positions] : Uses(order, plan, e, e == epoch ? from : 0)) {
      auto planned = found.find({e, shard});
      RC_ASSERT(planned != found.end());
      RC_ASSERT(planned->second.first_use <= *positions.begin());
      RC_ASSERT(planned->second.last_use >= *positions.rbegin());
      auto again = found.find({e + 1, shard});
      if (e == epoch && again != found.end())
        RC_ASSERT(planned->second.next_use == again->second.first_use);
    }
  }
}

RC_GTEST_PROP(ShardReadsProperty, RanksOfAWorldThatDividesTheLanesShareNoShard, ()) {
  const RandomPlan c = DrawPlan();
  const Order order = c.MakeOrder();
  RC_PRE(order.num_lanes() % c.world == 0);
  std::vector<uint32_t> all, expected;
  for (uint32_t rank = 0; rank < c.world; ++rank)
    for (uint32_t shard : OwnShards(order, c.Plan(rank))) all.push_back(shard);
  for (uint32_t shard = 0; shard < c.shards.size(); ++shard)
    if (c.shards[shard] > 0) expected.push_back(shard);
  std::sort(all.begin(), all.end());
  RC_ASSERT(all == expected);
}

// Before the shortest lane has ended no rank meets a lane that it does not own.
RC_GTEST_PROP(ShardReadsProperty, OnlyTheEndIsForeign, ()) {
  const RandomPlan c = DrawPlan();
  const Order order = c.MakeOrder();
  const BatchPlan plan = c.Plan(*rc::gen::inRange<uint32_t>(0, c.world));
  for (uint64_t p = 0; p < c.num_samples(); ++p) {
    if (p % c.world != plan.rank()) continue;
    const bool own = OwnsLane(order, plan, order.LaneAt(p));
    RC_ASSERT(IsForeign(order, plan, p) == !own);
    if (p < order.EvenPositions()) RC_ASSERT(own);
  }
}

TEST(ShardReads, NextUseIsThatOfTheNextEpoch) {
  OrderOptions options;
  options.lanes = 1;
  options.window_shards = 1;
  const std::vector<uint64_t> shards = {10, 10, 10};
  const Order order = *Order::Create(shards, "v", options);
  const BatchPlan plan = *BatchPlan::Create(30, 10, 1, 0, Tail::kDrop);
  ShardReads reads(order, plan, 0, 5);
  std::map<uint32_t, uint64_t> expected;
  for (int i = 0; i < 30; ++i) {
    ShardRead read;
    ASSERT_TRUE(reads.Next(&read));
    EXPECT_EQ(read.first_use, i == 0 ? 5u : static_cast<uint64_t>(i) * 10);
    EXPECT_EQ(read.last_use, static_cast<uint64_t>(i) * 10 + 9);
    if (i >= 3) {
      EXPECT_EQ(expected.at(read.shard), read.first_use);
    }
    expected[read.shard] = read.next_use;
  }
}

TEST(ShardReads, TheLargestWindowsOfOwnLanesCount) {
  OrderOptions options;
  options.lanes = 2;
  options.window_shards = 2;
  const std::vector<uint64_t> shards(8, 10), bytes = {1, 2, 4, 8, 16, 32, 64, 128};
  const Order order = *Order::Create(shards, "v", options);
  uint64_t all = 0;
  for (uint32_t rank : {0u, 1u}) {
    const BatchPlan plan = *BatchPlan::Create(80, 10, 2, rank, Tail::kDrop);
    std::vector<uint64_t> own;
    for (uint32_t shard : order.LaneShards(rank)) own.push_back(bytes[shard]);
    std::sort(own.rbegin(), own.rend());
    EXPECT_EQ(LargestWindowsBytes(order, plan, bytes), own[0] + own[1]);
    all += own[0] + own[1];
  }
  const BatchPlan one = *BatchPlan::Create(80, 10, 1, 0, Tail::kDrop);
  EXPECT_EQ(LargestWindowsBytes(order, one, bytes), all);
}

}  // namespace
}  // namespace headrace::loader
