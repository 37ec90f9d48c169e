#include "headrace/base/json.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <new>
#include <nlohmann/json.hpp>
#include <optional>

#include "headrace/base/text.h"

namespace headrace {

namespace {

constexpr size_t kMaxDepth = 64;

// Builds a Json from the events of the parser. Keeps the containers that are still open on its own
// stack, so that hostile nesting costs no recursion.
class TreeBuilder : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit TreeBuilder(std::string_view text) : text_(text) {}

  bool null() override { return Put(Json()); }
  bool boolean(bool value) override { return Put(Json(value)); }
  bool number_integer(number_integer_t value) override { return Put(Json(int64_t{value})); }
  bool number_unsigned(number_unsigned_t value) override { return Put(Json(uint64_t{value})); }
  bool number_float(number_float_t value, const string_t&) override { return Put(Json(value)); }
  bool string(string_t& value) override { return Put(Json(std::move(value))); }
  bool binary(binary_t&) override { return Fail("binary values are not JSON"); }
  bool start_object(std::size_t) override { return Open(true); }
  bool end_object() override { return Close(); }
  bool start_array(std::size_t) override { return Open(false); }
  bool end_array() override { return Close(); }
  bool key(string_t& name) override {
    open_.back().name = std::move(name);
    return true;
  }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    constexpr int kNumberOutOfRange = 406;  // the library's number for it
    // The parser counts the byte that it did not expect, so its offset is one less.
    size_t offset = position > 0 ? position - 1 : 0;
    if (error.id == kNumberOutOfRange)
      return Fail(fmt::format("a number in the JSON is out of range, before byte {}", position));
    std::string found =
        offset < text_.size() ? "'" + EscapeText(text_.substr(offset, 1)) + "'" : "end of text";
    return Fail(fmt::format("not valid JSON at byte {}: unexpected {}", offset, found));
  }

  Status TakeFailure() { return std::move(failure_); }
  Json TakeRoot() { return std::move(root_); }

 private:
  struct Container {
    bool is_object;
    Json::Object members;
    Json::Array items;
    std::string name;  // of the member whose value comes next
  };

  bool Fail(std::string message) {
    failure_ = Status(Code::kInvalidArgument, std::move(message));
    return false;
  }

  bool Put(Json value) {
    if (open_.empty()) {
      root_ = std::move(value);
    } else if (open_.back().is_object) {
      open_.back().members.emplace_back(std::move(open_.back().name), std::move(value));
    } else {
      open_.back().items.push_back(std::move(value));
    }
    return true;
  }

  bool Open(bool is_object) {
    if (open_.size() >= kMaxDepth)
      return Fail(fmt::format("JSON is nested deeper than {} levels", kMaxDepth));
    open_.push_back({is_object, {}, {}, {}});
    return true;
  }

  bool Close() {
    Container done = std::move(open_.back());
    open_.pop_back();
    if (!done.is_object) return Put(Json(std::move(done.items)));
    if (std::optional<std::string> twice = RepeatedName(done.members))
      return Fail(fmt::format("JSON object has the member '{}' twice", EscapeText(*twice)));
    return Put(Json(std::move(done.members)));
  }

  static std::optional<std::string> RepeatedName(const Json::Object& members) {
    std::vector<std::string_view> names;
    names.reserve(members.size());
    for (const auto& member : members) names.push_back(member.first);
    std::sort(names.begin(), names.end());
    auto twice = std::adjacent_find(names.begin(), names.end());
    if (twice == names.end()) return std::nullopt;
    return std::string(*twice);
  }

  std::string_view text_;
  std::vector<Container> open_;
  Json root_;
  Status failure_;
};

void WriteString(std::string_view text, std::string* out) {
  std::string escaped;
  if (!IsValidUtf8(text)) {
    escaped = EscapeText(text);
    text = escaped;
  }
  *out += '"';
  for (char c : text) {
    switch (c) {
      case '"':
        *out += "\\\"";
        break;
      case '\\':
        *out += "\\\\";
        break;
      case '\n':
        *out += "\\n";
        break;
      case '\t':
        *out += "\\t";
        break;
      case '\r':
        *out += "\\r";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
          *out += fmt::format("\\u{:04x}", static_cast<unsigned char>(c));
        } else {
          *out += c;
        }
    }
  }
  *out += '"';
}

// Shortest text that reads back as the same double, and as a double rather than an integer.
void WriteDouble(double value, std::string* out) {
  if (!std::isfinite(value)) {
    *out += "null";
    return;
  }
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  *out += text;
}

void NewLine(int indent, int depth, std::string* out) {
  if (indent <= 0) return;
  *out += '\n';
  out->append(static_cast<size_t>(indent) * static_cast<size_t>(depth), ' ');
}

void Write(const Json& value, int indent, int depth, std::string* out);

void WriteArray(const Json::Array& items, int indent, int depth, std::string* out) {
  *out += '[';
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) *out += indent > 0 ? "," : ", ";
    NewLine(indent, depth + 1, out);
    Write(items[i], indent, depth + 1, out);
  }
  if (!items.empty()) NewLine(indent, depth, out);
  *out += ']';
}

void WriteObject(const Json::Object& members, int indent, int depth, std::string* out) {
  *out += '{';
  for (size_t i = 0; i < members.size(); ++i) {
    if (i > 0) *out += indent > 0 ? "," : ", ";
    NewLine(indent, depth + 1, out);
    WriteString(members[i].first, out);
    *out += ": ";
    Write(members[i].second, indent, depth + 1, out);
  }
  if (!members.empty()) NewLine(indent, depth, out);
  *out += '}';
}

