// What plans say to BlockCache: which blocks are expected and when they are needed, and the memory
// that is lent for them.
#include <algorithm>

#include "headrace/cache/block_cache.h"
#include "headrace/cache/block_flight.h"

namespace headrace::cache {

// Before it comes to flights_ or expected_.
void BlockCache::Hold(const BlockId& id) {
  if (!flights_.contains(id) && !expected_.contains(id))
    held_bytes_ += BufferPool::CapacityFor(id.length);
}

// After it has gone from one of them.
void BlockCache::LetGo(const BlockId& id) {
  if (!flights_.contains(id) && !expected_.contains(id))
    held_bytes_ -= BufferPool::CapacityFor(id.length);
}

uint64_t BlockCache::held_bytes() {
  MutexLock lock(&mu_);
  return held_bytes_;
}

bool BlockCache::Holds(const CachedObject& object, uint64_t offset, uint64_t length) {
  if (length == 0) return false;
  MutexLock lock(&mu_);
  if (held_bytes_ == 0) return false;
  const uint64_t last = (offset + length - 1) / object.block_bytes;
  for (uint64_t number = offset / object.block_bytes; number <= last; ++number) {
    const BlockId id = object.Block(number);
    if (!expected_.contains(id) && !flights_.contains(id)) return false;
  }
  return true;
}

uint64_t BlockCache::Lend(uint64_t wanted) {
  MutexLock lock(&mu_);
  const uint64_t lent = std::min(wanted, memory_.limit_bytes() - lent_bytes_);
  lent_bytes_ += lent;
  return lent;
}

void BlockCache::GiveBack(uint64_t bytes) {
  {
    MutexLock lock(&mu_);
    lent_bytes_ -= bytes;
    if (lent_bytes_ > 0) return;
  }
  memory_.DropUnneeded();
}

void BlockCache::Release(const BlockId& id, const ExpectedUse& next) {
  if (num_unread_.load(std::memory_order_relaxed) != 0) {
    MutexLock lock(&mu_);
    if (unread_.erase(id) != 0) {
      num_unread_ -= 1;
      counts_.unused_bytes += id.length;
    }
  }
  {
    MutexLock lock(&mu_);
    if (expected_.erase(id) != 0) LetGo(id);
    auto flight = flights_.find(id);
    if (flight != flights_.end()) flight->second->needed_until.reset();
  }
  memory_.Release(id);
  ChangeUse(id, next);
}

void BlockCache::Expect(const BlockId& id, const ExpectedUse& use, Displace displace,
                        uint64_t last_use) {
  {
    MutexLock lock(&mu_);
    Hold(id);
    expected_[id] = {use, displace, last_use};
    auto flight = flights_.find(id);
    if (flight != flights_.end()) flight->second->needed_until = last_use;
  }
  memory_.Need(id, last_use);
  ChangeUse(id, use);
}

void BlockCache::SetUse(const BlockId& id, const ExpectedUse& use) {
  std::optional<ExpectedUse> expected = ExpectedUseOf(id);
  if (!expected) {
    ChangeUse(id, use);
    expected = ExpectedUseOf(id);  // it may have become so meanwhile
    if (expected) ChangeUse(id, *expected);
  }
}

std::optional<ExpectedUse> BlockCache::ExpectedUseOf(const BlockId& id) {
  MutexLock lock(&mu_);
  auto found = expected_.find(id);
  return found == expected_.end() ? std::nullopt : std::optional(found->second.use);
}

// Of a block that is here, or on its way: AdmitFlight looks once more when it has come.
void BlockCache::ChangeUse(const BlockId& id, const ExpectedUse& use) {
  {
    MutexLock lock(&mu_);
    auto found = flights_.find(id);
    if (found != flights_.end()) found->second->use = use;
  }
  if (node_ && node_->Contains(id)) node_->SetUse(id, use);
}

}  // namespace headrace::cache
