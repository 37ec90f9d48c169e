#include "headrace/base/log_histogram.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <vector>

namespace headrace {
namespace {

LogHistogram Of(const std::vector<uint64_t>& durations) {
  LogHistogram histogram;
  for (uint64_t ns : durations) histogram.Record(ns);
  return histogram;
}

RC_GTEST_PROP(LogHistogramProperties, AddingIsRecordingAllAndSubtractingUndoesIt,
              (const std::vector<uint64_t>& one, const std::vector<uint64_t>& two)) {
  LogHistogram sum = Of(one);
  sum.Add(Of(two));
  std::vector<uint64_t> all = one;
  all.insert(all.end(), two.begin(), two.end());
  RC_ASSERT(sum == Of(all));
  RC_ASSERT(sum.Total() == all.size());
  sum.Subtract(Of(one));
  RC_ASSERT(sum == Of(two));
}

RC_GTEST_PROP(LogHistogramProperties, EachDurationIsInTheBucketOfItsPowerOfTwo, (uint64_t ns)) {
  const size_t bucket = LogHistogram::BucketOf(ns);
  RC_ASSERT(bucket < LogHistogram::kBuckets);
  if (bucket > 0) RC_ASSERT(ns >= uint64_t{1} << bucket);
  if (bucket + 1 < LogHistogram::kBuckets) RC_ASSERT(ns < uint64_t{2} << bucket);
}

TEST(LogHistogram, ACountNeverFallsBelowZero) {
  LogHistogram histogram = Of({100});
  histogram.Subtract(Of({100, 100, 5}));
  EXPECT_EQ(histogram.Total(), 0u);
}

}  // namespace
}  // namespace headrace
