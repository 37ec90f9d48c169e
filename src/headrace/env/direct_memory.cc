#include "headrace/env/direct_memory.h"

#include <sys/mman.h>

#include "headrace/env/file.h"

namespace headrace {

DirectMemory AllocateDirectMemory(size_t bytes) {
  constexpr size_t kHugePageBytes = size_t{2} << 20;
  const size_t alignment = bytes < kHugePageBytes ? kDirectAlignment : kHugePageBytes;
  const size_t whole = (bytes + alignment - 1) / alignment * alignment;
  DirectMemory memory(static_cast<std::byte*>(std::aligned_alloc(alignment, whole)));
  // Only a wish, so its failure is none.
  if (memory && alignment == kHugePageBytes) ::madvise(memory.get(), whole, MADV_HUGEPAGE);
  return memory;
}

}  // namespace headrace
