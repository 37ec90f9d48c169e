#include "headrace/codec/label_transform.h"

#include <fmt/format.h>

#include <charconv>
#include <cstring>
#include <system_error>
#include <vector>

#include "headrace/base/text.h"
#include "headrace/codec/description.h"
#include "headrace/codec/element.h"
#include "headrace/codec/json_scan.h"
#include "headrace/codec/npy.h"
#include "headrace/codec/scratch.h"

namespace headrace::codec {
namespace {

enum class LabelFormat : uint8_t { kAuto, kText, kJson, kNpy };

constexpr std::string_view kSpace = " \t\r\n\v\f";

std::string Shown(std::string_view text) { return '"' + EscapeText(text.substr(0, 40)) + '"'; }

// Reads a number as text files and JSON write it. False when `token` is no number or needs more
// than a float64.
bool ParseNumber(std::string_view token, Number* number) {
  const char *begin = token.data(), *end = begin + token.size();
  bool negative = token.size() > 1 && token[0] == '-';
  if (negative) {
    int64_t value = 0;
    auto [stop, fault] = std::from_chars(begin, end, value);
    if (fault == std::errc() && stop == end) return *number = Number::Signed(value), true;
  } else {
    uint64_t value = 0;
    auto [stop, fault] = std::from_chars(begin, end, value);
    if (fault == std::errc() && stop == end) return *number = Number::Unsigned(value), true;
  }
  double value = 0;
  auto [stop, fault] = std::from_chars(begin, end, value);
  *number = Number::Float(value);
  return fault == std::errc() && stop == end;
}

class LabelTransform : public Transform {
 public:
  LabelTransform(TensorSpec spec, LabelFormat format, std::vector<std::string> path)
      : spec_(std::move(spec)), format_(format), path_(std::move(path)) {
    element_bytes_ = DTypeBytes(spec_.dtype);
    count_ = spec_.bytes() / element_bytes_;
  }

  const TensorSpec& output() const override { return spec_; }

  Status Apply(Bytes encoded, const DecodeHints&, const DrawKey&, Scratch* scratch,
               MutableBytes out) const override {
    if (out.size() != spec_.bytes())
      return Error(Code::kInvalidArgument, "a label takes {} bytes, the output has {}",
                   spec_.bytes(), out.size());
    if (encoded.empty())
      return Error(Code::kDataLoss, "the field is empty (0 bytes), expected a label");
    StageClock clock(scratch->rep()->recorder);
    Status status = Read(encoded, out);
    clock.Lap(Stage::kTransform, encoded.size());
    return status;
  }

 private:
  Status Read(Bytes encoded, MutableBytes out) const {
    switch (format_ == LabelFormat::kAuto ? Guess(encoded) : format_) {
      case LabelFormat::kNpy:
        return ReadNpy(encoded, out);
      case LabelFormat::kJson:
        return ReadJson(AsText(encoded), out);
      default:
        return ReadText(AsText(encoded), out);
    }
  }

  LabelFormat Guess(Bytes encoded) const {
    if (IsNpy(encoded)) return LabelFormat::kNpy;
    std::string_view text = AsText(encoded);
    size_t first = text.find_first_not_of(kSpace);
    if (!path_.empty()) return LabelFormat::kJson;
    if (first != std::string_view::npos &&
        std::string_view("[{\"").find(text[first]) != std::string_view::npos)
      return LabelFormat::kJson;
    size_t last = text.find_last_not_of(kSpace);
    std::string_view word =
        first == std::string_view::npos ? "" : text.substr(first, last - first + 1);
    return word == "true" || word == "false" || word == "null" ? LabelFormat::kJson
                                                               : LabelFormat::kText;
  }

  Status ReadText(std::string_view text, MutableBytes out) const {
    size_t at = 0, index = 0;
    for (;;) {
      at = text.find_first_not_of(kSpace, at);
      if (at == std::string_view::npos) break;
      size_t end = std::min(text.find_first_of(" \t\r\n\v\f,", at), text.size());
      std::string_view token = text.substr(at, end - at);
      if (token.size() > 1 && token[0] == '+' && token[1] != '-') token.remove_prefix(1);
      Number number;
      if (!ParseNumber(token, &number))
        return Error(Code::kDataLoss, "expected a number at byte {} of the text, found {}", at,
                     Shown(text.substr(at)));
      if (index == count_) return WrongCount("more than " + std::to_string(count_));
      HR_RETURN_IF_ERROR(Store(number, index++, at, out));
      at = text.find_first_not_of(kSpace, end);
      if (at == std::string_view::npos) break;
      if (text[at] == ',') ++at;
    }
    if (index < count_) return WrongCount(std::to_string(index));
    return OkStatus();
  }

  Status ReadJson(std::string_view text, MutableBytes out) const {
    HR_ASSIGN_OR_RETURN(JsonValue value, FindJsonValue(text, path_));
    size_t index = 0;
    HR_RETURN_IF_ERROR(ReadJsonValue(value, 0, &index, out));
    return OkStatus();
  }

