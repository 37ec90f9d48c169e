// Finds one value inside a JSON text without building a tree and without allocating: what a label
// transform needs once a sample. Pure, safe from any thread. Used inside the codec only.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/status.h"

namespace headrace::codec {

enum class JsonKind : uint8_t { kNull, kFalse, kTrue, kNumber, kString, kArray, kObject };
std::string_view JsonKindName(JsonKind kind);  // "a string"...

// One value: its kind and its text, from its first to its last byte.
struct JsonValue {
  JsonKind kind = JsonKind::kNull;
  std::string_view text;
  size_t offset = 0;  // of text in the whole
};

// Splits a JSON pointer (RFC 6901: "" or "/a/0/b", ~0 = ~, ~1 = /) into its names.
// kInvalidArgument when it is none.
Result<std::vector<std::string>> ParseJsonPointer(std::string_view pointer);

// Reads `text` whole, checks its syntax, and returns the value at `pointer` (the last one when a
// name comes twice). Nesting deeper than 64 is refused.
//   kDataLoss  not valid JSON (with the byte), or no such member or element.
Result<JsonValue> FindJsonValue(std::string_view text, std::span<const std::string> pointer);

// Walks the elements of an array found by FindJsonValue (so its syntax is known to be right).
class JsonElements {
 public:
  explicit JsonElements(const JsonValue& array);
  // Sets `value` to the next element; false at the end.
  bool Next(JsonValue* value);

 private:
  std::string_view text_;
  size_t base_;
  size_t at_ = 1;
};

}  // namespace headrace::codec
