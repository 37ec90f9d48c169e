// A value that a forked child must have anew: what holds locks or threads. The child's first Get
// makes its own; the parent's copy is left alone there, since its threads do not exist and its
// locks may be held for ever. Thread-safe.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <utility>

#include "headrace/env/process.h"

namespace headrace::cache {

template <typename T>
class ForkLocal {
 public:
  // `make` is called in each process at its first Get; it may return null.
  explicit ForkLocal(std::function<std::unique_ptr<T>()> make) : make_(std::move(make)) {
    (void)ForkGeneration();  // counted from the first call on
  }
  ForkLocal(const ForkLocal&) = delete;
  ForkLocal& operator=(const ForkLocal&) = delete;
  ~ForkLocal() {
    Slot* slot = slot_.load(std::memory_order_acquire);
    if (slot && slot->generation == ForkGeneration()) delete slot;
  }

  // The same value for all threads of this process.
  T* Get() {
    Slot* slot = slot_.load(std::memory_order_acquire);
    uint64_t generation = ForkGeneration();
    if (slot && slot->generation == generation) return slot->value.get();
    auto fresh = std::make_unique<Slot>(Slot{generation, make_()});
    // Fails when another thread of this process was first.
    if (!slot_.compare_exchange_strong(slot, fresh.get(), std::memory_order_acq_rel))
      return slot->value.get();
    return fresh.release()->value.get();
  }

 private:
  struct Slot {
    uint64_t generation;
    std::unique_ptr<T> value;
  };
  const std::function<std::unique_ptr<T>()> make_;
  std::atomic<Slot*> slot_{nullptr};
};

}  // namespace headrace::cache
