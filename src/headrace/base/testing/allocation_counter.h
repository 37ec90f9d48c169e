// Counts the allocations of the whole process, for tests that prove a path allocates nothing. A
// test program that links it has its operator new and delete replaced. Thread-safe.
#pragma once

#include <cstdint>

namespace headrace::testing {

// Counts from construction on; one at a time.
class AllocationCounter {
 public:
  AllocationCounter();
  ~AllocationCounter();
  uint64_t count() const;
};

}  // namespace headrace::testing
