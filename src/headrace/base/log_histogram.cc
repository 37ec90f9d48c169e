#include "headrace/base/log_histogram.h"

#include <algorithm>

namespace headrace {

uint64_t LogHistogram::Total() const {
  uint64_t total = 0;
  for (uint64_t n : counts) total += n;
  return total;
}

void LogHistogram::Add(const LogHistogram& other) {
  for (size_t i = 0; i < kBuckets; ++i) counts[i] += other.counts[i];
}

void LogHistogram::Subtract(const LogHistogram& earlier) {
  for (size_t i = 0; i < kBuckets; ++i) counts[i] -= std::min(counts[i], earlier.counts[i]);
}

uint64_t LogHistogram::Percentile(double q) const {
  const uint64_t total = Total();
  if (total == 0) return 0;
  uint64_t seen = 0;
  for (size_t i = 0; i < kBuckets; ++i) {
    seen += counts[i];
    if (counts[i] > 0 && static_cast<double>(seen) >= q * static_cast<double>(total))
      return uint64_t{2} << i;
  }
  return uint64_t{2} << (kBuckets - 1);
}

}  // namespace headrace
