#include "headrace/codec/description.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace headrace::codec {

Status Members::Wrong(std::string_view name, std::string_view text) const {
  return Error(Code::kInvalidArgument, "{}: member \"{}\": {}", where_, name, text);
}

Status Members::OnlyKnown(std::initializer_list<std::string_view> known) const {
  if (!object_->is_object())
    return Error(Code::kInvalidArgument, "{}: expected an object, found {}", where_,
                 object_->Dump());
  for (const auto& [name, value] : object_->members())
    if (std::find(known.begin(), known.end(), name) == known.end())
      return Wrong(name, fmt::format("is not known; known are {}", fmt::join(known, ", ")));
  return OkStatus();
}

Result<std::string> Members::Text(std::string_view name, std::string_view fallback) const {
  const Json* member = Find(name);
  if (!member) return std::string(fallback);
  if (!member->is_string()) return Wrong(name, "expected a string, found " + member->Dump());
  return std::string(member->AsString());
}

Result<size_t> Members::Choice(std::string_view name,
                               std::initializer_list<std::string_view> choices) const {
  const Json* member = Find(name);
  if (!member) return size_t{0};
  auto choice = std::find(choices.begin(), choices.end(), member->AsString());
  if (!member->is_string() || choice == choices.end())
    return Wrong(name, fmt::format("expected one of {}, found {}", fmt::join(choices, ", "),
                                   member->Dump()));
  return static_cast<size_t>(choice - choices.begin());
}

Result<bool> Members::Flag(std::string_view name, bool fallback) const {
  const Json* member = Find(name);
  if (!member) return fallback;
  if (!member->is_bool()) return Wrong(name, "expected true or false, found " + member->Dump());
  return member->AsBool();
}

Result<uint64_t> Members::Unsigned(std::string_view name, uint64_t fallback, uint64_t min,
                                   uint64_t max) const {
  const Json* member = Find(name);
  if (!member) return fallback;
  uint64_t value = member->AsUint(max + 1);
  if (!member->is_integer() || value < min || value > max)
    return Wrong(name, fmt::format("expected a whole number from {} to {}, found {}", min, max,
                                   member->Dump()));
  return value;
}

Result<double> Members::Real(std::string_view name, double fallback, double min, double max) const {
  const Json* member = Find(name);
  if (!member) return fallback;
  double value = member->AsDouble(NAN);
  if (!member->is_number() || !(value >= min && value <= max))
    return Wrong(
        name, fmt::format("expected a number from {} to {}, found {}", min, max, member->Dump()));
  return value;
}

Result<std::vector<double>> Members::Reals(std::string_view name, std::vector<double> fallback,
                                           size_t count) const {
  const Json* member = Find(name);
  if (!member && !fallback.empty()) return fallback;
  std::vector<double> values;
  if (member)
    for (const Json& item : member->items())
      if (item.is_number() && std::isfinite(item.AsDouble())) values.push_back(item.AsDouble());
  if (!member || values.size() != count || member->items().size() != count)
    return Wrong(name, fmt::format("expected an array of {} numbers, found {}", count,
                                   member ? member->Dump() : "nothing"));
  return values;
}

Result<std::vector<int64_t>> Members::Integers(std::string_view name, int64_t min,
                                               int64_t max) const {
  const Json* member = Find(name);
  std::string range =
      fmt::format("expected an array of whole numbers from {} to {}, found ", min, max);
  if (!member) return Wrong(name, range + "nothing");
  if (!member->is_array()) return Wrong(name, range + member->Dump());
  std::vector<int64_t> values;
  for (const Json& item : member->items()) {
    int64_t value = item.AsInt(min - 1);
    if (!item.is_integer() || value < min || value > max)
      return Wrong(name, range + member->Dump());
    values.push_back(value);
  }
  return values;
}

}  // namespace headrace::codec
