// What `pack` and `index` say of seek points: the option, and the line of the summary. Functions
// without state; the main thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "headrace/cli/arguments.h"
#include "headrace/dataset/seek_tally.h"

namespace headrace::cli {

// Declares --seek-points=8|4|off, whose text `value` holds.
void DeclareSeekPoints(Arguments* arguments, std::string* value);
// The spacing in MCUs that a value of the option stands for; 0 for "off".
uint32_t SeekSpacing(const std::string& value);

// "seek points for 1,230 of 1,234 images, 1.5 % of their bytes; without: 3 progressive, 1
// sampling", or nothing when there are no images.
std::string DescribeSeekPoints(const dataset::SeekTally& tally);
// "; without: 3 progressive, 1 sampling" with `before` = "; without: "; nothing when all have some.
std::string DescribeRefusals(std::string_view before, const codec::DecodeCounts& images);

}  // namespace headrace::cli
