// When a disk that failed is tried again. Pure logic on a given clock. Not thread-safe: its owner
// locks.
//
// healthy -> (failure) suspended -> (time is up) one probe -> healthy, or suspended for twice as
// long. Nothing is given up for good.
#pragma once

#include <algorithm>
#include <cstdint>

namespace headrace::cache {

class Suspension {
 public:
  struct Options {
    uint64_t first_ms = 1000;
    uint64_t longest_ms = 60000;
  };
  Suspension() : Suspension(Options()) {}
  explicit Suspension(Options options) : options_(options) {}

  bool suspended() const { return wait_ms_ != 0; }

  // True when the thing may be used now. While it is suspended and its time is up, one caller gets
  // true: the probe. It must tell how that went; one that does not is replaced after the wait.
  bool Allow(uint64_t now_ms) {
    if (!suspended()) return true;
    if (now_ms < until_ms_) return false;
    until_ms_ = now_ms + wait_ms_;
    return true;
  }
  // Returns true when this ends a healthy time: the moment to warn.
  bool Fail(uint64_t now_ms) {
    bool first = !suspended();
    wait_ms_ = first ? options_.first_ms : std::min(wait_ms_ * 2, options_.longest_ms);
    until_ms_ = now_ms + wait_ms_;
    return first;
  }
  // Returns true when this ends a suspension.
  bool Succeed() {
    bool recovered = suspended();
    wait_ms_ = 0;
    return recovered;
  }

 private:
  Options options_;
  uint64_t wait_ms_ = 0;  // 0 = healthy
  uint64_t until_ms_ = 0;
};

}  // namespace headrace::cache
