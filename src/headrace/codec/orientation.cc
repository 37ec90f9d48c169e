#include "headrace/codec/orientation.h"

#include <algorithm>
#include <utility>

namespace headrace::codec {
namespace {

// Copies so that dst(x, y) = src + x * step_x + y * step_y. Tiles keep both sides in the near
// cache.
template <size_t kChannels>
void CopyTurned(const uint8_t* src, ptrdiff_t step_x, ptrdiff_t step_y, uint32_t width,
                uint32_t height, uint8_t* dst, size_t stride) {
  constexpr uint32_t kTile = 32;
  for (uint32_t y0 = 0; y0 < height; y0 += kTile)
    for (uint32_t x0 = 0; x0 < width; x0 += kTile)
      for (uint32_t y = y0; y < std::min(y0 + kTile, height); ++y) {
        const uint8_t* from =
            src + static_cast<ptrdiff_t>(y) * step_y + static_cast<ptrdiff_t>(x0) * step_x;
        uint8_t* to = dst + y * stride + size_t{x0} * kChannels;
        for (uint32_t x = x0; x < std::min(x0 + kTile, width); ++x, from += step_x, to += kChannels)
          std::copy_n(from, kChannels, to);
      }
}

}  // namespace

Orientation OrientationOf(uint8_t exif) {
  bool transposed = exif >= 5;
  // Values whose first stored row is the upright bottom or right side, and whose first column is
  // the right or bottom side.
  bool rows_back = exif == 3 || exif == 4 || exif == 6 || exif == 7;
  bool columns_back = exif == 2 || exif == 3 || exif == 7 || exif == 8;
  if (transposed) return {rows_back, columns_back, true};
  return {columns_back, rows_back, false};
}

Rect StoredRect(const Orientation& o, const Rect& upright, uint32_t width, uint32_t height) {
  Rect r = upright;
  if (o.mirror_x) r.x = width - r.x - r.width;
  if (o.mirror_y) r.y = height - r.y - r.height;
  if (o.transposed) {
    std::swap(r.x, r.y);
    std::swap(r.width, r.height);
  }
  return r;
}

Result<PixelView> TurnUpright(const Orientation& o, const PixelView& stored,
                              AlignedBuffer* pixels) {
  PixelView view = stored;
  if (o.transposed) std::swap(view.width, view.height);
  view.stride = (size_t{view.width} * view.channels + 63) / 64 * 64;
  if (!pixels->Reserve(view.stride * view.height))
    return Error(Code::kResourceExhausted, "no memory for turning {} x {} pixels upright",
                 view.width, view.height);
  auto step_x = static_cast<ptrdiff_t>(o.transposed ? stored.stride : stored.channels);
  auto step_y = static_cast<ptrdiff_t>(o.transposed ? stored.channels : stored.stride);
  const uint8_t* src = stored.data;
  if (o.mirror_x) {
    src += static_cast<ptrdiff_t>(view.width - 1) * step_x;
    step_x = -step_x;
  }
  if (o.mirror_y) {
    src += static_cast<ptrdiff_t>(view.height - 1) * step_y;
    step_y = -step_y;
  }
  auto* dst = reinterpret_cast<uint8_t*>(pixels->data());
  if (view.channels == 1)
    CopyTurned<1>(src, step_x, step_y, view.width, view.height, dst, view.stride);
  else
    CopyTurned<3>(src, step_x, step_y, view.width, view.height, dst, view.stride);
  view.data = dst;
  return view;
}

}  // namespace headrace::codec
