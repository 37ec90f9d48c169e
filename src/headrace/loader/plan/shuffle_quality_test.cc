#include "headrace/loader/plan/shuffle_quality.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <vector>

#include "headrace/loader/plan/order.h"
#include "headrace/loader/plan/permutation.h"

namespace headrace::loader {
namespace {

// Data sorted by class, the usual layout of a packed folder: 50 shards, 20 classes.
struct Data {
  std::vector<uint64_t> shards = std::vector<uint64_t>(50, 200);
  std::vector<uint32_t> classes;
  Data() {
    for (uint32_t id = 0; id < 10'000; ++id) classes.push_back(id / 500);
  }
};

template <typename SampleAt>
ShuffleQuality Measure(const Data& data, uint64_t batch, SampleAt sample_at) {
  ShuffleMeter meter(data.shards, data.classes, batch);
  for (uint64_t p = 0; p < data.classes.size(); ++p) meter.Add(sample_at(p));
  return meter.Quality();
}

TEST(ShuffleQuality, RandomPermutationMeetsItsExpectation) {
  const Data data;
  const auto found = Measure(data, 64, KeyedPermutation(10'000, 5));
  const auto expected = ExpectedOfRandomPermutation(data.shards, data.classes, 64);
  EXPECT_EQ(found.batches, expected.batches);
  EXPECT_NEAR(found.serial_correlation, expected.serial_correlation, 4 / std::sqrt(10'000));
  EXPECT_NEAR(found.mean_jump, expected.mean_jump, 0.01);
  EXPECT_NEAR(found.same_shard_rate, expected.same_shard_rate, 0.006);
  EXPECT_NEAR(found.shards_per_batch, expected.shards_per_batch, 0.6);
  EXPECT_NEAR(found.classes_per_batch, expected.classes_per_batch, 0.3);
  EXPECT_NEAR(found.class_imbalance, 1, 0.1);
  EXPECT_EQ(expected.class_imbalance, 1);
}

// The expectation of different classes, against counting all draws of a small urn by hand: 2 of
// {a, a, b, c}: 6 pairs, of which one (a, a) has one class.
TEST(ShuffleQuality, ExpectedKindsMatchesCounting) {
  const std::vector<uint64_t> shards{2, 1, 1};
  const std::vector<uint32_t> classes{0, 0, 1, 2};
  const auto expected = ExpectedOfRandomPermutation(shards, classes, 2);
  EXPECT_NEAR(expected.classes_per_batch, (5 * 2 + 1) / 6.0, 1e-12);
  EXPECT_NEAR(expected.shards_per_batch, (5 * 2 + 1) / 6.0, 1e-12);
  EXPECT_NEAR(expected.same_shard_rate, 1 / 6.0, 1e-12);
  EXPECT_NEAR(expected.mean_jump, (3 * 1 + 2 * 2 + 1 * 3) / 6.0 / 4, 1e-12);
}

TEST(ShuffleQuality, NaturalOrderIsSeenAsUnmixed) {
  const Data data;
  const auto found = Measure(data, 64, [](uint64_t p) { return p; });
  EXPECT_GT(found.serial_correlation, 0.999);
  EXPECT_NEAR(found.mean_jump, 1e-4, 1e-9);
  EXPECT_NEAR(found.same_shard_rate, 1 - 49 / 9999.0, 1e-9);
  EXPECT_LT(found.classes_per_batch, 1.2);
  EXPECT_GT(found.class_imbalance, 50);
}

// Values worked out by hand: ids 0 2 1 3 in batches of 2, classes 0 0 1 1, one shard each class.
TEST(ShuffleQuality, SmallStreamByHand) {
  const std::vector<uint64_t> shards{2, 2};
  const std::vector<uint32_t> classes{0, 0, 1, 1};
  ShuffleMeter meter(shards, classes, 2);
  for (uint64_t id : {0, 2, 1, 3}) meter.Add(id);
  const auto found = meter.Quality();
  EXPECT_EQ(found.samples, 4u);
  EXPECT_EQ(found.batches, 2u);
  EXPECT_EQ(found.same_shard_rate, 0);
  EXPECT_NEAR(found.mean_jump, (2 + 1 + 2) / 3.0 / 4, 1e-12);
  EXPECT_EQ(found.classes_per_batch, 2);
  EXPECT_EQ(found.shards_per_batch, 2);
  EXPECT_NEAR(found.class_imbalance, 0, 1e-12);  // one of each class in each batch: perfectly even
  // Pairs (0,2) (2,1) (1,3): covariance -1, variances 2 and 2.
  EXPECT_NEAR(found.serial_correlation, -0.5, 1e-12);
}

// Of the 6 ways to draw 2 of {a, a, b, b}, two give one class (chi-square 2) and four give both
// (0): the mean is 2/3. A stream that gives one class a batch is 3 times as skewed.
TEST(ShuffleQuality, ImbalanceIsMeasuredAgainstDrawingWithoutPuttingBack) {
  const std::vector<uint64_t> shards{4};
  const std::vector<uint32_t> classes{0, 0, 1, 1};
  ShuffleMeter meter(shards, classes, 2);
  for (uint64_t id : {0, 1, 2, 3}) meter.Add(id);
  EXPECT_NEAR(meter.Quality().class_imbalance, 3, 1e-12);
}

// The default settings on data sorted by class are close to a full permutation.
TEST(ShuffleQuality, DefaultOrderIsNearlyAsMixedAsAFullPermutation) {
  const Data data;
  const auto order = Order::Create(data.shards, "version", {.seed = 1});
  ASSERT_TRUE(order.ok());
  const EpochOrder epoch = order->ForEpoch(0);
  const auto found = Measure(data, 64, [&](uint64_t p) { return epoch.SampleAt(p); });
  const auto random = ExpectedOfRandomPermutation(data.shards, data.classes, 64);
  // Neighbors come from a fixed pair of lanes, which leaves a trace of about one over root lanes.
  EXPECT_LT(std::abs(found.serial_correlation), 2 / std::sqrt(order->num_lanes()));
  EXPECT_GT(found.classes_per_batch, 0.9 * random.classes_per_batch);
  EXPECT_LT(found.class_imbalance, 2);
}

TEST(ShuffleQuality, OneLaneAndANarrowWindowShowTheirCost) {
  const Data data;
  const auto order =
      Order::Create(data.shards, "version", {.seed = 1, .lanes = 1, .window_shards = 2});
  ASSERT_TRUE(order.ok());
  const EpochOrder epoch = order->ForEpoch(0);
  const auto found = Measure(data, 64, [&](uint64_t p) { return epoch.SampleAt(p); });
  EXPECT_GT(found.class_imbalance, 10);
  EXPECT_GT(found.same_shard_rate, 0.45);
}

TEST(ShuffleQuality, TooLittleToMeasureIsZeroAndNotNan) {
  const std::vector<uint64_t> shards{0, 1};
  ShuffleMeter meter(shards, {}, 4);
  EXPECT_EQ(meter.Quality().serial_correlation, 0);
  meter.Add(0);
  const auto found = meter.Quality();
  EXPECT_EQ(found.samples, 1u);
  EXPECT_EQ(found.serial_correlation, 0);
  EXPECT_EQ(found.shards_per_batch, 0);
  EXPECT_EQ(found.class_imbalance, 0);
  EXPECT_EQ(ExpectedOfRandomPermutation(shards, {}, 4).mean_jump, 0);
}

TEST(ShuffleQuality, OneClassOrOneBatchHasNoImbalance) {
  const std::vector<uint64_t> shards{8};
  const std::vector<uint32_t> same(8, 0);
  ShuffleMeter meter(shards, same, 4), whole(shards, same, 8);
  for (uint64_t id = 0; id < 8; ++id) {
    meter.Add(id);
    whole.Add(id);
  }
  EXPECT_EQ(meter.Quality().class_imbalance, 0);
  EXPECT_EQ(meter.Quality().classes_per_batch, 1);
  EXPECT_EQ(whole.Quality().class_imbalance, 0);
}

}  // namespace
}  // namespace headrace::loader
