#include "headrace/base/testing/allocation_counter.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {
std::atomic<bool> counting{false};
std::atomic<uint64_t> allocations{0};

void* AllocateOrNull(size_t size) noexcept {
  if (counting.load(std::memory_order_relaxed)) allocations.fetch_add(1, std::memory_order_relaxed);
  return std::malloc(size);
}

void* Allocate(size_t size) {
  if (void* p = AllocateOrNull(size)) return p;
  throw std::bad_alloc();
}
}  // namespace

void* operator new(size_t size) { return Allocate(size); }
void* operator new[](size_t size) { return Allocate(size); }
// Also these: a sanitizer brings its own, which the operators below do not match.
void* operator new(size_t size, const std::nothrow_t&) noexcept { return AllocateOrNull(size); }
void* operator new[](size_t size, const std::nothrow_t&) noexcept { return AllocateOrNull(size); }
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept { std::free(p); }
void operator delete[](void* p, size_t) noexcept { std::free(p); }

namespace headrace::testing {

AllocationCounter::AllocationCounter() {
  allocations.store(0);
  counting.store(true);
}
AllocationCounter::~AllocationCounter() { counting.store(false); }
uint64_t AllocationCounter::count() const { return allocations.load(); }

}  // namespace headrace::testing
