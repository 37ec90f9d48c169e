// How many requests may be under way at once to a store that says "slow down": additive increase,
// multiplicative decrease. Pure logic on a given clock. Not thread-safe: its owner locks.
#pragma once

#include <algorithm>
#include <cstdint>

namespace headrace::cache {

class RequestLimit {
 public:
  struct Options {
    uint32_t start = 8;
    uint32_t most = 64;
    // After a decrease no further one for so long: the answers of requests that were already under
    // way tell of the old rate.
    uint64_t hold_ms = 500;
  };
  explicit RequestLimit(Options options)
      : options_(options), limit_(std::clamp<double>(options.start, 1, Most())) {}

  // At least 1.
  uint32_t limit() const { return static_cast<uint32_t>(limit_); }
  // Allows so many at most from now on. More are tried one by one, as answers come well.
  void SetMost(uint32_t most) {
    options_.most = most;
    limit_ = std::min(limit_, Most());
  }

  // A request was answered well. `all_in_use` = as many were under way as the limit allows: only
  // then more may help. A full round of answers adds one.
  void Succeed(bool all_in_use) {
    if (all_in_use) limit_ = std::min<double>(limit_ + 1 / limit_, Most());
  }
  // The store was overloaded (503, 429) or did not answer. Returns true when the limit was halved.
  bool Overload(uint64_t now_ms) {
    if (now_ms < hold_until_ms_) return false;
    limit_ = std::max(1.0, limit_ / 2);
    hold_until_ms_ = now_ms + options_.hold_ms;
    return true;
  }

 private:
  double Most() const { return std::max<uint32_t>(options_.most, 1); }

  Options options_;
  double limit_;
  uint64_t hold_until_ms_ = 0;
};

}  // namespace headrace::cache
