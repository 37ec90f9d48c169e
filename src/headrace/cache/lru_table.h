// A few values by block, the least recently used of which go first. Not thread-safe: its owner
// locks.
#pragma once

#include <cstdint>
#include <list>
#include <unordered_map>
#include <utility>

#include "headrace/cache/block_format.h"

namespace headrace::cache {

template <typename Value>
class LruTable {
 public:
  explicit LruTable(size_t max_entries) : max_entries_(max_entries) {}

  // Null when it is not here; else valid until the table is changed.
  const Value* Find(const BlockId& id) {
    auto found = places_.find(id);
    if (found == places_.end()) return nullptr;
    order_.splice(order_.begin(), order_, found->second);
    return &order_.front().value;
  }

  // Replaces what was there.
  void Insert(const BlockId& id, Value value, uint64_t bytes) {
    Erase(id);
    bytes_ += bytes;
    order_.push_front({id, std::move(value), bytes});
    places_.emplace(id, order_.begin());
    if (order_.size() > max_entries_) EraseLast();
  }

  void Erase(const BlockId& id) {
    auto found = places_.find(id);
    if (found == places_.end()) return;
    bytes_ -= found->second->bytes;
    order_.erase(found->second);
    places_.erase(found);
  }

  // Gives up values until what is left has at most so many bytes.
  void Shrink(uint64_t max_bytes) {
    while (bytes_ > max_bytes) EraseLast();
  }

  size_t size() const { return order_.size(); }

 private:
  struct Entry {
    BlockId id;
    Value value;
    uint64_t bytes;
  };
  void EraseLast() { Erase(BlockId(order_.back().id)); }

  const size_t max_entries_;
  std::list<Entry> order_;  // used last first
  std::unordered_map<BlockId, typename std::list<Entry>::iterator, BlockIdHash> places_;
  uint64_t bytes_ = 0;
};

}  // namespace headrace::cache
