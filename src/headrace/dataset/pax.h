// The records of a PAX extended header, as far as reading of data needs them. Pure functions, any
// thread. Used by the tar reader only.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace headrace::dataset {

struct PaxRecords {
  std::optional<std::string> path;
  std::optional<uint64_t> size;
  bool sparse = false;  // any GNU.sparse record
};

// Reads "LEN key=value\n" records (LEN counts itself) into `out`; an empty value takes back what an
// earlier record said. Returns false when the text cannot be read; `out` then holds what came
// before.
bool ParsePax(std::string_view text, PaxRecords* out);

}  // namespace headrace::dataset
