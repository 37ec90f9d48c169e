// Memory for blocks that are fetched, used again: pages that the system has given already cost
// nothing more, new ones have to be zeroed first. Thread-safe.
#pragma once

#include <cstdlib>
#include <memory>
#include <vector>

#include "headrace/base/bytes.h"
#include "headrace/base/mutex.h"

namespace headrace::cache {

class BufferPool {
 public:
  // Aligned for reads and writes around the page cache (kDirectAlignment), to whole units of it.
  struct Buffer {
    std::byte* data = nullptr;
    size_t capacity = 0;

    Buffer() = default;
    Buffer(Buffer&& other) noexcept { *this = std::move(other); }
    Buffer& operator=(Buffer&& other) noexcept {
      std::swap(data, other.data);
      std::swap(capacity, other.capacity);
      return *this;
    }
    ~Buffer() { std::free(data); }
  };

  // How much larger than wanted a buffer may be that is used again.
  enum class Fit : uint8_t {
    kQuarterMore,
    kExact,  // but for the rest of a unit: what is held is then what was counted
  };

  // Keeps up to `max_idle_bytes` for the next ones.
  explicit BufferPool(uint64_t max_idle_bytes, Fit fit = Fit::kQuarterMore)
      : idle_(std::make_shared<Idle>(max_idle_bytes, fit)) {}

  // What a new buffer for so many bytes takes, and with kExact a used one too.
  static uint64_t CapacityFor(uint64_t bytes);
  // At least `bytes` bytes of any content; null when memory cannot be had. They come back when the
  // last owner lets go, which may be after the pool's end.
  std::shared_ptr<const Buffer> Take(size_t bytes);

 private:
  struct Idle {
    Idle(uint64_t most, Fit how) : max_bytes(most), fit(how) {}
    const uint64_t max_bytes;
    const Fit fit;
    Mutex mu;                                       // order: none is taken under it
    std::vector<Buffer> buffers HR_GUARDED_BY(mu);  // the oldest first
    uint64_t bytes HR_GUARDED_BY(mu) = 0;
  };

  static Buffer Find(Idle* idle, size_t bytes);
  static void Return(Idle* idle, Buffer buffer);

  const std::shared_ptr<Idle> idle_;
};

}  // namespace headrace::cache
