// Turns a Status into the Python exception that stands for it (headrace.errors.from_status). Call
// with the GIL held.
#pragma once

#include <nanobind/nanobind.h>

#include <utility>

#include "headrace/base/status.h"

namespace headrace::python {

// Throws nanobind::python_error for a Status that is not OK.
[[noreturn]] void Raise(const Status& status);

inline void Check(const Status& status) {
  if (!status.ok()) Raise(status);
}

// Returns the value, or throws.
template <typename T>
T Unwrap(Result<T> result) {
  if (!result.ok()) Raise(result.status());
  return std::move(result).value();
}

// Keys are bytes to us and text to Python: UTF-8 with surrogateescape, so that any bytes survive.
nanobind::str KeyToStr(std::string_view key);

}  // namespace headrace::python
