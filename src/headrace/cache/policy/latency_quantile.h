// The delay after which a request counts as late: an upper bound of a quantile of the delays seen
// lately. Pure logic. Not thread-safe: its owner locks.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <optional>

namespace headrace::cache {

class LatencyQuantile {
 public:
  // Older delays lose half of their weight every `half_life` delays; nothing is said before
  // `at_least` of them.
  explicit LatencyQuantile(double quantile = 0.99, uint32_t at_least = 100,
                           uint32_t half_life = 2000)
      : quantile_(quantile), at_least_(at_least), half_life_(half_life) {}

  void Add(uint64_t microseconds) {
    ++counts_[BucketOf(microseconds)];
    ++total_;
    if (total_ < half_life_) return;
    total_ = 0;
    for (uint32_t& count : counts_) total_ += count /= 2;
  }
  // Microseconds; empty while too little is known.
  std::optional<uint64_t> Get() const {
    if (total_ < at_least_) return std::nullopt;
    double wanted = quantile_ * total_, seen = 0;
    for (size_t i = 0; i < counts_.size(); ++i) {
      seen += counts_[i];
      if (seen >= wanted) return UpperEdge(i);
    }
    return UpperEdge(counts_.size() - 1);
  }

 private:
  // Four buckets for each power of two.
  static size_t BucketOf(uint64_t value) {
    if (value < 4) return value;
    size_t power = std::bit_width(value) - 1;
    return (power - 1) * 4 + ((value >> (power - 2)) & 3);
  }
  static uint64_t UpperEdge(size_t bucket) {
    if (bucket < 4) return bucket + 1;
    size_t power = bucket / 4 + 1;
    return (uint64_t{4} + bucket % 4 + 1) << (power - 2);
  }

  double quantile_;
  uint32_t at_least_, half_life_;
  uint32_t total_ = 0;
  std::array<uint32_t, 256> counts_{};
};

}  // namespace headrace::cache
