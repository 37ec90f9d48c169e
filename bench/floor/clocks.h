// The clocks of the benchmark programs, in seconds.
#pragma once

#include <chrono>
#include <ctime>

namespace headrace::floor {

inline double SecondsOf(clockid_t clock) {
  timespec time;
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

inline double CpuSeconds() { return SecondsOf(CLOCK_PROCESS_CPUTIME_ID); }

inline double ThreadCpuSeconds() { return SecondsOf(CLOCK_THREAD_CPUTIME_ID); }

inline double WallSeconds() {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(since).count();
}

}  // namespace headrace::floor
