#include "headrace/loader/plan/order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "headrace/loader/testing/random_plan.h"

namespace headrace::loader {
namespace {

using ::testing::HasSubstr;

const std::string kVersion = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";

Order Make(const std::vector<uint64_t>& shards, const OrderOptions& options = {},
           const std::string& version = kVersion) {
  auto order = Order::Create(shards, version, options);
  EXPECT_TRUE(order.ok()) << order.status().ToString();
  return *std::move(order);
}

std::vector<uint64_t> Stream(const Order& order, uint64_t epoch) {
  const EpochOrder in_epoch = order.ForEpoch(epoch);
  std::vector<uint64_t> ids;
  for (uint64_t p = 0; p < in_epoch.num_samples(); ++p) ids.push_back(in_epoch.SampleAt(p));
  return ids;
}

std::vector<uint64_t> Iota(uint64_t count) {
  std::vector<uint64_t> numbers(count);
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

struct Case : testing::RandomOrder {
  uint64_t epoch = 0;
};

Case DrawCase() {
  Case c{testing::DrawOrder(60, *rc::gen::element<uint64_t>(1, 5, 40, 300), 9)};
  c.epoch = *rc::gen::inRange<uint64_t>(0, 5);
  return c;
}

RC_GTEST_PROP(OrderProperty, EveryEpochIsABijection, ()) {
  const Case c = DrawCase();
  auto ids = Stream(Make(c.shards, c.options), c.epoch);
  std::sort(ids.begin(), ids.end());
  RC_ASSERT(ids == Iota(c.num_samples()));
}

RC_GTEST_PROP(OrderProperty, EverySampleComesFromItsPositionsLaneAndWindow, ()) {
  const Case c = DrawCase();
  const Order order = Make(c.shards, c.options);
  const EpochOrder epoch = order.ForEpoch(c.epoch);
  for (uint64_t p = 0; p < order.num_samples(); ++p) {
    const uint32_t shard = order.Locate(epoch.SampleAt(p)).shard;
    const auto lane = order.LaneShards(epoch.LaneAt(p));
    RC_ASSERT(std::find(lane.begin(), lane.end(), shard) != lane.end());
    const auto window = epoch.WindowShards(epoch.LaneAt(p), epoch.WindowAt(p));
    RC_ASSERT(std::find(window.begin(), window.end(), shard) != window.end());
    if (p < order.EvenPositions()) RC_ASSERT(epoch.LaneAt(p) == p % order.num_lanes());
  }
}

RC_GTEST_PROP(OrderProperty, LanesShareAllShardsAndFall, ()) {
  const Case c = DrawCase();
  const Order order = Make(c.shards, c.options);
  std::vector<uint64_t> seen;
  for (uint32_t lane = 0; lane < order.num_lanes(); ++lane) {
    uint64_t samples = 0;
    for (uint32_t shard : order.LaneShards(lane)) {
      seen.push_back(shard);
      samples += c.shards[shard];
    }
    RC_ASSERT(samples == order.LaneSamples(lane));
    if (lane > 0) RC_ASSERT(samples <= order.LaneSamples(lane - 1));
  }
  std::sort(seen.begin(), seen.end());
  RC_ASSERT(seen == Iota(c.shards.size()));
  // Dealing to the emptiest lane keeps any two lanes within one shard of each other.
  const uint64_t largest = *std::max_element(c.shards.begin(), c.shards.end());
  RC_ASSERT(order.LaneSamples(0) - order.LaneSamples(order.num_lanes() - 1) <= largest);
}

RC_GTEST_PROP(OrderProperty, WindowsOfALaneAreItsShardsInGroups, ()) {
  const Case c = DrawCase();
  const Order order = Make(c.shards, c.options);
  const EpochOrder epoch = order.ForEpoch(c.epoch);
  const uint32_t group = order.options().window_shards;
  for (uint32_t lane = 0; lane < order.num_lanes(); ++lane) {
    std::vector<uint32_t> joined;
    for (uint32_t w = 0; w < epoch.NumWindows(lane); ++w) {
      const auto shards = epoch.WindowShards(lane, w);
      RC_ASSERT(shards.size() == group || w + 1 == epoch.NumWindows(lane));
      joined.insert(joined.end(), shards.begin(), shards.end());
    }
    const auto dealt = order.LaneShards(lane);
    RC_ASSERT(std::is_permutation(joined.begin(), joined.end(), dealt.begin(), dealt.end()));
  }
}

// A lane passes its windows one after the other: what a prefetcher relies on.
RC_GTEST_PROP(OrderProperty, WindowsAreEnteredInSequence, ()) {
  const Case c = DrawCase();
  const Order order = Make(c.shards, c.options);
  const EpochOrder epoch = order.ForEpoch(c.epoch);
  std::vector<uint32_t> last(order.num_lanes(), 0);
  for (uint64_t p = 0; p < order.num_samples(); ++p) {
    const uint32_t window = epoch.WindowAt(p);
    RC_ASSERT(window >= last[epoch.LaneAt(p)]);
    last[epoch.LaneAt(p)] = window;
  }
}

RC_GTEST_PROP(OrderProperty, ASpanIsFromTheFirstToTheLastPositionOfItsWindow, ()) {
  const Case c = DrawCase();
  const Order order = Make(c.shards, c.options);
  const EpochOrder epoch = order.ForEpoch(c.epoch);
  std::map<std::pair<uint32_t, uint32_t>, EpochOrder::Span> expected;
  for (uint64_t p = 0; p < order.num_samples(); ++p) {
    RC_ASSERT(order.LaneAt(p) == epoch.LaneAt(p));
    auto [span, fresh] = expected.try_emplace({epoch.LaneAt(p), epoch.WindowAt(p)});
    if (fresh) span->second.first = p;
    span->second.last = p;
    span->second.samples += 1;
  }
  for (uint32_t lane = 0; lane < order.num_lanes(); ++lane) {
    for (uint32_t window = 0; window < epoch.NumWindows(lane); ++window) {
      const EpochOrder::Span found = epoch.WindowSpan(lane, window);
      const EpochOrder::Span wanted = expected[{lane, window}];
      RC_ASSERT(found.samples == wanted.samples);
      RC_ASSERT(found.first == wanted.first);
      RC_ASSERT(found.last == wanted.last);
    }
  }
}

RC_GTEST_PROP(OrderProperty, RankOfAWorldThatDividesTheLanesKeepsToItsLanes, ()) {
  Case c = DrawCase();
  c.options.shuffle = true;
  const auto world = *rc::gen::inRange<uint32_t>(1, static_cast<uint32_t>(c.shards.size()) + 1);
  const auto factor =
      *rc::gen::inRange<uint32_t>(1, static_cast<uint32_t>(c.shards.size()) / world + 1);
  c.options.lanes = world * factor;
  const Order order = Make(c.shards, c.options);
  const EpochOrder epoch = order.ForEpoch(c.epoch);
  std::vector<std::set<uint32_t>> own(world);
  for (uint32_t lane = 0; lane < order.num_lanes(); ++lane) {
    const auto shards = order.LaneShards(lane);
    own[lane % world].insert(shards.begin(), shards.end());
  }
  for (uint64_t p = 0; p < order.EvenPositions(); ++p) {
    RC_ASSERT(own[p % world].count(order.Locate(epoch.SampleAt(p)).shard) == 1);
  }
}

RC_GTEST_PROP(OrderProperty, LocateFindsShardAndIndex, ()) {
  const Case c = DrawCase();
  const Order order = Make(c.shards, c.options);
  uint64_t id = 0;
  for (uint32_t shard = 0; shard < c.shards.size(); ++shard) {
    for (uint64_t i = 0; i < c.shards[shard]; ++i, ++id) {
      const Order::Place place = order.Locate(id);
      RC_ASSERT(place.shard == shard);
      RC_ASSERT(place.index == i);
    }
  }
}

TEST(Order, IsAFunctionOfVersionSeedAndEpoch) {
  const std::vector<uint64_t> shards(20, 50);
  const auto base = Stream(Make(shards, {.seed = 1}), 0);
  EXPECT_EQ(base, Stream(Make(shards, {.seed = 1}), 0));
  EXPECT_NE(base, Stream(Make(shards, {.seed = 1}), 1));
  EXPECT_NE(base, Stream(Make(shards, {.seed = 2}), 0));
  EXPECT_NE(base, Stream(Make(shards, {.seed = 1}, "another version"), 0));
}

TEST(Order, LanesAreTheSameInEveryEpoch) {
  const Order order = Make(std::vector<uint64_t>(40, 10), {.seed = 3, .lanes = 4});
  const EpochOrder first = order.ForEpoch(0), later = order.ForEpoch(9);
  std::vector<std::set<uint32_t>> a(4), b(4);
  for (uint64_t p = 0; p < order.num_samples(); ++p) {
    a[first.LaneAt(p)].insert(order.Locate(first.SampleAt(p)).shard);
    b[later.LaneAt(p)].insert(order.Locate(later.SampleAt(p)).shard);
  }
  EXPECT_EQ(a, b);
}

TEST(Order, WithoutShuffleIsManifestOrder) {
  const std::vector<uint64_t> shards{3, 0, 4};
  const Order order = Make(shards, {.seed = 8, .shuffle = false, .lanes = 2});
  EXPECT_EQ(Stream(order, 0), Iota(7));
  EXPECT_EQ(Stream(order, 5), Iota(7));
  EXPECT_EQ(order.options().lanes, 1u);
  EXPECT_EQ(order.options().window_shards, 1u);
  EXPECT_EQ(order.ForEpoch(0).WindowAt(3), 2u);
  EXPECT_EQ(order.ForEpoch(0).WindowShards(0, 2)[0], 2u);
}

TEST(Order, FillsInTheDefaults) {
  const auto defaults = [](size_t shards) {
    const OrderOptions options = Make(std::vector<uint64_t>(shards, 1)).options();
    return std::pair(options.lanes, options.window_shards);
  };
  EXPECT_EQ(defaults(1), std::pair(1u, 64u));
  EXPECT_EQ(defaults(7), std::pair(1u, 64u));
  EXPECT_EQ(defaults(8), std::pair(2u, 32u));
  EXPECT_EQ(defaults(31), std::pair(4u, 16u));
  EXPECT_EQ(defaults(32), std::pair(8u, 8u));
  EXPECT_EQ(defaults(63), std::pair(8u, 8u));
  EXPECT_EQ(defaults(64), std::pair(64u, 2u));
  EXPECT_EQ(defaults(1000), std::pair(64u, 2u));
}

TEST(Order, OneSample) {
  EXPECT_EQ(Stream(Make({1}), 0), Iota(1));
  EXPECT_EQ(Stream(Make({0, 0, 1, 0}, {.lanes = 4}), 2), Iota(1));
}

TEST(Order, RefusesWhatHasNoOrder) {
  const auto message = [](const std::vector<uint64_t>& shards, const OrderOptions& options) {
    const auto order = Order::Create(shards, kVersion, options);
    EXPECT_EQ(order.status().code(), Code::kInvalidArgument);
    return std::string(order.status().message());
  };
  EXPECT_THAT(message({}, {}), HasSubstr("no samples"));
  EXPECT_THAT(message({0, 0}, {}), HasSubstr("no samples (2 shards)"));
  EXPECT_THAT(message({5, 5}, {.lanes = 3}), HasSubstr("lanes must be 1 to 2"));
  EXPECT_THAT(message({kMaxSamples, 1}, {}), HasSubstr("more than 4611686018427387904 samples"));
  EXPECT_THAT(message({UINT64_MAX, UINT64_MAX}, {}), HasSubstr("more than"));
}

TEST(Order, HugeShardsDoNotOverflow) {
  const Order order = Make({kMaxSamples / 2, kMaxSamples / 4, kMaxSamples / 4}, {.lanes = 3});
  const EpochOrder epoch = order.ForEpoch(0);
  for (uint64_t p : {uint64_t{0}, kMaxSamples / 2, kMaxSamples - 1}) {
    EXPECT_LT(epoch.SampleAt(p), kMaxSamples);
  }
}

TEST(Order, EpochOrderOutlivesItsOrder) {
  EpochOrder epoch = Make({4, 4}).ForEpoch(1);
  const EpochOrder copy = epoch;
  epoch = Make({9}).ForEpoch(0);
  std::vector<uint64_t> ids;
  for (uint64_t p = 0; p < 8; ++p) ids.push_back(copy.SampleAt(p));
  std::sort(ids.begin(), ids.end());
  EXPECT_EQ(ids, Iota(8));
  EXPECT_EQ(copy.epoch(), 1u);
}

TEST(Order, SubstituteIsUniformAndNotTheSameTwice) {
  const Order order = Make({30, 0, 70});
  std::vector<int> counts(100);
  for (uint64_t position = 0; position < 100'000; ++position)
    ++counts[order.Substitute(0, position, 0)];
  double chi_square = 0;
  for (int count : counts) chi_square += (count - 1000.0) * (count - 1000.0) / 1000.0;
  EXPECT_LT(chi_square, 99 + 4 * 14.07);
  EXPECT_NE(order.Substitute(0, 5, 0), order.Substitute(0, 5, 1));
  EXPECT_NE(order.Substitute(0, 5, 0), order.Substitute(1, 5, 0));
  EXPECT_EQ(order.Substitute(3, 5, 2), Make({30, 0, 70}).Substitute(3, 5, 2));
}

}  // namespace
}  // namespace headrace::loader
