// A count that many threads add to. Copying it takes its value at that moment, so a struct of
// counters is copied whole to be looked at; the values of such a copy may be of slightly different
// moments. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>

namespace headrace {

class Counter {
 public:
  Counter(uint64_t value = 0) : value_(value) {}  // NOLINT: implicit by design
  Counter(const Counter& other) : value_(other.value()) {}
  Counter& operator=(const Counter& other) {
    value_.store(other.value(), std::memory_order_relaxed);
    return *this;
  }

  uint64_t value() const { return value_.load(std::memory_order_relaxed); }
  operator uint64_t() const { return value(); }  // NOLINT: implicit by design
  Counter& operator+=(uint64_t more) {
    value_.fetch_add(more, std::memory_order_relaxed);
    return *this;
  }

 private:
  std::atomic<uint64_t> value_;
};

}  // namespace headrace
