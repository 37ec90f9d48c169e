// Reads the values of bytes columns straight into Python bytes objects, so that they are copied once.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>

#include "headrace/loader/batch.h"

namespace headrace::python {

// Makes the ValueMemory. Its Place takes the GIL; objects that are dropped without the GIL are kept
// until the next Place or until this is destroyed, which must be with the GIL held.
std::shared_ptr<loader::ValueMemory> MakeBytesMemory();

// A value of a delivered row as Python bytes: the object it was read into, or a copy when it is in
// other memory (a substitute's); None when the sample lacks the field. With the GIL held.
nanobind::object ValueObject(const loader::Batch& batch, const loader::BatchRow& row, size_t value);

}  // namespace headrace::python
