// What the machine offers to a job, as the kernel tells it in /proc and /sys, and what its disk
// really gives. Only reads; needs no rights. Functions without state, safe from any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "headrace/base/context.h"
#include "headrace/base/status.h"
#include "headrace/doctor/run.h"
#include "headrace/env/file.h"

namespace headrace::doctor {

// All that is known of the machine. What the kernel does not tell is empty.
struct MachineState {
  MachineFacts facts;
  std::optional<double> affinity_cpus;           // processors in this process's mask
  std::optional<double> quota_cpus;              // that the control group's quota is worth
  std::optional<uint64_t> shm_bytes;             // free in /dev/shm
  std::optional<uint64_t> open_files;            // that this process may have open
  std::optional<uint64_t> map_count;             // mappings that a process may have
  std::optional<uint64_t> io_uring_disabled;     // 0: it may be used
  std::optional<uint64_t> receive_buffer_bytes;  // that TCP may grow to
  std::string governor;
};

// `fs` is the operating system's, or a double with such files in it.
MachineState ReadMachine(FileSystem* fs);

struct DiskSpeed {
  double bytes_per_s = 0;   // large reads, several at once, around the page cache
  double small_read_s = 0;  // one read of 4 KiB, alone
  uint64_t bytes = 0;       // that were read for it
};
// Reads pieces of these files, which are of one disk, for about `seconds`. A place whose reads go
// through memory (tmpfs, a network file system with a cache of its own) shows the speed of that.
// kNotFound without a file of 64 KiB or more; else the file system's failures.
Result<DiskSpeed> MeasureDisk(FileSystem* fs, const std::vector<std::string>& files, double seconds,
                              const Context& ctx);

}  // namespace headrace::doctor