void Write(const Json& value, int indent, int depth, std::string* out) {
  if (value.is_null()) {
    *out += "null";
  } else if (value.is_bool()) {
    *out += value.AsBool() ? "true" : "false";
  } else if (value.is_integer()) {
    *out += value.AsInt() < 0 ? std::to_string(value.AsInt()) : std::to_string(value.AsUint());
  } else if (value.is_number()) {
    WriteDouble(value.AsDouble(), out);
  } else if (value.is_string()) {
    WriteString(value.AsString(), out);
  } else if (value.is_array()) {
    WriteArray(value.items(), indent, depth, out);
  } else {
    WriteObject(value.members(), indent, depth, out);
  }
}

std::string_view KindName(const Json& value) {
  if (value.is_null()) return "null";
  if (value.is_bool()) return "a boolean";
  if (value.is_integer()) return value.AsInt() < 0 ? "a negative integer" : "an unsigned integer";
  if (value.is_number()) return "a fraction";
  if (value.is_string()) return "a string";
  return value.is_array() ? "an array" : "an object";
}

Status WrongMember(const Json& object, std::string_view name, std::string_view wanted) {
  if (!object.is_object())
    return Error(Code::kInvalidArgument, "{}: expected {} in an object, found {}", EscapeText(name),
                 wanted, KindName(object));
  const Json* member = object.Find(name);
  return Error(Code::kInvalidArgument, "{}: expected {}, found {}", EscapeText(name), wanted,
               member ? KindName(*member) : "no such member");
}

}  // namespace

// Out of line: inlined into callers, the variant's moves make GCC 12 warn of what cannot happen.
Json::Json(const Json& other) = default;
Json::Json(Json&& other) noexcept = default;
Json& Json::operator=(const Json& other) = default;
Json& Json::operator=(Json&& other) noexcept = default;
Json::~Json() = default;

Result<Json> Json::Parse(std::string_view text) {
  try {
    TreeBuilder builder(text);
    bool good = nlohmann::json::sax_parse(text.begin(), text.end(), &builder);
    if (!good) return builder.TakeFailure();
    return builder.TakeRoot();
  } catch (const std::bad_alloc&) {
    return Error(Code::kResourceExhausted, "no memory to read {} bytes of JSON", text.size());
  } catch (const std::exception& e) {
    return Error(Code::kInvalidArgument, "not valid JSON: {}", e.what());
  }
}

std::string Json::Dump(int indent) const {
  std::string out;
  Write(*this, indent, 0, &out);
  return out;
}

bool Json::AsBool(bool fallback) const {
  const bool* value = std::get_if<bool>(&value_);
  return value ? *value : fallback;
}

int64_t Json::AsInt(int64_t fallback) const {
  if (const auto* value = std::get_if<int64_t>(&value_)) return *value;
  const auto* value = std::get_if<uint64_t>(&value_);
  bool fits = value && *value <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  return fits ? static_cast<int64_t>(*value) : fallback;
}

uint64_t Json::AsUint(uint64_t fallback) const {
  if (const auto* value = std::get_if<uint64_t>(&value_)) return *value;
  const auto* value = std::get_if<int64_t>(&value_);
  return value && *value >= 0 ? static_cast<uint64_t>(*value) : fallback;
}

double Json::AsDouble(double fallback) const {
  if (const auto* value = std::get_if<double>(&value_)) return *value;
  if (const auto* value = std::get_if<int64_t>(&value_)) return static_cast<double>(*value);
  if (const auto* value = std::get_if<uint64_t>(&value_)) return static_cast<double>(*value);
  return fallback;
}

std::string_view Json::AsString(std::string_view fallback) const {
  const auto* value = std::get_if<std::string>(&value_);
  return value ? std::string_view(*value) : fallback;
}

const Json::Array& Json::items() const {
  static const Array kNone;
  const auto* value = std::get_if<Array>(&value_);
  return value ? *value : kNone;
}

const Json::Object& Json::members() const {
  static const Object kNone;
  const auto* value = std::get_if<Object>(&value_);
  return value ? *value : kNone;
}

const Json* Json::Find(std::string_view name) const {
  for (const auto& member : members())
    if (member.first == name) return &member.second;
  return nullptr;
}

Result<uint64_t> Json::GetUint(std::string_view name) const {
  const Json* member = Find(name);
  bool good = member && member->is_integer() && (member->AsInt(0) >= 0);
  if (!good) return WrongMember(*this, name, "an unsigned integer");
  return member->AsUint();
}

Result<std::string> Json::GetString(std::string_view name) const {
  const Json* member = Find(name);
  if (!member || !member->is_string()) return WrongMember(*this, name, "a string");
  return std::string(member->AsString());
}

Json& Json::Set(std::string name, Json value) {
  if (!is_object()) value_ = Object{};
  auto& members = std::get<Object>(value_);
  for (auto& member : members) {
    if (member.first != name) continue;
    member.second = std::move(value);
    return *this;
  }
  members.emplace_back(std::move(name), std::move(value));
  return *this;
}

Json& Json::Append(Json value) {
  if (!is_array()) value_ = Array{};
  std::get<Array>(value_).push_back(std::move(value));
  return *this;
}

}  // namespace headrace
