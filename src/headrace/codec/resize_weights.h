// The filter weights of one axis of a resize, computed for several outputs at once. Used inside the
// codec only (AxisTaps).
#pragma once

#include <cstdint>

#include "headrace/codec/resize.h"

namespace headrace::codec {

// Outputs that are computed at a time, at most; results of one call are kWeightLanes apart.
inline constexpr uint32_t kWeightLanes = 8;

struct WeightTask {
  const AxisPlan* plan;
  uint32_t index;                // the first output wanted
  uint32_t num_taps;             // as many as any output has, or more
  uint32_t first[kWeightLanes];  // out: sample of the first weight of each
  uint32_t* weights;  // out: [num_taps][kWeightLanes], out of 2^22; 0 where an output has no more
};

// Computes kWeightLanes outputs from task->index on.
void ComputeWeights(WeightTask* task);

}  // namespace headrace::codec
