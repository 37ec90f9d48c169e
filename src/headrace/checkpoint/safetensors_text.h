// Reads the JSON of a safetensors header as what it must be, without a tree of values: memory stays
// near the text's own size, whatever is in it. Only for safetensors.cc. Pure function.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "headrace/base/status.h"

namespace headrace::checkpoint {

struct RawEntry {
  std::string name, dtype;
  std::vector<uint64_t> shape;
  uint64_t begin = 0, end = 0;  // data_offsets
};
struct RawHeader {
  std::vector<RawEntry> entries;  // in the order of the text; names may be there twice
  std::vector<std::pair<std::string, std::string>> metadata;
};

// kDataLoss: the message says what is wrong, the location's offset where in `text`. Members of an
// entry that are not known are skipped.
Result<RawHeader> ReadSafetensorsText(std::string_view text);

}  // namespace headrace::checkpoint
