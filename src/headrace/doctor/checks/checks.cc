#include "headrace/doctor/checks/checks.h"

#include <vector>

namespace headrace::doctor {

std::span<const CheckEntry> AllChecks() {
  // A vector, since the entries are constants of other files.
  static const std::vector<CheckEntry> kAll = {
      kSmallFilesCheck,  kNetworkCheck,    kSmallCacheCheck, kThrottledCheck, kDecodeCheck,
      kSlowSamplesCheck, kContentionCheck, kPythonCheck,     kSavesCheck,     kSlowNodeCheck,
      kFewShardsCheck,   kSliverCheck,     kPageCacheCheck,  kClockCheck};
  return kAll;
}

}  // namespace headrace::doctor
