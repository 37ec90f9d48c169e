// The checks of a run: one file each, and one table (checks.cc) that names them all. To add one,
// write its file, declare its entry here, and add it to the table and to CMakeLists.txt.
#pragma once

#include "headrace/doctor/check.h"

namespace headrace::doctor {

extern const CheckEntry kSmallFilesCheck;
extern const CheckEntry kSavesCheck;
extern const CheckEntry kNetworkCheck;
extern const CheckEntry kDecodeCheck;
extern const CheckEntry kContentionCheck;
extern const CheckEntry kFewShardsCheck;
extern const CheckEntry kSlowSamplesCheck;
extern const CheckEntry kSlowNodeCheck;
extern const CheckEntry kThrottledCheck;
extern const CheckEntry kPythonCheck;
extern const CheckEntry kSmallCacheCheck;
extern const CheckEntry kSliverCheck;
extern const CheckEntry kPageCacheCheck;
extern const CheckEntry kClockCheck;

// What several checks ask.

// The cache of the node cannot hold what the node reads in an epoch.
bool CacheIsTooSmall(const RankRun& rank);
// Threads wait for processors that others of the same job have.
bool IsOversubscribed(const RankView& view);
// Seconds of a worker's time for each sample that go into few slow samples (slow_samples.cc).
struct SlowShare {
  double time_share = 0;   // of the time in decode and transforms
  double count_share = 0;  // of the samples
  double excess_s = 0;     // for each sample: what would be saved if they were as the others
};
SlowShare SlowSamples(const Window& total);

}  // namespace headrace::doctor
