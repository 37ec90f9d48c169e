// A histogram of durations whose buckets are powers of two: counts[i] is how many were in
// [2^i, 2^(i+1)) ns, the first one from 0 on, the last one without an end. All histograms have the
// same buckets, so adding and subtracting them is exact. A plain value: one owner at a time.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace headrace {

struct LogHistogram {
  static constexpr size_t kBuckets = 40;  // the last one begins at 2^39 ns, about 9 minutes

  static constexpr size_t BucketOf(uint64_t ns) {
    const size_t bucket = ns == 0 ? 0 : static_cast<size_t>(std::bit_width(ns)) - 1;
    return bucket < kBuckets ? bucket : kBuckets - 1;
  }

  uint64_t operator[](size_t bucket) const { return counts[bucket]; }
  void Record(uint64_t ns) { ++counts[BucketOf(ns)]; }
  uint64_t Total() const;
  void Add(const LogHistogram& other);
  // Takes away what was counted before: what an earlier look at the same histogram has. A count
  // never falls below 0.
  void Subtract(const LogHistogram& earlier);
  // Returns the duration in ns below which the fraction `q` (0 to 1) of the events lies: the upper
  // edge of its bucket, so at most twice too long; 0 without events.
  uint64_t Percentile(double q) const;
  bool operator==(const LogHistogram&) const = default;

  std::array<uint64_t, kBuckets> counts{};
};

}  // namespace headrace
