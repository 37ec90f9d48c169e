#include "headrace/codec/thumbnail.h"

#include <algorithm>

#include "headrace/codec/scratch.h"

namespace headrace::codec {
namespace {

// `side` scaled as `longest` is to `limit`, rounded, at least 1.
uint32_t Scaled(uint32_t side, uint32_t longest, uint32_t limit) {
  uint64_t scaled = (uint64_t{side} * limit + longest / 2) / longest;
  return static_cast<uint32_t>(std::max<uint64_t>(scaled, 1));
}

Result<PixelView> Resize(const PixelView& view, uint32_t width, uint32_t height, Resizer* resizer,
                         AlignedBuffer* memory) {
  OutputFormat format;
  format.channels_last = true;
  format.width = width;
  format.height = height;
  AxisPlan x{view.width, width, 0, width}, y{view.height, height, 0, height};
  if (!resizer->Prepare(x, y, false) || !memory->Reserve(size_t{width} * height * 3))
    return Error(Code::kResourceExhausted, "no memory for a thumbnail of {} x {}", width, height);
  Rect source = resizer->source();
  PixelView part = view;
  part.data += source.y * view.stride + size_t{source.x} * view.channels;
  part.width = source.width;
  part.height = source.height;
  HR_RETURN_IF_ERROR(resizer->Run(part, format, 0, 0, memory->data()));
  return PixelView{reinterpret_cast<const uint8_t*>(memory->data()), size_t{width} * 3, width,
                   height, 3};
}

}  // namespace

Result<Thumbnail> MakeThumbnail(Bytes encoded, const DecodeHints& hints,
                                const ThumbnailOptions& options, Scratch* scratch,
                                AlignedBuffer* memory) {
  Thumbnail thumbnail;
  HR_ASSIGN_OR_RETURN(thumbnail.image, ReadImageInfo(encoded, options.max_pixels, scratch));
  thumbnail.region =
      options.region.value_or(Rect{0, 0, thumbnail.image.width, thumbnail.image.height});
  HR_ASSIGN_OR_RETURN(thumbnail.pixels, DecodeRegion(encoded, thumbnail.region, 3,
                                                     options.max_pixels, hints, scratch));
  const uint32_t width = thumbnail.region.width, height = thumbnail.region.height;
  const uint32_t longest = std::max(width, height), limit = options.long_side;
  if (limit == 0 || longest <= limit) return thumbnail;
  HR_ASSIGN_OR_RETURN(thumbnail.pixels,
                      Resize(thumbnail.pixels, Scaled(width, longest, limit),
                             Scaled(height, longest, limit), &scratch->rep()->resizer, memory));
  return thumbnail;
}

}  // namespace headrace::codec
