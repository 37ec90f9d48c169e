#include "headrace/codec/plane_resizer.h"

#include <algorithm>

#include "headrace/codec/color_rows.h"

namespace headrace::codec {
namespace {

uint8_t* Data(AlignedBuffer& buffer) { return reinterpret_cast<uint8_t*>(buffer.data()); }

void Interleave(const uint8_t* r, const uint8_t* g, const uint8_t* b, size_t pixels, uint8_t* rgb) {
  for (size_t i = 0; i < pixels; ++i, rgb += 3) {
    rgb[0] = r[i];
    rgb[1] = g[i];
    rgb[2] = b[i];
  }
}

// Coarse products are cut, which is made good for a limited number of them.
bool TakesCoarseWeights(const AxisPlan& plan) { return plan.num_samples() / plan.out <= 64; }

}  // namespace

void PlaneResizer::SourceRange(const AxisPlan& plan, uint32_t reduction, uint32_t* begin,
                               uint32_t* size) {
  // The filter reaches one output pixel to each side, or one sample where those are larger.
  constexpr uint32_t kMaxSubsampling = 4;
  double scale = static_cast<double>(plan.in) / static_cast<double>(plan.out);
  double reach = std::max(scale, 1.0 * reduction * kMaxSubsampling) + reduction * kMaxSubsampling;
  double first = (plan.begin + 0.5) * scale - reach;
  double end = (plan.begin + plan.count - 0.5) * scale + reach;
  auto from = static_cast<uint32_t>(std::max(first, 0.0));
  auto to = static_cast<uint32_t>(std::min(end + 1, static_cast<double>(plan.in)));
  *begin += from;
  *size = to - from;
}

Status PlaneResizer::ResamplePlane(const SamplePlane& plane, const PlaneResize& resize,
                                   Resizer* resizer, std::byte* out) {
  AxisPlan x = Coarser(resize.x, resize.origin_x, plane.step_x);
  AxisPlan y = Coarser(resize.y, resize.origin_y, plane.step_y);
  x.coarse = TakesCoarseWeights(x);
  y.coarse = TakesCoarseWeights(y);
  if (!resizer->Prepare(x, y, resize.flip))
    return Error(Code::kResourceExhausted, "no memory for the weights of a resize");
  Rect source = resizer->source();
  source.x += resize.origin_x / plane.step_x;
  source.y += resize.origin_y / plane.step_y;
  PixelView view{plane.At(source.x, source.y), plane.stride, source.width, source.height, 1};
  return resizer->Run(view, sample_format_, 0, 0, out);
}

Status PlaneResizer::Run(const YccPlanes& planes, const PlaneResize& resize,
                         const OutputFormat& format, uint32_t left, uint32_t top, std::byte* out) {
  sample_format_.channels = 1;
  sample_format_.width = resize.x.count;
  sample_format_.height = resize.y.count;
  size_t samples = size_t{resize.x.count} * resize.y.count;
  plane_bytes_ = (samples + 2 * kRowPadding - 1) / kRowPadding * kRowPadding;
  if (!resampled_.Reserve(3 * plane_bytes_ + size_t{format.width} * 3))
    return Error(Code::kResourceExhausted, "no memory for resizing to {} x {} pixels",
                 resize.x.count, resize.y.count);
  for (size_t c = 0; c < 3; ++c)
    HR_RETURN_IF_ERROR(ResamplePlane(planes[c], resize, c == 0 ? &luma_ : &chroma_,
                                     resampled_.data() + c * plane_bytes_));
  uint8_t* y = Data(resampled_);
  ConvertColorPlanes(y, y + plane_bytes_, y + 2 * plane_bytes_, samples);
  WriteRows(format, left, top, out);
  return OkStatus();
}

void PlaneResizer::WriteRows(const OutputFormat& f, uint32_t left, uint32_t top, std::byte* out) {
  const uint32_t width = sample_format_.width, height = sample_format_.height;
  const size_t element = DTypeBytes(f.dtype);
  uint8_t* red = Data(resampled_);
  uint8_t* row = red + 3 * plane_bytes_;
  if (width < f.width || height < f.height) FillBlack(f, row, out);
  for (uint32_t y = 0; y < height; ++y) {
    size_t at = size_t{y} * width, to = top + y;
    if (f.channels_last) {
      const uint8_t* r = red + at;
      Interleave(r, r + plane_bytes_, r + 2 * plane_bytes_, width, row);
      ConvertRow(row, size_t{width} * 3, f.mul.data(), f.add.data(), f.dtype,
                 out + (to * f.width + left) * 3 * element);
      continue;
    }
    for (size_t c = 0; c < 3; ++c)
      ConvertRow(red + c * plane_bytes_ + at, width, f.mul.data() + c * f.width,
                 f.add.data() + c * f.width, f.dtype,
                 out + ((c * f.height + to) * f.width + left) * element);
  }
}

}  // namespace headrace::codec
