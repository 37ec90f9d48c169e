#include "headrace/dataset/pax.h"

#include <charconv>

namespace headrace::dataset {
namespace {

// Reads all of `text` as a decimal number.
std::optional<uint64_t> ParseDecimal(std::string_view text) {
  uint64_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

bool TakeRecord(std::string_view key, std::string_view value, PaxRecords* out) {
  if (key == "path") {
    out->path.reset();
    if (!value.empty()) out->path = value;
  } else if (key == "GNU.sparse.name") {
    out->path = value;
    out->sparse = true;
  } else if (key == "size") {
    out->size.reset();
    if (value.empty()) return true;
    out->size = ParseDecimal(value);
    return out->size.has_value() && *out->size <= INT64_MAX;
  } else if (key.starts_with("GNU.sparse.")) {
    out->sparse = true;
  }
  return true;
}

}  // namespace

bool ParsePax(std::string_view text, PaxRecords* out) {
  while (!text.empty() && text.front() != '\0') {
    size_t space = text.find(' ');
    if (space > 20) return false;  // where there is no space too
    std::optional<uint64_t> length = ParseDecimal(text.substr(0, space));
    if (!length || *length <= space + 2 || *length > text.size()) return false;
    std::string_view record = text.substr(space + 1, *length - space - 1);
    size_t equals = record.find('=');
    if (record.back() != '\n' || equals == std::string_view::npos || equals == 0) return false;
    std::string_view value = record.substr(equals + 1, record.size() - equals - 2);
    if (!TakeRecord(record.substr(0, equals), value, out)) return false;
    text.remove_prefix(*length);
  }
  return true;
}

}  // namespace headrace::dataset
