// Something with threads or locks that a forked child must not share: each process makes its own
// when it first asks. Thread-safe. That of a parent is left alone in a child: its threads are not
// there, and its locks may be held for ever.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <utility>

#include "headrace/env/process.h"

namespace headrace::object {

template <typename T>
class PerProcess {
 public:
  explicit PerProcess(std::function<std::unique_ptr<T>()> make) : make_(std::move(make)) {}
  ~PerProcess() {
    Entry* entry = entry_.load();
    if (entry && entry->generation == ForkGeneration()) delete entry;
  }
  PerProcess(const PerProcess&) = delete;
  PerProcess& operator=(const PerProcess&) = delete;

  T& Get() {
    const uint64_t generation = ForkGeneration();
    Entry* entry = entry_.load(std::memory_order_acquire);
    if (entry && entry->generation == generation) return *entry->value;
    auto fresh = std::make_unique<Entry>(Entry{generation, make_()});
    // Another thread may have been faster; then `entry` is its value.
    if (entry_.compare_exchange_strong(entry, fresh.get(), std::memory_order_acq_rel))
      return *fresh.release()->value;
    return *entry->value;
  }

 private:
  struct Entry {
    uint64_t generation;
    std::unique_ptr<T> value;
  };
  const std::function<std::unique_ptr<T>()> make_;
  std::atomic<Entry*> entry_{nullptr};
};

}  // namespace headrace::object
