#include "headrace/cache/memory_tier.h"

#include <vector>

namespace headrace::cache {
namespace {

const void* OwnerOf(const BlockBytes& block) {
  return block.owner ? block.owner.get() : static_cast<const void*>(block.data.data());
}

uint64_t OwnerBytes(const BlockBytes& block) {
  return block.owner_bytes > 0 ? block.owner_bytes : block.data.size();
}

}  // namespace

std::shared_ptr<const BlockBytes> MemoryTier::Find(const BlockId& id) {
  MutexLock lock(&mu_);
  auto found = blocks_.find(id);
  if (found == blocks_.end()) return nullptr;
  if (!found->second.needed_until) order_.splice(order_.begin(), order_, found->second.place);
  return found->second.block;
}

void MemoryTier::Insert(std::shared_ptr<const BlockBytes> block,
                        std::optional<uint64_t> needed_until) {
  std::vector<std::shared_ptr<const BlockBytes>> gone;  // freed after the lock
  if (OwnerBytes(*block) > limit_bytes_) return;
  MutexLock lock(&mu_);
  const BlockId id = block->id;
  auto [place, is_new] = blocks_.try_emplace(id);
  if (!is_new) return;
  Owner& owner = owners_[OwnerOf(*block)];
  if (owner.blocks++ == 0) {
    owner.bytes = OwnerBytes(*block);
    bytes_ += owner.bytes;
  }
  place->second.block = std::move(block);
  place->second.needed_until = needed_until;
  File(id, &place->second);
  while (bytes_ > limit_bytes_) {
    const BlockId victim = order_.empty() ? needed_.rbegin()->second : order_.back();
    gone.push_back(Drop(blocks_.find(victim)));
  }
}

void MemoryTier::Remove(const BlockId& id) {
  std::shared_ptr<const BlockBytes> gone;
  MutexLock lock(&mu_);
  auto found = blocks_.find(id);
  if (found != blocks_.end()) gone = Drop(found);
}

void MemoryTier::DropUnneeded() {
  std::vector<std::shared_ptr<const BlockBytes>> gone;
  MutexLock lock(&mu_);
  while (!order_.empty()) gone.push_back(Drop(blocks_.find(BlockId(order_.back()))));
}

void MemoryTier::Change(const BlockId& id, std::optional<uint64_t> needed_until) {
  if (limit_bytes_ == 0) return;
  MutexLock lock(&mu_);
  auto found = blocks_.find(id);
  if (found == blocks_.end() || found->second.needed_until == needed_until) return;
  Unfile(id, found->second);
  found->second.needed_until = needed_until;
  File(id, &found->second);
}

uint64_t MemoryTier::bytes() {
  MutexLock lock(&mu_);
  return bytes_;
}

void MemoryTier::File(const BlockId& id, Kept* kept) {
  if (kept->needed_until) {
    needed_.emplace(*kept->needed_until, id);
  } else {
    order_.push_front(id);
    kept->place = order_.begin();
  }
}

void MemoryTier::Unfile(const BlockId& id, const Kept& kept) {
  if (kept.needed_until)
    needed_.erase({*kept.needed_until, id});
  else
    order_.erase(kept.place);
}

std::shared_ptr<const BlockBytes> MemoryTier::Drop(Blocks::iterator found) {
  Unfile(found->first, found->second);
  std::shared_ptr<const BlockBytes> block = std::move(found->second.block);
  auto owner = owners_.find(OwnerOf(*block));
  if (--owner->second.blocks == 0) {
    bytes_ -= owner->second.bytes;
    owners_.erase(owner);
  }
  blocks_.erase(found);
  return block;
}

}  // namespace headrace::cache
