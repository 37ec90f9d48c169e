// How often this run should save: from the times that its store keeps with each checkpoint, and
// from how often the job fails (policy/interval.h has the formula). Pure functions, any thread.
#pragma once

#include <cstddef>
#include <string>

#include "headrace/base/status.h"
#include "headrace/checkpoint/catalog.h"
#include "headrace/checkpoint/policy/interval.h"

namespace headrace::checkpoint {

// In seconds; 0: not known. Medians of the last 20 full checkpoints whose times were measured.
struct MeasuredTimes {
  size_t saves = 0;     // how many that were
  double stall = 0;     // the job was blocked
  double durable = 0;   // from the start of a save until it was published: the drain
  double restore = 0;   // of those that began a run by restoring
  double interval = 0;  // between the last two publishes of the present writer
};
MeasuredTimes TimesIn(const Catalog& catalog);

// What a store cannot know. Seconds.
struct AdviceQuestion {
  double mtbf = 0;      // mean time between failures of the whole job; > 0
  double restart = 0;   // from a failure until the job restores
  double step = 0;      // of one step; 0: the advice is not rounded to steps
  double interval = 0;  // at which saves are taken; 0: as measured
};

struct SaveAdvice {
  MeasuredTimes measured;
  IntervalInputs inputs;
  IntervalAdvice advice;
  double interval = 0;         // at which saves are taken; 0: not known
  double present_goodput = 0;  // expected with that; 0: not known
  std::string warning;         // when it is shorter than the drain; else empty
  std::string Text() const;    // several lines, the last one ends with a line end
};

//   kInvalidArgument     the question makes no sense.
//   kFailedPrecondition  no checkpoint of the store has measured times.
Result<SaveAdvice> AdviseSaves(const Catalog& catalog, const AdviceQuestion& question);

}  // namespace headrace::checkpoint
