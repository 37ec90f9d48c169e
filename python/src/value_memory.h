// Reads the values of bytes columns straight into Python bytes objects, so that they are copied
// once.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>

#include "headrace/loader/batch.h"

namespace headrace::python {

// Makes the ValueMemory. Its Place takes the GIL; it must be destroyed with the GIL held. Memory
// that nobody uses is kept up to `max_idle_bytes`.
std::shared_ptr<loader::ValueMemory> MakeBytesMemory(uint64_t max_idle_bytes);

// A value of a delivered row as Python bytes: the object it was read into, or a copy when it is in
// other memory (a substitute's); None when the sample lacks the field. With the GIL held.
nanobind::object ValueObject(const loader::Batch& batch, const loader::BatchRow& row, size_t value);

}  // namespace headrace::python
