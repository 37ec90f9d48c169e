// Checks the order against values frozen in tests/compat/order/, which tests/python/
// order_reference.py made from docs/formats/order.md. These files never change: a difference means
// that resumed runs would see other samples.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "headrace/base/json.h"
#include "headrace/base/keyed_random.h"
#include "headrace/loader/plan/batch_plan.h"
#include "headrace/loader/plan/order.h"
#include "headrace/loader/plan/permutation.h"

namespace headrace::loader {
namespace {

std::vector<uint64_t> Numbers(const Json& array) {
  std::vector<uint64_t> numbers;
  for (const Json& item : array.items()) numbers.push_back(item.AsUint());
  return numbers;
}

std::vector<std::string> GoldenFiles() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(HEADRACE_ORDER_GOLDEN_DIR)) {
    names.push_back(entry.path().stem().string());
  }
  return names;
}

class OrderGolden : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    std::ifstream file(fmt::format("{}/{}.json", HEADRACE_ORDER_GOLDEN_DIR, GetParam()));
    const std::string text(std::istreambuf_iterator<char>(file), {});
    auto json = Json::Parse(text);
    ASSERT_TRUE(json.ok()) << json.status().ToString();
    golden_ = *std::move(json);
    OrderOptions options;
    options.seed = Get("seed").AsUint();
    options.shuffle = Get("shuffle").AsBool();
    options.lanes = static_cast<uint32_t>(Get("lanes").AsUint());
    options.window_shards = static_cast<uint32_t>(Get("window_shards").AsUint());
    auto order = Order::Create(Numbers(Get("shards")), Get("version").AsString(), options);
    ASSERT_TRUE(order.ok()) << order.status().ToString();
    order_ = *std::move(order);
  }
  const Json& Get(std::string_view name) const { return *golden_.Find(name); }

  Json golden_;
  std::optional<Order> order_;
};

TEST_P(OrderGolden, StreamIsTheFrozenOne) {
  const EpochOrder epoch = order_->ForEpoch(Get("epoch").AsUint());
  std::vector<uint64_t> stream;
  for (uint64_t p = 0; p < epoch.num_samples(); ++p) stream.push_back(epoch.SampleAt(p));
  ASSERT_FALSE(stream.empty());
  EXPECT_EQ(stream, Numbers(Get("stream")));
}

TEST_P(OrderGolden, LanesAreTheFrozenOnes) {
  EXPECT_EQ(order_->options().lanes, Get("lanes_used").AsUint());
  EXPECT_EQ(order_->options().window_shards, Get("window_shards_used").AsUint());
  const auto& lanes = Get("lane_shards").items();
  ASSERT_EQ(order_->num_lanes(), lanes.size());
  for (uint32_t lane = 0; lane < lanes.size(); ++lane) {
    const auto shards = order_->LaneShards(lane);
    EXPECT_EQ(std::vector<uint64_t>(shards.begin(), shards.end()), Numbers(lanes[lane]));
  }
}

TEST_P(OrderGolden, SubstitutesAreTheFrozenOnes) {
  const uint64_t epoch = Get("epoch").AsUint();
  std::vector<uint64_t> found;
  for (uint64_t position : {uint64_t{0}, uint64_t{1}, order_->num_samples() - 1}) {
    for (uint32_t attempt : {0u, 1u}) found.push_back(order_->Substitute(epoch, position, attempt));
  }
  EXPECT_EQ(found, Numbers(Get("substitutes")));
}

TEST_P(OrderGolden, CutsAreTheFrozenOnes) {
  for (const Json& cut : Get("cuts").items()) {
    const auto ranks = Numbers(*cut.Find("ranks"));
    for (size_t i = 0; i < ranks.size(); ++i) {
      const auto plan = BatchPlan::Create(order_->num_samples(), cut.Find("global_batch")->AsUint(),
                                          static_cast<uint32_t>(cut.Find("world_size")->AsUint()),
                                          static_cast<uint32_t>(ranks[i]),
                                          *ParseTail(cut.Find("tail")->AsString()));
      ASSERT_TRUE(plan.ok()) << plan.status().ToString();
      EXPECT_EQ(plan->num_batches(), Numbers(*cut.Find("num_batches"))[i]) << cut.Dump();
      std::vector<uint64_t> last;
      for (uint64_t row = 0;
           plan->num_batches() > 0 && row < plan->NumRows(plan->num_batches() - 1); ++row) {
        last.push_back(plan->PositionOf(plan->num_batches() - 1, row));
      }
      EXPECT_EQ(last, Numbers(cut.Find("last_batch_positions")->items()[i])) << cut.Dump();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Frozen, OrderGolden, testing::ValuesIn(GoldenFiles()),
                         [](const auto& info) { return info.param; });

// The numbers that docs/formats/order.md gives as an example.
TEST(OrderExample, ArithmeticIsAsThePageSays) {
  EXPECT_EQ(Mix64(1), 0x5692161d100b05e5u);
  EXPECT_EQ(HashKey(1, 2), 0x5ac3bd098b8335d6u);
  EXPECT_EQ(KeyedRandom(0).Next(), 0xe220a8397b1dcdafu);
  std::vector<uint64_t> small, large;
  for (uint64_t j = 0; j < 5; ++j) small.push_back(KeyedPermutation(5, 1)(j));
  for (uint64_t j = 0; j < 7; ++j) large.push_back(KeyedPermutation(20, 1)(j));
  EXPECT_EQ(small, (std::vector<uint64_t>{1, 0, 3, 4, 2}));
  EXPECT_EQ(large, (std::vector<uint64_t>{1, 13, 14, 15, 4, 2, 0}));
}

}  // namespace
}  // namespace headrace::loader
