// What a rank saves as bytes, for the process that keeps it: all but the tensors' bytes, which both
// processes have mapped. Pure functions, any thread.
#pragma once

#include <string>

#include "headrace/base/bytes.h"
#include "headrace/base/status.h"
#include "headrace/checkpoint/rank_writer.h"

namespace headrace::checkpoint {

// The boxes' bytes must lie in `loan`. kInvalidArgument: they do not, or the save cannot be stored.
Result<std::string> DescribeSave(const RankSave& save, Bytes loan);
// The save whose bytes lie in `loan`. kDataLoss: damaged, or a box that does not lie in it.
Result<RankSave> ReadSaveDescription(Bytes description, Bytes loan);

}  // namespace headrace::checkpoint
