// The sample that a command line names: by its key as `ls` prints it, or by its number. A function
// without state; the main thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "headrace/base/status.h"
#include "headrace/dataset/dataset.h"

namespace headrace::cli {

// `index` when it is given, else the sample with this key. kNotFound.
Result<uint64_t> FindSample(const dataset::Dataset& data, std::optional<uint64_t> index,
                            const std::string& key);

}  // namespace headrace::cli
