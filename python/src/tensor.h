// Native memory as a Python array that speaks DLPack, without a copy.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include "headrace/codec/transform.h"

namespace headrace::python {

using Array = nanobind::ndarray<nanobind::array_api, nanobind::device::cpu>;

// The array over `data`: shape [rows] + spec.shape (rows < 0: spec.shape alone), C order. `owner`
// keeps the memory alive.
Array MakeArray(std::byte* data, int64_t rows, const codec::TensorSpec& spec,
                nanobind::handle owner);

}  // namespace headrace::python
