#include "headrace/cli/find_sample.h"

#include "headrace/base/text.h"

namespace headrace::cli {

Result<uint64_t> FindSample(const dataset::Dataset& data, std::optional<uint64_t> index,
                            const std::string& key) {
  if (index) return *index;
  auto found = data.FindKey(key);
  if (found.ok() || found.status().code() != Code::kNotFound) return found;
  auto bytes = UnescapeText(key);
  if (bytes.ok() && *bytes != key) return data.FindKey(*bytes);
  return found;
}

}  // namespace headrace::cli
