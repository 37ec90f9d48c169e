// Python bytes objects that are filled by native threads and used again once nobody else holds
// them.
//
// Allocating tens of megabytes of fresh objects for each batch costs more than reading them: the
// allocator gives the memory back to the system and gets it again, page by page. So an object whose
// only reference is the pool's is given a new size and content. That is what CPython itself does
// with a bytes object that has one reference (_PyBytes_Resize); nobody can observe it.
//
// Every method needs the GIL but for Drop. Not thread-safe but for that.
#pragma once

#include <nanobind/nanobind.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "headrace/base/mutex.h"

namespace headrace::python {

class BytesPool {
 public:
  // An object and the bytes its memory can hold; 0 = a plain object that is not kept.
  struct Object {
    PyObject* object = nullptr;
    size_t capacity = 0;
  };

  // Keeps at most about `max_idle_bytes` that nobody uses.
  explicit BytesPool(uint64_t max_idle_bytes) : max_idle_bytes_(max_idle_bytes) {}
  ~BytesPool();

  // A bytes object of `size` bytes with unspecified content that nobody else refers to; null (and
  // no Python error) without memory.
  Object Take(size_t size);
  // Takes back objects, which others may still hold: they are used again when they do not. Any
  // thread; without the GIL the references wait for the next Collect.
  void Drop(std::vector<Object> objects);
  // Looks which objects are free by now. Call before a round of Take.
  void Collect();

 private:
  static constexpr size_t kNumClasses = 120;  // up to 7 TiB
  // Objects lent at most: beyond, the oldest are left to their holders.
  static constexpr size_t kMaxLent = 16384;

  void Keep(Object object);

  const uint64_t max_idle_bytes_;
  uint64_t idle_bytes_ = 0;
  std::array<std::vector<Object>, kNumClasses> idle_;
  std::deque<Object> lent_;
  Mutex mu_;  // leaf
  std::vector<Object> dropped_ HR_GUARDED_BY(mu_);
};

}  // namespace headrace::python
