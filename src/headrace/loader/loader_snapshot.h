// What a loader did, for those who watch the process. Any thread; not in a forked child.
#pragma once

#include "headrace/base/process_snapshot.h"
#include "headrace/loader/loader.h"

namespace headrace::loader {

// Adds the loader's pools, loop and figures to `snapshot`, with its rank, data set and settings. A
// second loader of the process is added up; rank, data set and settings are those of the last one.
void AddToSnapshot(const Loader& loader, ProcessSnapshot* snapshot);

}  // namespace headrace::loader
