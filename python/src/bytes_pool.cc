#include "bytes_pool.h"

#include <bit>

namespace headrace::python {

namespace {

// Smaller objects come from Python's own allocator, which is quick.
constexpr size_t kSmallest = 4096;

// Capacities are 4 steps to a power of two: class c holds (4 + c % 4) << (c / 4 + 10) bytes.
size_t ClassOf(size_t size) {
  size_t shift = std::bit_width((size - 1) >> 10) > 3 ? std::bit_width((size - 1) >> 10) - 3 : 0;
  size_t quarter = ((size - 1) >> (shift + 10)) + 1;  // 1 .. 8
  if (quarter < 4) return 0;
  if (quarter == 8) return (shift + 1) * 4;
  return shift * 4 + quarter - 4;
}

size_t CapacityOf(size_t size_class) { return (4 + size_class % 4) << (size_class / 4 + 10); }

bool CanReuse() {
#ifdef Py_GIL_DISABLED
  return false;  // a reference count of one does not mean there what it means with the GIL
#else
  return true;
#endif
}

void GiveSize(PyObject* object, size_t size) {
  auto* bytes = reinterpret_cast<PyBytesObject*>(object);
  Py_SET_SIZE(reinterpret_cast<PyVarObject*>(bytes), static_cast<Py_ssize_t>(size));
  bytes->ob_sval[size] = 0;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  bytes->ob_shash = -1;
#pragma GCC diagnostic pop
}

}  // namespace

BytesPool::~BytesPool() {
  Collect();
  for (auto& objects : idle_)
    for (const Object& object : objects) Py_DECREF(object.object);
  for (const Object& object : lent_) Py_DECREF(object.object);
}

BytesPool::Object BytesPool::Take(size_t size) {
  if (size >= kSmallest && CanReuse()) {
    const size_t size_class = ClassOf(size);
    if (size_class < kNumClasses) {
      auto& idle = idle_[size_class];
      Object object{nullptr, CapacityOf(size_class)};
      if (idle.empty()) {
        object.object =
            PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(object.capacity));
      } else {
        object = idle.back();
        idle.pop_back();
        idle_bytes_ -= object.capacity;
      }
      if (object.object)
        GiveSize(object.object, size);
      else
        PyErr_Clear();
      return object;
    }
  }
  PyObject* plain = PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(size));
  if (!plain) PyErr_Clear();
  return {plain, 0};
}

void BytesPool::Drop(std::vector<Object> objects) {
  if (!PyGILState_Check()) {
    MutexLock lock(&mu_);
    dropped_.insert(dropped_.end(), objects.begin(), objects.end());
    return;
  }
  for (const Object& object : objects) Keep(object);
}

void BytesPool::Keep(Object object) {
  if (object.capacity == 0) {
    Py_DECREF(object.object);
  } else if (Py_REFCNT(object.object) > 1) {
    lent_.push_back(object);
  } else if (idle_bytes_ + object.capacity <= max_idle_bytes_) {
    idle_bytes_ += object.capacity;
    idle_[ClassOf(object.capacity)].push_back(object);
  } else {
    Py_DECREF(object.object);
  }
}

void BytesPool::Collect() {
  std::vector<Object> dropped;
  {
    MutexLock lock(&mu_);
    dropped.swap(dropped_);
  }
  for (const Object& object : dropped) Keep(object);
  for (size_t n = lent_.size(); n > 0; --n) {
    Object object = lent_.front();
    lent_.pop_front();
    Keep(object);
  }
  for (; lent_.size() > kMaxLent; lent_.pop_front()) Py_DECREF(lent_.front().object);
}

}  // namespace headrace::python
