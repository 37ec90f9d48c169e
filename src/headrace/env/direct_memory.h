// Memory for reads and writes around the page cache: aligned to kDirectAlignment, and in huge pages
// where the system has them and there is enough to fill one, so that the disk's list of memory
// ranges is short. Any thread.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>

namespace headrace {

struct FreeDirectMemory {
  void operator()(std::byte* memory) const { std::free(memory); }
};
using DirectMemory = std::unique_ptr<std::byte, FreeDirectMemory>;

// At least `bytes`; null when there is no memory. The content is unspecified.
DirectMemory AllocateDirectMemory(size_t bytes);

}  // namespace headrace
