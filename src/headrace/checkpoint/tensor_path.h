// A tensor's place in the state, as text: a JSON Pointer (RFC 6901), "/optimizer/state/0/exp_avg",
// where '~' in a key is "~0" and '/' is "~1". And the name of its entry in a data file: the keys
// behind the first one joined with '.', so that the model of a state is named as other tools name
// it. Pure functions, safe from any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/status.h"
#include "headrace/checkpoint/box.h"

namespace headrace::checkpoint {

inline constexpr size_t kMaxPathBytes = 65535;

// Adds one key or index (in digits) to a path.
void AppendKey(std::string_view key, std::string* path);
// kInvalidArgument: no path ("" has no keys, and is the path of a state that is one tensor).
Result<std::vector<std::string>> SplitPath(std::string_view path);
// The first key, which says in which files a tensor lies; "" for the path "" and for tensors that
// lie directly in the state.
Result<std::string> GroupOf(std::string_view path);
// "/model/layers.0.weight" -> "layers.0.weight"; "/step" -> "step"; "" -> "tensor". A box that is
// not the whole tensor has "@0,16" (its offset) behind it. Two paths may have the same name: then
// the writer puts a number behind one.
Result<std::string> EntryName(std::string_view path);
Result<std::string> EntryName(std::string_view path, BoxView box, Extents shape);

}  // namespace headrace::checkpoint
