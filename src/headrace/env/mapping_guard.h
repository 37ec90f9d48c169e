// Keeps the process alive where a page of a mapped file cannot be read any more: its disk has
// failed, its mount has gone, or the file was cut. The kernel tells that by SIGBUS, which would end
// the process. Internal to env; docs/decisions/0039-faults-of-mapped-files.md.
//
// One handler for the whole process, put in place with the first range. Faults anywhere else go to
// the handler that was there before (Python's faulthandler, a sanitizer's), or to the default: the
// process then ends as it would have. Thread-safe; works in forked children.
#pragma once

#include <atomic>
#include <cstddef>

namespace headrace {

class GuardedRange {
 public:
  struct Slot;

  // From now until this is destroyed a fault in the range [start, start + bytes), which is mapped
  // with `protection`, puts private pages of zeros in its place, all of it, for good.
  GuardedRange(void* start, size_t bytes, int protection);
  // Before it is unmapped.
  ~GuardedRange();
  GuardedRange(const GuardedRange&) = delete;
  GuardedRange& operator=(const GuardedRange&) = delete;

  // True after a fault: what was read from the range since then may be zeros, and what was written
  // goes nowhere. Ask after reading. Cheap (one load).
  bool failed() const;

 private:
  Slot* const slot_;
};

}  // namespace headrace
