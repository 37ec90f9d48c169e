#include "headrace/codec/plane_resizer.h"

#include <algorithm>

#include "headrace/codec/color_rows.h"

namespace headrace::codec {
namespace {

uint8_t* Data(AlignedBuffer& buffer) { return reinterpret_cast<uint8_t*>(buffer.data()); }

// Coarse products are cut, which is made good for a limited number of them.
bool TakesCoarseWeights(const AxisPlan& plan) { return plan.num_samples() / plan.out <= 64; }

}  // namespace

void PlaneResizer::SourceRange(const AxisPlan& plan, uint32_t reduction, uint32_t* begin,
                               uint32_t* size) {
  // The filter reaches one output pixel to each side, or one sample where those are larger, and a
  // quarter of a sample farther at most (AxisPlan::wider); one sample more may be cut by the edge.
  const double sample = 4.0 * reduction;  // of the largest subsampling
  double scale = static_cast<double>(plan.in) / static_cast<double>(plan.out);
  double reach = std::max(scale, sample) + 1.25 * sample;
  double first = (plan.begin + 0.5) * scale - reach;
  double end = (plan.begin + plan.count - 0.5) * scale + reach;
  auto from = static_cast<uint32_t>(std::max(first, 0.0));
  auto to = static_cast<uint32_t>(std::min(end + 1, static_cast<double>(plan.in)));
  *begin += from;
  *size = to - from;
}

Status PlaneResizer::ResamplePlane(const YccPlanes& planes, size_t number,
                                   const PlaneResize& resize, std::byte* out) {
  const SamplePlane& plane = planes[number];
  Resizer* resizer = number == 0 ? &luma_ : &chroma_;
  AxisPlan x = Coarser(resize.x, resize.origin_x, plane.step_x);
  AxisPlan y = Coarser(resize.y, resize.origin_y, plane.step_y);
  x.wider = plane.step_x > planes[0].step_x;
  y.wider = plane.step_y > planes[0].step_y;
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
  const size_t plane_bytes = (samples + 2 * kRowPadding - 1) / kRowPadding * kRowPadding;
  if (!resampled_.Reserve(3 * plane_bytes + size_t{format.width} * 3))
    return Error(Code::kResourceExhausted, "no memory for resizing to {} x {} pixels",
                 resize.x.count, resize.y.count);
  for (size_t c = 0; c < 3; ++c)
    HR_RETURN_IF_ERROR(ResamplePlane(planes, c, resize, resampled_.data() + c * plane_bytes));
  uint8_t* y = Data(resampled_);
  ConvertColorPlanes(y, y + plane_bytes, y + 2 * plane_bytes, samples);
  uint8_t* row = y + 3 * plane_bytes;
  if (resize.x.count < format.width || resize.y.count < format.height) FillBlack(format, row, out);
  WritePlanes({y, plane_bytes, 3, resize.y.count, resize.x.count}, format, left, top, row, out);
  return OkStatus();
}

}  // namespace headrace::codec
