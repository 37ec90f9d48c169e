#include "value_memory.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "bytes_pool.h"

namespace nb = nanobind;

namespace headrace::python {

namespace {

class BytesMemory final : public loader::ValueMemory {
 public:
  explicit BytesMemory(uint64_t max_idle_bytes)
      : pool_(std::make_shared<BytesPool>(max_idle_bytes)) {}

  bool Place(loader::Batch* batch) override {
    nb::gil_scoped_acquire acquired;
    pool_->Collect();
    std::shared_ptr<Objects> owner(new Objects, [pool = pool_](Objects* objects) {
      pool->Drop(std::move(*objects));
      delete objects;
    });
    for (uint64_t r = 0; r < batch->num_rows; ++r) {
      loader::BatchRow& row = batch->rows[r];
      for (size_t v = 0; v < row.value_sizes.size(); ++v) {
        BytesPool::Object object = pool_->Take(row.value_sizes[v]);
        if (!object.object) return false;
        owner->push_back(object);
        row.value_places[v] = reinterpret_cast<std::byte*>(PyBytes_AS_STRING(object.object));
        batch->owned_value_bytes += std::max<uint64_t>(object.capacity, row.value_sizes[v]);
      }
    }
    batch->value_owner = std::move(owner);
    return true;
  }

 private:
  using Objects = std::vector<BytesPool::Object>;
  const std::shared_ptr<BytesPool> pool_;
};

}  // namespace

std::shared_ptr<loader::ValueMemory> MakeBytesMemory(uint64_t max_idle_bytes) {
  return std::make_shared<BytesMemory>(max_idle_bytes);
}

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
