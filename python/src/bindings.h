// One Bind function per part of the native module. No logic here or in the .cc files: argument
// conversion, release of the GIL around what can block, and conversion of results.
#pragma once

#include <nanobind/nanobind.h>

namespace headrace::python {

void BindDataset(nanobind::module_& m);
void BindTransform(nanobind::module_& m);
void BindLoader(nanobind::module_& m);

}  // namespace headrace::python
