// How the parts of the native module are watched. Any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "headrace/agent/process_watch.h"
#include "headrace/loader/loader.h"

namespace headrace::python {

// Watches a loader until the part is destroyed, which must be before the loader and without the
// GIL.
std::unique_ptr<agent::ProcessWatch::Part> WatchLoader(loader::Loader* loader);
// The same for a checkpointer, which says how many of its saves have not ended.
std::unique_ptr<agent::ProcessWatch::Part> WatchPendingSaves(std::function<uint64_t()> pending);

}  // namespace headrace::python
