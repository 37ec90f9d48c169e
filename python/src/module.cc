#include <nanobind/nanobind.h>

#include "bindings.h"
#include "headrace/env/process.h"

NB_MODULE(_native, m) {
  m.doc() = "Native core of headrace. Use the package, not this module.";
  m.attr("__version__") = HEADRACE_VERSION;
  m.def("available_cpus", &headrace::AvailableCpus, "Processors this process may run on.");
  headrace::python::BindDataset(m);
  headrace::python::BindTransform(m);
  headrace::python::BindLoader(m);
  headrace::python::BindCheckpoint(m);
  headrace::python::BindCheckpointTiers(m);
  headrace::python::BindFileSystem(m);
  headrace::python::BindObserve(m);
  headrace::python::BindRecord(m);
}
