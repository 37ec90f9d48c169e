#include "headrace/loader/plan/held_shards.h"

#include <algorithm>
#include <utility>

namespace headrace::loader {

HeldShards::HeldShards(const Order& order, const BatchPlan& plan, HeldShardsOptions options,
                       uint64_t epoch, uint64_t position)
    : options_(std::move(options)), reads_(order, plan, epoch, position) {}

bool HeldShards::Next(ShardRead* read, bool* is_held) {
  if (!reads_.Next(read)) return false;
  LetGo(read->first_use);
  *is_held = read->is_whole && Hold(*read);
  return true;
}

bool HeldShards::Hold(const ShardRead& read) {
  const uint64_t bytes = options_.shard_bytes[read.shard];
  auto held = until_.find(read.shard);
  if (held == until_.end()) {
    if (bytes == 0 || bytes > options_.limit_bytes - held_bytes_) return false;
    held_bytes_ += bytes;
  }
  until_[read.shard] = read.last_use;
  ends_.emplace(read.last_use, read.shard);
  return true;
}

// What must still be there when the rank, `lead` positions behind its readers, comes to `position`.
void HeldShards::LetGo(uint64_t position) {
  while (!ends_.empty() && ends_.top().first + options_.lead < position) {
    const auto [last_use, shard] = ends_.top();
    ends_.pop();
    auto held = until_.find(shard);
    if (held == until_.end() || held->second != last_use) continue;
    held_bytes_ -= options_.shard_bytes[shard];
    until_.erase(held);
  }
}

uint64_t MemoryWanted(const Order& order, const BatchPlan& plan, HeldShardsOptions options,
                      uint64_t epoch, uint64_t position) {
  uint64_t all = 0, most = 0;
  for (uint32_t shard : OwnShards(order, plan)) all += options.shard_bytes[shard];
  options.limit_bytes = all;
  HeldShards shards(order, plan, std::move(options), epoch, position);
  const uint64_t end = (epoch + 2) * EpochPositions(plan);
  ShardRead read;
  bool is_held = false;
  while (shards.Next(&read, &is_held) && read.first_use < end)
    most = std::max(most, shards.held_bytes());
  return std::min(all, most + most / 8);
}

HeldShardTable::HeldShardTable(const Order& order, const BatchPlan& plan,
                               const HeldShardsOptions& options, uint64_t epoch, uint64_t position)
    : epoch_length_(EpochPositions(plan)),
      shards_(order, plan, options, epoch, position),
      next_epoch_(epoch),
      held_(kEpochs, std::vector<bool>(options.shard_bytes.size())) {}

bool HeldShardTable::IsHeld(uint64_t epoch, uint32_t shard) {
  if (epoch >= next_epoch_ + kMostAhead) return false;
  while (next_epoch_ <= epoch) Load(next_epoch_++);
  return epoch + kEpochs >= next_epoch_ && held_[epoch % kEpochs][shard];
}

void HeldShardTable::Load(uint64_t epoch) {
  std::vector<bool>& held = held_[epoch % kEpochs];
  std::fill(held.begin(), held.end(), false);
  const uint64_t end = (epoch + 1) * epoch_length_;
  while (has_pending_ || (has_pending_ = shards_.Next(&pending_, &pending_is_held_))) {
    if (pending_.first_use >= end) return;
    held[pending_.shard] = pending_is_held_;
    has_pending_ = false;
  }
}

}  // namespace headrace::loader
