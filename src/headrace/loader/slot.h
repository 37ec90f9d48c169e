// A batch of the loader between planning and delivery. Internal to it.
#pragma once

#include <cstdint>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "headrace/base/status.h"
#include "headrace/loader/bad_samples.h"
#include "headrace/loader/batch.h"

namespace headrace::loader {

// Guarded by LoaderImpl::mu_ but for the batch's rows, each of which belongs to the thread that
// claimed it.
struct Slot {
  std::shared_ptr<Batch> batch;
  bool has_memory = false;  // its values have their places: rows may be claimed
  uint64_t bytes = 0;       // that it holds, or will when its values have their places
  uint64_t next_row = 0;    // first row nobody has claimed
  uint64_t rows_left = 0;   // rows not finished
  uint64_t failed_row = 0;
  bool first_failure_known = false;
  std::vector<std::pair<uint64_t, BadSample>> bad;  // with the row

  // For a trace, by NowNanos: when its planning began, when it was let in, and when its last row
  // was there. The last two are 0 when no trace was on.
  uint64_t planned_ns = 0, admitted_ns = 0, loaded_ns = 0;
};

// Runs `work` and turns an exhausted memory limit into a Status, so that no thread ends the
// process.
template <typename Work>
Status GuardMemory(Work work) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    return Error(Code::kResourceExhausted,
                 "the process is out of memory (see ulimit -v): lower the batch size or threads");
  }
}

}  // namespace headrace::loader