  // Reads `value`, which stands at dimension `dim` of the shape.
  Status ReadJsonValue(const JsonValue& value, size_t dim, size_t* index, MutableBytes out) const {
    if (dim == spec_.shape.size()) return ReadJsonScalar(value, (*index)++, out);
    if (value.kind != JsonKind::kArray)
      return Error(Code::kDataLoss,
                   "expected an array of {} elements at byte {} of the JSON text, found {} {}",
                   spec_.shape[dim], value.offset, JsonKindName(value.kind), Shown(value.text));
    JsonElements elements(value);
    JsonValue element;
    int64_t count = 0;
    while (elements.Next(&element)) {
      if (count++ == spec_.shape[dim]) break;
      HR_RETURN_IF_ERROR(ReadJsonValue(element, dim + 1, index, out));
    }
    if (count == spec_.shape[dim]) return OkStatus();
    return Error(
        Code::kDataLoss, "expected an array of {} elements at byte {} of the JSON text, found {}",
        spec_.shape[dim], value.offset, count > spec_.shape[dim] ? "more" : std::to_string(count));
  }

  Status ReadJsonScalar(const JsonValue& value, size_t index, MutableBytes out) const {
    Number number;
    switch (value.kind) {
      case JsonKind::kTrue:
      case JsonKind::kFalse:
        return Store(Number::Unsigned(value.kind == JsonKind::kTrue), index, value.offset, out);
      case JsonKind::kNumber:
        if (ParseNumber(value.text, &number)) return Store(number, index, value.offset, out);
        return Error(Code::kDataLoss, "the number {} at byte {} is outside the range of float64",
                     Shown(value.text), value.offset);
      default:
        return Error(Code::kDataLoss, "expected a number at byte {} of the JSON text, found {} {}",
                     value.offset, JsonKindName(value.kind), Shown(value.text));
    }
  }

  Status ReadNpy(Bytes encoded, MutableBytes out) const {
    HR_ASSIGN_OR_RETURN(NpyArray array, ParseNpy(encoded));
    if (!HasShape(array))
      return Error(Code::kDataLoss, ".npy array has the shape [{}], expected [{}]",
                   fmt::join(array.dims.begin(),
                             array.dims.begin() + static_cast<long>(array.num_dims), ", "),
                   fmt::join(spec_.shape, ", "));
    if (SameBits(array.type, spec_.dtype)) {
      if (!array.data.empty()) std::memcpy(out.data(), array.data.data(), array.data.size());
      return OkStatus();
    }
    size_t base = encoded.size() - array.data.size();
    for (size_t i = 0; i < count_; ++i)
      HR_RETURN_IF_ERROR(Store(NpyElement(array, i), i, base + i * array.element_bytes, out));
    return OkStatus();
  }

  // One number is one number: [] and [1] are the same here.
  bool HasShape(const NpyArray& array) const {
    if (count_ == 1 && spec_.shape.size() <= 1 && array.num_dims <= 1)
      return array.num_dims == 0 || array.dims[0] == 1;
    bool same = array.num_dims == spec_.shape.size();
    for (size_t i = 0; same && i < array.num_dims; ++i)
      same = array.dims[i] == static_cast<uint64_t>(spec_.shape[i]);
    return same;
  }

  Status Store(const Number& number, size_t index, size_t offset, MutableBytes out) const {
    StoreFault fault = StoreNumber(number, spec_.dtype, out.data() + index * element_bytes_);
    if (fault == StoreFault::kNone) return OkStatus();
    return Error(Code::kDataLoss, "{} at byte {} {} {}", number.ToString(), offset,
                 StoreFaultText(fault), DTypeName(spec_.dtype));
  }

  Status WrongCount(std::string_view found) const {
    return Error(Code::kDataLoss, "expected {} number{} in the text, found {}", count_,
                 count_ == 1 ? "" : "s", found);
  }

  TensorSpec spec_;
  LabelFormat format_;
  std::vector<std::string> path_;
  size_t element_bytes_ = 1;
  size_t count_ = 1;
};

}  // namespace

Result<std::shared_ptr<const Transform>> CreateLabelTransform(const Json& description) {
  Members members(description, "label transform");
  HR_RETURN_IF_ERROR(members.OnlyKnown({"type", "dtype", "shape", "format", "path"}));
  TensorSpec spec;
  HR_ASSIGN_OR_RETURN(std::string dtype, members.Text("dtype", "int64"));
  HR_ASSIGN_OR_RETURN(spec.dtype, ParseDType(dtype));
  if (members.Has("shape")) {
    HR_ASSIGN_OR_RETURN(spec.shape, members.Integers("shape", 0, 1 << 30));
  }
  uint64_t bytes = 1;
  for (int64_t dim : spec.shape)
    bytes = std::min<uint64_t>(bytes * static_cast<uint64_t>(dim), 1u << 31);
  if (spec.shape.size() > 32 || bytes > (1u << 28))
    return members.Wrong("shape", "at most 32 dimensions and 2^28 elements a sample");
  HR_ASSIGN_OR_RETURN(size_t choice, members.Choice("format", {"auto", "text", "json", "npy"}));
  auto format = static_cast<LabelFormat>(choice);
  HR_ASSIGN_OR_RETURN(std::string pointer, members.Text("path", ""));
  auto path = ParseJsonPointer(pointer);
  if (!path.ok()) return members.Wrong("path", path.status().message());
  if (!path->empty() && format != LabelFormat::kAuto && format != LabelFormat::kJson)
    return members.Wrong("path", "is for \"format\": \"json\" only");
  return std::make_shared<const LabelTransform>(std::move(spec), format, *std::move(path));
}

}  // namespace headrace::codec
