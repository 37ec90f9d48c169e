// What a simulated rank's process would tell over its life: snapshots that only grow, one at the
// beginning and one at the end of each window. For tests of what lies between a process and the
// doctor.
#pragma once

#include <vector>

#include "headrace/base/process_snapshot.h"
#include "headrace/doctor/run.h"

namespace headrace::doctor::testing {

std::vector<ProcessSnapshot> SnapshotsOf(const RankRun& rank);

}  // namespace headrace::doctor::testing
