#include "headrace/loader/read_plan.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "headrace/cache/buffer_pool.h"
#include "headrace/object/object_file_system.h"

namespace headrace::loader {
namespace {

class ReadPlan final : public cache::PlanSource {
 public:
  ReadPlan(const Order& order, const BatchPlan& plan, uint64_t epoch, uint64_t position,
           std::shared_ptr<const ShardObjects> objects)
      : reads_(order, plan, epoch, position), objects_(std::move(objects)) {}

  bool Next(cache::PlannedRead* read) override {
    static_assert(ShardRead::kUnknown == cache::PlannedRead::kUnknown);
    // Objects of another store are passed over; when all are, there is no plan.
    for (size_t passed = 0; passed <= 2 * objects_->keys.size(); ++passed) {
      ShardRead shard;
      if (!reads_.Next(&shard)) return false;
      const std::string& key = objects_->keys[shard.shard];
      if (key.empty()) continue;
      *read = {.key = key,
               .offset = 0,
               .length = std::numeric_limits<uint64_t>::max(),  // to its end
               .first_use = shard.first_use,
               .last_use = shard.last_use,
               .next_use = shard.next_use};
      return true;
    }
    return false;
  }

 private:
  ShardReads reads_;
  const std::shared_ptr<const ShardObjects> objects_;
};

class HeldPlan final : public cache::PlanSource {
 public:
  HeldPlan(const Order& order, const BatchPlan& plan, const HeldShardsOptions& held, uint64_t epoch,
           uint64_t position, std::shared_ptr<const ShardObjects> objects)
      : shards_(order, plan, held, epoch, position), objects_(std::move(objects)) {}

  bool Next(cache::PlannedRead* read) override {
    // After two whole epochs without one there is none.
    for (size_t passed = 0; passed <= 3 * objects_->keys.size(); ++passed) {
      ShardRead shard;
      bool is_held = false;
      if (!shards_.Next(&shard, &is_held)) return false;
      if (!is_held) continue;
      *read = {.key = objects_->keys[shard.shard],
               .offset = 0,
               .length = objects_->bytes[shard.shard],
               .first_use = shard.first_use,
               .last_use = shard.last_use,
               .next_use = shard.next_use};
      return true;
    }
    return false;
  }

 private:
  HeldShards shards_;
  const std::shared_ptr<const ShardObjects> objects_;
};

}  // namespace

std::shared_ptr<const ShardObjects> FindShardObjects(const dataset::Dataset& dataset) {
  auto objects = std::make_shared<ShardObjects>();
  for (size_t shard = 0; shard < dataset.shards().size(); ++shard) {
    const dataset::ShardInfo& info = dataset.shards()[shard];
    objects->bytes.push_back(info.size_bytes);
    std::string& key = objects->keys.emplace_back();
    auto file = dataset.FileOfShard(shard);
    if (!file.ok()) return nullptr;
    objects->is_packed.push_back(!file->path.ends_with(info.name));
    auto place = object::FindObject(file->fs, file->path);
    if (!place.ok()) return nullptr;
    if (shard == 0) objects->store = std::dynamic_pointer_cast<cache::CachingStore>(place->store);
    if (!objects->store) return nullptr;
    if (place->store == objects->store) key = std::move(place->key);
  }
  return objects->store ? objects : nullptr;
}

std::unique_ptr<cache::PlanSource> MakeReadPlan(const Order& order, const BatchPlan& plan,
                                                uint64_t epoch, uint64_t position,
                                                std::shared_ptr<const ShardObjects> objects) {
  return std::make_unique<ReadPlan>(order, plan, epoch, position, std::move(objects));
}

std::unique_ptr<cache::PlanSource> MakeHeldPlan(const Order& order, const BatchPlan& plan,
                                                const HeldShardsOptions& held, uint64_t epoch,
                                                uint64_t position,
                                                std::shared_ptr<const ShardObjects> objects) {
  return std::make_unique<HeldPlan>(order, plan, held, epoch, position, std::move(objects));
}

std::vector<uint64_t> MemoryOfShards(const ShardObjects& objects, uint64_t limit_bytes) {
  std::vector<uint64_t> memory;
  for (size_t shard = 0; shard < objects.keys.size(); ++shard) {
    const uint64_t bytes = cache::BufferPool::CapacityFor(objects.bytes[shard]);
    const bool is_held =
        !objects.keys[shard].empty() && !objects.is_packed[shard] && bytes <= limit_bytes;
    memory.push_back(is_held ? bytes : 0);
  }
  return memory;
}

uint64_t ShareOfCache(const Order& order, const BatchPlan& plan, uint64_t limit_bytes,
                      uint32_t node_ranks) {
  const uint32_t parts = std::min(node_ranks, std::gcd(order.num_lanes(), plan.world_size()));
  return limit_bytes / std::max<uint32_t>(parts, 1);
}

cache::Displace DisplaceFor(const Order& order, const BatchPlan& plan, const ShardObjects& objects,
                            uint64_t limit_bytes, uint32_t node_ranks) {
  constexpr uint64_t kHeaders = 64;  // of what blocks hold, what else they take
  double own = 0;
  for (uint32_t shard : OwnShards(order, plan)) own += static_cast<double>(objects.bytes[shard]);
  const auto share = static_cast<double>(ShareOfCache(order, plan, limit_bytes, node_ranks));
  if (own + own / kHeaders <= share) return cache::Displace::kFarther;
  const auto windows = static_cast<double>(LargestWindowsBytes(order, plan, objects.bytes));
  const double lost = (own - share) * windows / own;
  return windows <= share / 2 && lost <= own / 100 ? cache::Displace::kFarther
                                                   : cache::Displace::kUnclaimed;
}

}  // namespace headrace::loader
