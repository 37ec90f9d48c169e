// Orders of shards and their cuts into batches, drawn by rapidcheck. For properties of tests only.
#pragma once

#include <rapidcheck.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "headrace/loader/plan/batch_plan.h"
#include "headrace/loader/plan/order.h"

namespace headrace::loader::testing {

// Some shards, empty ones among them, with at least one sample in all, and options that fit.
struct RandomOrder {
  std::vector<uint64_t> shards;
  OrderOptions options = {};

  uint64_t num_samples() const {
    return std::accumulate(shards.begin(), shards.end(), uint64_t{0});
  }
  Order MakeOrder() const { return *Order::Create(shards, "v", options); }
};

// Each number is below its limit.
inline RandomOrder DrawOrder(size_t shards, uint64_t shard_samples, uint32_t window_shards) {
  RandomOrder drawn;
  const auto num_shards = *rc::gen::inRange<size_t>(1, shards);
  drawn.shards = *rc::gen::container<std::vector<uint64_t>>(
      num_shards, rc::gen::inRange<uint64_t>(0, shard_samples));
  drawn.shards[*rc::gen::inRange<size_t>(0, num_shards)] += 1;
  drawn.options.seed = *rc::gen::arbitrary<uint64_t>();
  drawn.options.shuffle = *rc::gen::weightedElement<bool>({{9, true}, {1, false}});
  drawn.options.lanes = *rc::gen::inRange<uint32_t>(0, static_cast<uint32_t>(num_shards) + 1);
  drawn.options.window_shards = *rc::gen::inRange<uint32_t>(0, window_shards);
  return drawn;
}

// An order whose batches the ranks of a world read.
struct RandomPlan : RandomOrder {
  uint64_t batch = 1;
  uint32_t world = 1;
  Tail tail = Tail::kDrop;

  BatchPlan Plan(uint32_t rank) const {
    return *BatchPlan::Create(num_samples(), batch, world, rank, tail);
  }
};

inline RandomPlan DrawPlan() {
  RandomPlan drawn{DrawOrder(30, 30, 5)};
  drawn.batch = *rc::gen::inRange<uint64_t>(1, std::min<uint64_t>(drawn.num_samples(), 40) + 1);
  drawn.world =
      *rc::gen::inRange<uint32_t>(1, static_cast<uint32_t>(std::min<uint64_t>(drawn.batch, 8)) + 1);
  drawn.tail = *rc::gen::element(Tail::kDrop, Tail::kPad, Tail::kUneven);
  return drawn;
}

}  // namespace headrace::loader::testing
