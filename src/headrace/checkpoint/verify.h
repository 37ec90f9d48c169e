// Reads all of a checkpoint and compares it with its checksums. Any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "headrace/base/context.h"
#include "headrace/base/status.h"
#include "headrace/checkpoint/data_files.h"
#include "headrace/checkpoint/manifest.h"

namespace headrace::checkpoint {

// May be read by other threads meanwhile.
struct VerifyProgress {
  std::atomic<uint64_t> bytes{0}, total_bytes{0};
};

struct VerifyFault {
  std::string file;                  // key
  std::vector<std::string> tensors;  // that lie in it: the first 20
  Status status;
};

struct VerifyReport {
  uint64_t files = 0, bytes = 0;
  std::vector<VerifyFault> faults;  // one for each damaged file
};

// Only what stops the work is an error of the call (kCancelled, kDeadlineExceeded); what is wrong
// with a file is in the report.
Result<VerifyReport> VerifyFiles(DataFiles* files, const Manifest& manifest, int threads,
                                 const Context& ctx, VerifyProgress* progress);

}  // namespace headrace::checkpoint
