// Boxes from any bytes, behind an image that was cropped and turned.
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "headrace/codec/scratch.h"
#include "headrace/codec/transform.h"
#include "headrace/codec/view_geometry.h"

namespace {

using namespace headrace::codec;

constexpr size_t kMaxBoxes = 5, kRow = 5;
constexpr float kWidth = 30, kHeight = 20;

std::shared_ptr<const Transform> Make(const char* json) {
  auto transform = CreateTransform(json);
  if (!transform.ok()) std::abort();
  return *transform;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::shared_ptr<const Transform> transforms[] = {
      Make(R"({"type": "boxes", "max_boxes": 5})"),
      Make(R"({"type": "boxes", "max_boxes": 5, "coordinates": "xywh", "path": "/boxes"})")};
  static Scratch scratch;
  ViewGeometry view;
  view.orientation = static_cast<uint8_t>(1 + size % 8);
  view.width = 100;
  view.height = 80;
  view.x = {20, 60, 40, 5, 0, 30};
  view.y = {10, 50, 20, 0, 0, 20};
  view.output_width = static_cast<uint32_t>(kWidth);
  view.mirrored = size % 2 == 1;
  scratch.rep()->views.Record(view);
  headrace::Bytes input(reinterpret_cast<const std::byte*>(data), size);
  for (const auto& transform : transforms) {
    std::vector<float> rows(kMaxBoxes * kRow);
    if (!transform->Apply(input, {}, {}, &scratch, std::as_writable_bytes(std::span(rows))).ok())
      continue;
    for (size_t i = 0; i < rows.size(); i += kRow) {
      bool inside = rows[i] >= 0 && rows[i] <= rows[i + 2] && rows[i + 2] <= kWidth &&
                    rows[i + 1] >= 0 && rows[i + 1] <= rows[i + 3] && rows[i + 3] <= kHeight;
      if (!inside) std::abort();
    }
  }
  return 0;
}
