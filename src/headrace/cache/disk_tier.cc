#include "headrace/cache/disk_tier.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "headrace/base/keyed_random.h"

namespace headrace::cache {

namespace {

// Of the bytes of a name; decides where blocks lie, so it does not change.
uint64_t SeedOf(std::string_view directory) {
  uint64_t seed = 0;
  for (char c : directory) seed = CombineKey(seed, static_cast<unsigned char>(c));
  return seed;
}

}  // namespace

std::vector<std::string> SplitDirectories(std::string_view directories) {
  std::vector<std::string> list;
  while (!directories.empty()) {
    size_t colon = std::min(directories.find(':'), directories.size());
    std::string_view one = directories.substr(0, colon);
    directories.remove_prefix(std::min(colon + 1, directories.size()));
    while (one.size() > 1 && one.ends_with('/')) one.remove_suffix(1);
    if (!one.empty() && std::find(list.begin(), list.end(), one) == list.end())
      list.emplace_back(one);
  }
  return list;
}

Result<std::unique_ptr<DiskTier>> DiskTier::Open(FileSystem* fs, const NodeCacheOptions& options,
                                                 const Context& ctx) {
  std::vector<std::string> directories = SplitDirectories(options.directory);
  if (directories.empty()) return Status(Code::kInvalidArgument, "the cache needs a directory");
  std::unique_ptr<DiskTier> tier(new DiskTier);
  NodeCacheOptions one = options;
  if (options.limit_bytes != 0)
    one.limit_bytes = std::max<uint64_t>(options.limit_bytes / directories.size(), 1);
  for (std::string& directory : directories) {
    tier->shares_.push_back({.seed = SeedOf(directory)});
    one.directory = std::move(directory);
    HR_ASSIGN_OR_RETURN(auto disk, NodeCache::Open(fs, one, ctx));
    tier->disks_.push_back(std::move(disk));
  }
  tier->Weigh(one.limit_bytes);
  return tier;
}

// Once, so that a block stays where it is while a disk comes and goes. One that does not work now
// is taken to be like the others.
void DiskTier::Weigh(uint64_t limit_bytes) {
  uint64_t sum = 0, known = 0;
  for (const auto& disk : disks_) {
    sum += disk->limit_bytes();
    known += disk->limit_bytes() != 0;
  }
  for (size_t i = 0; i < disks_.size(); ++i) {
    uint64_t limit = disks_[i]->limit_bytes();
    if (limit == 0) limit = limit_bytes;
    if (limit == 0 && known != 0) limit = sum / known;
    shares_[i].weight = std::max(static_cast<double>(limit), 1.0);
  }
}

// Weighted rendezvous hashing: each disk draws an exponential time at the rate of its weight, and
// the first wins. Where a disk is added or resized only the blocks it wins or loses move.
size_t DiskTier::PlaceOf(const BlockId& id) const {
  size_t best = 0;
  double earliest = 0;
  for (size_t i = 0; disks_.size() > 1 && i < disks_.size(); ++i) {
    uint64_t draw = HashKey(shares_[i].seed, id.object.high, id.object.low, id.number) >> 11;
    double uniform = (static_cast<double>(draw) + 0.5) * 0x1.0p-53;
    double time = -std::log(uniform) / shares_[i].weight;
    if (i == 0 || time < earliest) {
      best = i;
      earliest = time;
    }
  }
  return best;
}

void DiskTier::SetUse(const BlockId& id, const ExpectedUse& use) {
  NodeCache* disk = Of(id);
  if (use.plan != kNoPlan) return disk->SetUse(id, use);
  disk->SetUse(id, {kNoPlan, disk->Now()});
}

Result<NodeCache::PlanSlot> DiskTier::JoinPlans() {
  size_t first = 0;
  while (first + 1 < disks_.size() && !disks_[first]->healthy()) ++first;
  std::vector<NodeCache::PlanSlot> taken;  // held, so that another one is offered
  while (true) {
    HR_ASSIGN_OR_RETURN(NodeCache::PlanSlot slot, disks_[first]->JoinPlans());
    if (JoinOthers(first, &slot)) return slot;
    taken.push_back(std::move(slot));
  }
}

// Takes the slot's number in the others too. False when another plan has it there.
bool DiskTier::JoinOthers(size_t first, NodeCache::PlanSlot* slot) {
  for (size_t i = 0; i < disks_.size(); ++i) {
    if (i == first) continue;
    auto joined = disks_[i]->JoinPlansAs(slot->plan);
    if (joined.ok())
      std::move(joined->locks.begin(), joined->locks.end(), std::back_inserter(slot->locks));
    else if (joined.status().code() == Code::kAlreadyExists)
      return false;
    // One that does not work takes no blocks, or gets its progress when it works again.
  }
  return true;
}

void DiskTier::SetProgress(const NodeCache::PlanSlot& slot, uint64_t position,
                           uint64_t ns_per_position) {
  for (const auto& disk : disks_) disk->SetProgress(slot, position, ns_per_position);
}

uint64_t DiskTier::used_bytes() const {
  uint64_t sum = 0;
  for (const auto& disk : disks_) sum += disk->used_bytes();
  return sum;
}

uint64_t DiskTier::limit_bytes() const {
  uint64_t sum = 0;
  for (const auto& disk : disks_) sum += disk->limit_bytes();
  return sum;
}

bool DiskTier::healthy() const {
  return std::any_of(disks_.begin(), disks_.end(),
                     [](const auto& disk) { return disk->healthy(); });
}

NodeCacheCounters DiskTier::counters() const {
  NodeCacheCounters sum;
  for (const auto& disk : disks_) sum += disk->counters();
  return sum;
}

}  // namespace headrace::cache
