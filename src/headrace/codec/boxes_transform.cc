#include "headrace/codec/boxes_transform.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstring>
#include <system_error>
#include <utility>
#include <vector>

#include "headrace/base/text.h"
#include "headrace/codec/description.h"
#include "headrace/codec/draws.h"
#include "headrace/codec/element.h"
#include "headrace/codec/json_scan.h"
#include "headrace/codec/npy.h"
#include "headrace/codec/scratch.h"
#include "headrace/codec/view_geometry.h"

namespace headrace::codec {
namespace {

constexpr size_t kRow = 5;  // x1, y1, x2, y2, state
constexpr float kVisible = 1.0f, kLost = 0.0f, kPadding = -1.0f;
using Box = std::array<double, 4>;

struct BoxesOptions {
  uint64_t max_boxes = 0, stream = 0;
  bool sizes = false;    // x, y, width, height instead of two corners
  bool upright = false;  // coordinates of the upright image, not of the stored one
  double min_size = 1.0;
  std::vector<std::string> path;
};

double ToDouble(const Number& number) {
  if (number.kind == Number::Kind::kSigned) return static_cast<double>(number.i);
  if (number.kind == Number::Kind::kUnsigned) return static_cast<double>(number.u);
  return number.f;
}

// Cuts [*low, *high] off at the pixels that come from the image.
void Clip(const AxisGeometry& axis, double* low, double* high) {
  double begin = axis.left, end = double{begin} + axis.count;
  *low = std::clamp(*low, begin, end);
  *high = std::clamp(*high, begin, end);
}

class BoxesTransform : public Transform {
 public:
  explicit BoxesTransform(BoxesOptions options)
      : spec_{DType::kFloat32, {static_cast<int64_t>(options.max_boxes), kRow}},
        options_(std::move(options)) {}

  const TensorSpec& output() const override { return spec_; }

  Status Apply(Bytes encoded, const DecodeHints&, const DrawKey& key, Scratch* scratch,
               MutableBytes out) const override {
    if (out.size() != spec_.bytes())
      return Error(Code::kInvalidArgument, "boxes take {} bytes, the output has {}", spec_.bytes(),
                   out.size());
    const ViewGeometry* view = scratch->rep()->views.Find(options_.stream, key);
    if (!view)
      return Error(Code::kInvalidArgument,
                   "boxes need the image of the same sample, transformed with stream {} before "
                   "them",
                   options_.stream);
    StageClock clock(scratch->rep()->recorder);
    uint64_t count = 0;
    Status status = IsNpy(encoded) ? ReadNpy(encoded, *view, &count, out)
                                   : ReadJson(AsText(encoded), *view, &count, out);
    for (; status.ok() && count < options_.max_boxes; ++count)
      Store(count, {0, 0, 0, 0}, kPadding, out);
    clock.Lap(Stage::kTransform, encoded.size());
    return status;
  }

 private:
  Status ReadNpy(Bytes encoded, const ViewGeometry& view, uint64_t* count, MutableBytes out) const {
    if (!options_.path.empty())
      return Error(Code::kDataLoss, "expected JSON text (there is a \"path\"), found .npy");
    HR_ASSIGN_OR_RETURN(NpyArray array, ParseNpy(encoded));
    if (array.num_dims != 2 || array.dims[1] != 4)
      return Error(Code::kDataLoss, ".npy array has the shape [{}], expected [boxes, 4]",
                   fmt::join(array.dims.begin(),
                             array.dims.begin() + static_cast<long>(array.num_dims), ", "));
    for (size_t i = 0; i < array.dims[0]; ++i) {
      Box box;
      for (size_t k = 0; k < 4; ++k) box[k] = ToDouble(NpyElement(array, 4 * i + k));
      HR_RETURN_IF_ERROR(Add(box, view, count, out));
    }
    return OkStatus();
  }

  Status ReadJson(std::string_view text, const ViewGeometry& view, uint64_t* count,
                  MutableBytes out) const {
    HR_ASSIGN_OR_RETURN(JsonValue list, FindJsonValue(text, options_.path));
    if (list.kind != JsonKind::kArray) return NoBox("an array of boxes", list);
    JsonElements elements(list);
    for (JsonValue element; elements.Next(&element);) {
      Box box;
      HR_RETURN_IF_ERROR(ReadJsonBox(element, &box));
      HR_RETURN_IF_ERROR(Add(box, view, count, out));
    }
    return OkStatus();
  }

