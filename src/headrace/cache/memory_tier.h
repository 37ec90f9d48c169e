// Blocks kept in memory, the least recently used of which go first: at most so many bytes.
// Thread-safe.
#pragma once

#include <list>
#include <memory>
#include <unordered_map>

#include "headrace/base/bytes.h"
#include "headrace/base/mutex.h"
#include "headrace/cache/block_format.h"

namespace headrace::cache {

// The bytes of one block, and whatever owns them. Valid for as long as it is held, also after the
// tier has given it up.
struct BlockBytes {
  BlockId id;
  Bytes data;
  std::shared_ptr<const void> owner;
};

class MemoryTier {
 public:
  explicit MemoryTier(uint64_t limit_bytes) : limit_bytes_(limit_bytes) {}

  std::shared_ptr<const BlockBytes> Find(const BlockId& id) {
    MutexLock lock(&mu_);
    auto found = places_.find(id);
    if (found == places_.end()) return nullptr;
    order_.splice(order_.begin(), order_, found->second);
    return order_.front();
  }

  // Keeps the block, giving up others. One that is larger than the limit is not kept.
  void Insert(std::shared_ptr<const BlockBytes> block) {
    MutexLock lock(&mu_);
    if (block->data.size() > limit_bytes_ || places_.contains(block->id)) return;
    bytes_ += block->data.size();
    order_.push_front(std::move(block));
    places_.emplace(order_.front()->id, order_.begin());
    while (bytes_ > limit_bytes_) {
      bytes_ -= order_.back()->data.size();
      places_.erase(order_.back()->id);
      order_.pop_back();
    }
  }

  uint64_t limit_bytes() const { return limit_bytes_; }
  uint64_t bytes() {
    MutexLock lock(&mu_);
    return bytes_;
  }

 private:
  using Order = std::list<std::shared_ptr<const BlockBytes>>;  // used last first
  const uint64_t limit_bytes_;
  Mutex mu_;  // order: none is taken under it
  Order order_ HR_GUARDED_BY(mu_);
  std::unordered_map<BlockId, Order::iterator, BlockIdHash> places_ HR_GUARDED_BY(mu_);
  uint64_t bytes_ HR_GUARDED_BY(mu_) = 0;
};

}  // namespace headrace::cache
