// JSON values for the control plane: manifests, transform descriptions, --json output. Not for the
// hot path. Not thread-safe: one owner at a time. Text that is not valid UTF-8 is written with
// EscapeText, since JSON cannot hold it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "headrace/base/status.h"

namespace headrace {

class Json {
 public:
  using Array = std::vector<Json>;
  // Members in the order in which they were added, so that output is stable and readable.
  using Object = std::vector<std::pair<std::string, Json>>;

  Json() : value_(nullptr) {}
  Json(bool v) : value_(v) {}                           // NOLINT: implicit by design
  Json(int v) : value_(int64_t{v}) {}                   // NOLINT
  Json(unsigned v) : value_(uint64_t{v}) {}             // NOLINT
  Json(int64_t v) : value_(v) {}                        // NOLINT
  Json(uint64_t v) : value_(v) {}                       // NOLINT
  Json(double v) : value_(v) {}                         // NOLINT
  Json(const char* v) : value_(std::string(v)) {}       // NOLINT
  Json(std::string v) : value_(std::move(v)) {}         // NOLINT
  Json(std::string_view v) : value_(std::string(v)) {}  // NOLINT
  Json(Array v) : value_(std::move(v)) {}               // NOLINT
  Json(Object v) : value_(std::move(v)) {}              // NOLINT
  Json(const Json& other);
  Json(Json&& other) noexcept;
  Json& operator=(const Json& other);
  Json& operator=(Json&& other) noexcept;
  ~Json();
  static Json MakeArray() { return Json(Array{}); }
  static Json MakeObject() { return Json(Object{}); }

  // Reads one JSON text, whole. kInvalidArgument names the byte offset. Depth is limited to 64; a
  // member that comes twice in one object is refused. Integers beyond 64 bits become doubles.
  static Result<Json> Parse(std::string_view text);
  // Writes JSON text; indent 0 = one line. Reads back as the same value, but for doubles that are
  // not finite (written as null) and text that is not UTF-8.
  std::string Dump(int indent = 0) const;

  bool is_null() const { return std::holds_alternative<std::nullptr_t>(value_); }
  bool is_bool() const { return std::holds_alternative<bool>(value_); }
  bool is_number() const { return is_integer() || std::holds_alternative<double>(value_); }
  bool is_integer() const {
    return std::holds_alternative<int64_t>(value_) || std::holds_alternative<uint64_t>(value_);
  }
  bool is_string() const { return std::holds_alternative<std::string>(value_); }
  bool is_array() const { return std::holds_alternative<Array>(value_); }
  bool is_object() const { return std::holds_alternative<Object>(value_); }

  // The value as that type; the fallback when it is another type or does not fit.
  bool AsBool(bool fallback = false) const;
  int64_t AsInt(int64_t fallback = 0) const;
  uint64_t AsUint(uint64_t fallback = 0) const;
  double AsDouble(double fallback = 0) const;
  std::string_view AsString(std::string_view fallback = "") const;
  const Array& items() const;     // empty when not an array
  const Object& members() const;  // empty when not an object

  // The member of an object, or null when there is none.
  const Json* Find(std::string_view name) const;
  // The member, which must be of the named kind: kInvalidArgument says which member is missing or
  // wrong ("bytes: expected an unsigned integer, found a string"). The caller puts the place of
  // this object before it with Prefix("shards[3]").
  Result<uint64_t> GetUint(std::string_view name) const;
  Result<std::string> GetString(std::string_view name) const;

  // Adds a member to an object (any other value becomes one), or replaces it. Returns *this. Looks
  // through all members: for objects of hundreds, not of millions.
  Json& Set(std::string name, Json value);
  // Adds an element to an array (any other value becomes one). Returns *this.
  Json& Append(Json value);

 private:
  std::variant<std::nullptr_t, bool, int64_t, uint64_t, double, std::string, Array, Object> value_;
};

}  // namespace headrace
