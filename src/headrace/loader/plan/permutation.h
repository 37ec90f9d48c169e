// A keyed permutation of the numbers 0..n: which number comes i-th is computed, never stored. Part
// of the stored contract (docs/formats/order.md): it never changes. Pure; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <utility>

#include "headrace/base/keyed_random.h"

namespace headrace::loader {

// A permutation of 0..size, drawn by `key`. Every key is as likely to give any arrangement as any
// other, up to what a statistical test can see. Up to 16 numbers are shuffled one by one; more go
// through a Feistel network of eight rounds, walked on until it lands inside (fewer than two steps
// on average). Cheap to make; one value may be used by many threads.
class KeyedPermutation {
 public:
  static constexpr uint64_t kListedSize = 16;  // largest size that is shuffled as a list
  static constexpr int kRounds = 8;

  KeyedPermutation(uint64_t size, uint64_t key) : size_(size), key_(key) {}

  // The number at place `index` < size. O(1).
  uint64_t operator()(uint64_t index) const {
    return size_ <= kListedSize ? Listed(index) : Feistel(index);
  }

 private:
  uint64_t Listed(uint64_t index) const {
    std::array<uint8_t, kListedSize> list;
    for (uint64_t i = 0; i < kListedSize; ++i) list[i] = static_cast<uint8_t>(i);
    KeyedRandom random(key_);
    for (uint64_t last = size_; last-- > 1;)
      std::swap(list[last], list[random.NextBelow(last + 1)]);
    return list[index];
  }

  uint64_t Feistel(uint64_t index) const {
    const int bits = 64 - __builtin_clzll(size_ - 1);
    const int low_bits = (bits + 1) / 2;
    const uint64_t low_mask = (uint64_t{1} << low_bits) - 1;
    const uint64_t high_mask = (uint64_t{1} << (bits - low_bits)) - 1;
    std::array<uint64_t, kRounds> round_keys;
    KeyedRandom random(key_);
    for (uint64_t& round_key : round_keys) round_key = random.Next();
    do {
      uint64_t high = index >> low_bits, low = index & low_mask;
      for (int round = 0; round < kRounds; round += 2) {
        high ^= Mix64(round_keys[round] + low) & high_mask;
        low ^= Mix64(round_keys[round + 1] + high) & low_mask;
      }
      index = high << low_bits | low;
    } while (index >= size_);
    return index;
  }

  uint64_t size_, key_;
};

}  // namespace headrace::loader
