// One Bind function per part of the native module. No logic here or in the .cc files: argument
// conversion, release of the GIL around what can block, and conversion of results.
#pragma once

#include <nanobind/nanobind.h>

namespace headrace::python {

void BindDataset(nanobind::module_& m);
void BindTransform(nanobind::module_& m);
void BindLoader(nanobind::module_& m);
void BindCheckpoint(nanobind::module_& m);
void BindCheckpointTiers(nanobind::module_& m);
void BindFileSystem(nanobind::module_& m);
void BindObserve(nanobind::module_& m);
void BindRecord(nanobind::module_& m);

}  // namespace headrace::python
