// Reads the JSON description of a transform: each helper names the member that is wrong.
// Pure, safe from any thread. Used inside the codec only.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/json.h"
#include "headrace/base/status.h"

namespace headrace::codec {

// One JSON object of a description, called `where` in messages ("ops[1]"). Every reader fails with
// kInvalidArgument: "<where>: member \"size\": expected ..., found ...".
class Members {
 public:
  // `object` must outlive this.
  Members(const Json& object, std::string where) : object_(&object), where_(std::move(where)) {}

  const std::string& where() const { return where_; }
  bool Has(std::string_view name) const { return object_->Find(name) != nullptr; }
  const Json* Find(std::string_view name) const { return object_->Find(name); }

  // Fails when there is a member that is not in `known`.
  Status OnlyKnown(std::initializer_list<std::string_view> known) const;
  Result<std::string> Text(std::string_view name, std::string_view fallback) const;
  // Which of `choices` the member names; the first when it is missing.
  Result<size_t> Choice(std::string_view name,
                        std::initializer_list<std::string_view> choices) const;
  Result<bool> Flag(std::string_view name, bool fallback) const;
  Result<uint64_t> Unsigned(std::string_view name, uint64_t fallback, uint64_t min,
                            uint64_t max) const;
  Result<double> Real(std::string_view name, double fallback, double min, double max) const;
  // `count` finite numbers; the fallback when the member is missing and the fallback is not empty.
  Result<std::vector<double>> Reals(std::string_view name, std::vector<double> fallback,
                                    size_t count) const;
  // Whole numbers in [min, max], any count.
  Result<std::vector<int64_t>> Integers(std::string_view name, int64_t min, int64_t max) const;

  // "<where>: member \"<name>\": <text>"
  Status Wrong(std::string_view name, std::string_view text) const;

 private:
  const Json* object_;
  std::string where_;
};

}  // namespace headrace::codec