  static Status ReadJsonBox(const JsonValue& value, Box* box) {
    if (value.kind != JsonKind::kArray) return NoBox("a box of 4 numbers", value);
    JsonElements numbers(value);
    JsonValue number;
    size_t k = 0;
    for (; numbers.Next(&number); ++k) {
      if (k == 4) return NoBox("a box of 4 numbers", value);
      const char *begin = number.text.data(), *end = begin + number.text.size();
      auto [stop, fault] = std::from_chars(begin, end, (*box)[k]);
      if (number.kind != JsonKind::kNumber || fault != std::errc() || stop != end)
        return NoBox("a number", number);
    }
    return k == 4 ? OkStatus() : NoBox("a box of 4 numbers", value);
  }

  static Status NoBox(std::string_view expected, const JsonValue& found) {
    return Error(Code::kDataLoss, "expected {} at byte {} of the JSON text, found {} \"{}\"",
                 expected, found.offset, JsonKindName(found.kind),
                 EscapeText(found.text.substr(0, 40)));
  }

  // Turns one box along with the image.
  Status Add(Box box, const ViewGeometry& view, uint64_t* count, MutableBytes out) const {
    if (*count == options_.max_boxes)
      return Error(Code::kDataLoss, "there are more than the {} boxes of \"max_boxes\"",
                   options_.max_boxes);
    for (double value : box)
      if (!std::isfinite(value))
        return Error(Code::kDataLoss, "box {} has a coordinate that is no finite number", *count);
    if (options_.sizes) {
      box[2] += box[0];
      box[3] += box[1];
    }
    bool ordered = box[0] < box[2] && box[1] < box[3];
    Point a{box[0], box[1]}, b{box[2], box[3]};
    if (!options_.upright) {
      a = view.Upright(a);
      b = view.Upright(b);
    }
    Box turned{view.x.Map(std::min(a.x, b.x)), view.y.Map(std::min(a.y, b.y)),
               view.x.Map(std::max(a.x, b.x)), view.y.Map(std::max(a.y, b.y))};
    Clip(view.x, &turned[0], &turned[2]);
    Clip(view.y, &turned[1], &turned[3]);
    if (view.mirrored) {
      turned[0] = view.output_width - turned[0];
      turned[2] = view.output_width - turned[2];
      std::swap(turned[0], turned[2]);
    }
    bool visible = ordered && turned[2] - turned[0] >= options_.min_size &&
                   turned[3] - turned[1] >= options_.min_size;
    Store((*count)++, turned, visible ? kVisible : kLost, out);
    return OkStatus();
  }

  static void Store(uint64_t index, const Box& box, float state, MutableBytes out) {
    std::array<float, kRow> row;
    for (size_t k = 0; k < 4; ++k) row[k] = static_cast<float>(box[k]);
    row[4] = state;
    std::memcpy(out.data() + index * sizeof(row), row.data(), sizeof(row));
  }

  TensorSpec spec_;
  BoxesOptions options_;
};

}  // namespace

Result<std::shared_ptr<const Transform>> CreateBoxesTransform(const Json& description) {
  Members members(description, "boxes transform");
  HR_RETURN_IF_ERROR(members.OnlyKnown(
      {"type", "max_boxes", "coordinates", "relative_to", "min_size", "path", "stream"}));
  BoxesOptions options;
  if (!members.Has("max_boxes")) return members.Wrong("max_boxes", "is missing");
  HR_ASSIGN_OR_RETURN(options.max_boxes, members.Unsigned("max_boxes", 1, 1, 1 << 16));
  HR_ASSIGN_OR_RETURN(size_t sizes, members.Choice("coordinates", {"xyxy", "xywh"}));
  options.sizes = sizes == 1;
  HR_ASSIGN_OR_RETURN(size_t upright, members.Choice("relative_to", {"stored", "upright"}));
  options.upright = upright == 1;
  HR_ASSIGN_OR_RETURN(options.min_size, members.Real("min_size", 1.0, 0, 1e6));
  HR_ASSIGN_OR_RETURN(options.stream, members.Unsigned("stream", 0, 0, kMaxStream));
  HR_ASSIGN_OR_RETURN(std::string pointer, members.Text("path", ""));
  auto path = ParseJsonPointer(pointer);
  if (!path.ok()) return members.Wrong("path", path.status().message());
  options.path = *std::move(path);
  return std::make_shared<const BoxesTransform>(std::move(options));
}

}  // namespace headrace::codec
