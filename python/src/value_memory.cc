#include "value_memory.h"

#include <cstddef>
#include <utility>
#include <vector>

#include "headrace/base/mutex.h"

namespace nb = nanobind;

namespace headrace::python {

namespace {

using BytesObjects = std::vector<PyObject*>;  // owned references

// References whose owner was destroyed in a thread without the GIL.
class DroppedReferences {
 public:
  ~DroppedReferences() { Release(); }
  void Add(std::vector<PyObject*> objects) {
    MutexLock lock(&mu_);
    objects_.insert(objects_.end(), objects.begin(), objects.end());
  }
  void Release() {  // with the GIL
    std::vector<PyObject*> objects;
    {
      MutexLock lock(&mu_);
      objects.swap(objects_);
    }
    for (PyObject* object : objects) Py_XDECREF(object);
  }

 private:
  Mutex mu_;
  std::vector<PyObject*> objects_ HR_GUARDED_BY(mu_);
};

class BytesMemory final : public loader::ValueMemory {
 public:
  bool Place(loader::Batch* batch) override {
    nb::gil_scoped_acquire acquired;
    dropped_->Release();
    std::shared_ptr<BytesObjects> owner(new BytesObjects, [dropped = dropped_](BytesObjects* o) {
      if (PyGILState_Check())
        for (PyObject* object : *o) Py_XDECREF(object);
      else
        dropped->Add(std::move(*o));
      delete o;
    });
    for (uint64_t r = 0; r < batch->num_rows; ++r) {
      loader::BatchRow& row = batch->rows[r];
      for (size_t v = 0; v < row.value_sizes.size(); ++v) {
        PyObject* object =
            PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(row.value_sizes[v]));
        if (!object) {
          PyErr_Clear();
          return false;
        }
        owner->push_back(object);
        row.value_places[v] = reinterpret_cast<std::byte*>(PyBytes_AS_STRING(object));
        batch->owned_value_bytes += row.value_sizes[v];
      }
    }
    batch->value_owner = std::move(owner);
    return true;
  }

 private:
  const std::shared_ptr<DroppedReferences> dropped_ = std::make_shared<DroppedReferences>();
};

}  // namespace

std::shared_ptr<loader::ValueMemory> MakeBytesMemory() { return std::make_shared<BytesMemory>(); }

nb::object ValueObject(const loader::Batch& batch, const loader::BatchRow& row, size_t value) {
  Bytes data = row.values.at(value);
  if (data.data() == nullptr) return nb::none();
  if (batch.value_owner && data.data() == row.value_places[value]) {
    // The place is the content of a bytes object made by BytesMemory.
    auto* start = const_cast<std::byte*>(data.data()) - offsetof(PyBytesObject, ob_sval);
    return nb::borrow(reinterpret_cast<PyObject*>(start));
  }
  return nb::bytes(reinterpret_cast<const char*>(data.data()), data.size());
}

}  // namespace headrace::python
