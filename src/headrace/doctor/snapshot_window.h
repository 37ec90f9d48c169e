// From snapshots of processes to what the doctor looks at. Pure functions, safe from any thread.
#pragma once

#include "headrace/base/process_snapshot.h"
#include "headrace/doctor/run.h"

namespace headrace::doctor {

// The window that `between`, a difference of two snapshots, stands for, `start_s` after the run
// began. Where a snapshot does not tell apart what the doctor does, it is derived:
//   fetches    of the loader's time in reads, that of the slowest ones, as many as there are bytes
//              from the origin among those read
//   back-off   that of all requests, no more than the fetches took
//   run delay  where the kernel does not tell it: what the stages that compute took longer than the
//              process had processors
Window WindowOf(const ProcessSnapshot& between, double start_s);

// Facts of the job that a window tells: counts are added, the newest of what is known now stays.
void AddJobFacts(const ProcessSnapshot& between, JobFacts* job);

}  // namespace headrace::doctor
