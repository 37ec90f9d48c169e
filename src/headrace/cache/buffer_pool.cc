#include "headrace/cache/buffer_pool.h"

#include <algorithm>

#include "headrace/env/file.h"

namespace headrace::cache {

uint64_t BufferPool::CapacityFor(uint64_t bytes) {
  return (std::max<uint64_t>(bytes, 1) + kDirectAlignment - 1) / kDirectAlignment *
         kDirectAlignment;
}

std::shared_ptr<const BufferPool::Buffer> BufferPool::Take(size_t bytes) {
  Buffer buffer = Find(idle_.get(), bytes);
  if (!buffer.data) {
    const size_t capacity = CapacityFor(bytes);
    buffer.data = static_cast<std::byte*>(std::aligned_alloc(kDirectAlignment, capacity));
    if (!buffer.data) return nullptr;
    buffer.capacity = capacity;
  }
  return {new Buffer(std::move(buffer)), [idle = idle_](const Buffer* returned) {
            std::unique_ptr<Buffer> owned(const_cast<Buffer*>(returned));
            Return(idle.get(), std::move(*owned));
          }};
}

// The smallest that fits; one that is much larger would keep memory from others.
BufferPool::Buffer BufferPool::Find(Idle* idle, size_t bytes) {
  const size_t largest =
      idle->fit == Fit::kExact ? CapacityFor(bytes) : bytes + bytes / 4 + kDirectAlignment;
  MutexLock lock(&idle->mu);
  auto best = idle->buffers.end();
  for (auto one = idle->buffers.begin(); one != idle->buffers.end(); ++one) {
    if (one->capacity < bytes || one->capacity > largest) continue;
    if (best == idle->buffers.end() || one->capacity < best->capacity) best = one;
  }
  if (best == idle->buffers.end()) return {};
  Buffer found = std::move(*best);
  idle->buffers.erase(best);
  idle->bytes -= found.capacity;
  return found;
}

void BufferPool::Return(Idle* idle, Buffer buffer) {
  std::vector<Buffer> gone;  // freed after the lock
  MutexLock lock(&idle->mu);
  idle->bytes += buffer.capacity;
  idle->buffers.push_back(std::move(buffer));
  size_t num_gone = 0;
  while (idle->bytes > idle->max_bytes) {
    idle->bytes -= idle->buffers[num_gone].capacity;
    gone.push_back(std::move(idle->buffers[num_gone++]));
  }
  idle->buffers.erase(idle->buffers.begin(),
                      idle->buffers.begin() + static_cast<std::ptrdiff_t>(num_gone));
}

}  // namespace headrace::cache
