// What this process has used of its machine so far. Safe from any thread; a few reads of /proc.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace headrace {

// The machine's name; empty when the system does not tell.
std::string HostName();

// Empty: the system does not tell.
struct ProcessUsage {
  double cpu_seconds = 0;
  uint64_t resident_bytes = 0;
  uint64_t major_faults = 0;
  uint64_t preemptions = 0;                   // involuntary context switches
  std::optional<uint64_t> device_read_bytes;  // from disks rather than the page cache
  // Its threads, those that live now, could run and waited for a processor.
  std::optional<double> run_delay_seconds;
  // The control group's CPU quota stopped its processes.
  std::optional<double> throttled_seconds;
};
ProcessUsage ReadProcessUsage();

}  // namespace headrace
