#include "headrace/codec/resize.h"

#include <algorithm>
#include <cstring>

#include "headrace/codec/resize_weights.h"

namespace headrace::codec {
namespace {

constexpr size_t RoundUp(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }

uint8_t* Data(AlignedBuffer& buffer) { return reinterpret_cast<uint8_t*>(buffer.data()); }

// A row of each of three planes to RGB.
void Interleave(const uint8_t* first, size_t plane_bytes, size_t pixels, uint8_t* rgb) {
  const uint8_t *second = first + plane_bytes, *third = second + plane_bytes;
  for (size_t i = 0; i < pixels; ++i, rgb += 3) {
    rgb[0] = first[i];
    rgb[1] = second[i];
    rgb[2] = third[i];
  }
}

uint32_t CoarseWeight(uint32_t weight) {
  constexpr int kShift = AxisTaps::kPrecision - 16;
  return std::min((weight + (1u << (kShift - 1))) >> kShift, 65535u);
}

}  // namespace

void FillBlack(const OutputFormat& f, uint8_t* zeros, std::byte* out) {
  size_t row = f.channels_last ? size_t{f.width} * f.channels : f.width;
  size_t rows_per_channel = f.height, channels = f.channels_last ? 1 : f.channels;
  std::memset(zeros, 0, row);
  for (size_t c = 0; c < channels; ++c)
    for (size_t y = 0; y < rows_per_channel; ++y)
      ConvertRow(zeros, row, f.mul.data() + c * f.width, f.add.data() + c * f.width, f.dtype,
                 out + (c * f.height + y) * row * DTypeBytes(f.dtype));
}

void WritePlanes(const PlanarPixels& pixels, const OutputFormat& f, uint32_t left, uint32_t top,
                 uint8_t* row, std::byte* out) {
  const size_t element = DTypeBytes(f.dtype), width = pixels.width, channels = pixels.channels;
  for (size_t y = 0; y < pixels.height; ++y) {
    const uint8_t* first = pixels.data + y * width;
    const size_t to = top + y;
    if (f.channels_last) {
      if (channels == 3) Interleave(first, pixels.plane_bytes, width, row);
      ConvertRow(channels == 3 ? row : first, width * channels, f.mul.data(), f.add.data(), f.dtype,
                 out + (to * f.width + left) * channels * element);
      continue;
    }
    for (size_t c = 0; c < channels; ++c)
      ConvertRow(first + c * pixels.plane_bytes, width, f.mul.data() + c * f.width,
                 f.add.data() + c * f.width, f.dtype,
                 out + ((c * f.height + to) * f.width + left) * element);
  }
}

bool AxisTaps::Prepare(const AxisPlan& plan, bool reversed) {
  if (plan == plan_ && reversed == reversed_ && plan.count > 0) return true;
  plan_ = plan;
  reversed_ = reversed;
  if (Compute()) return true;
  plan_ = {};
  return false;
}

// Drops the zeros at the ends of one output's weights, which lie kWeightLanes apart.
AxisTaps::Span AxisTaps::Trim(uint32_t first, uint32_t count, const uint32_t* weights) {
  for (; count > 1 && *weights == 0; weights += kWeightLanes, ++first) --count;
  while (count > 1 && weights[size_t{count - 1} * kWeightLanes] == 0) --count;
  return {first, count, weights};
}

bool AxisTaps::Compute() {
  // Weights of an output: the support rounded up on both sides, and its middle.
  const uint32_t most = plan_.in / plan_.out * 2 + 5;
  if (!outputs_.Reserve(plan_.count * sizeof(Output)) ||
      !weights_.Reserve(size_t{most} * kWeightLanes * sizeof(uint32_t)) ||
      !pairs_.Reserve(size_t{plan_.count} * (most + 1) / 2 * 2 * sizeof(uint32_t)))
    return false;
  auto* outputs = reinterpret_cast<Output*>(outputs_.data());
  WeightTask task{&plan_, 0, TapsPerOutput(), {}, reinterpret_cast<uint32_t*>(weights_.data())};
  uint32_t pair = 0;
  source_begin_ = plan_.num_samples();
  source_end_ = max_count_ = 0;
  for (uint32_t i = 0; i < plan_.count; ++i) {
    const uint32_t lane = i % kWeightLanes;
    if (lane == 0) {
      task.index = plan_.begin + i;
      ComputeWeights(&task);
    }
    Span span = Trim(task.first[lane], task.num_taps, task.weights + lane);
    outputs[reversed_ ? plan_.count - 1 - i : i] = {span.first, span.count, pair};
    pair = AppendPairs(span, pair);
    source_begin_ = std::min(source_begin_, span.first);
    source_end_ = std::max(source_end_, span.first + span.count);
    max_count_ = std::max(max_count_, span.count);
  }
  for (uint32_t i = 0; i < plan_.count; ++i) outputs[i].first -= source_begin_;
  return true;
}

uint32_t AxisTaps::TapsPerOutput() const {
  // From trunc(center - reach + 0.5) up to trunc(center + reach + 0.5).
  return static_cast<uint32_t>(2 * plan_.reach()) + 2;
}

uint32_t AxisTaps::AppendPairs(const Span& span, uint32_t pair) {
  constexpr uint32_t kLowMask = (1u << kLowBits) - 1;
  auto* pairs = reinterpret_cast<uint32_t*>(pairs_.data());
  for (uint32_t k = 0; k < span.count; k += 2, ++pair) {
    const uint32_t* weight = span.weights + size_t{k} * kWeightLanes;
    uint32_t a = weight[0], b = k + 1 < span.count ? weight[kWeightLanes] : 0;
    if (plan_.coarse) {
      pairs[2 * pair] = CoarseWeight(a);
      pairs[2 * pair + 1] = CoarseWeight(b);
      continue;
    }
    pairs[2 * pair] = (a >> kLowBits) | (b >> kLowBits) << 16;
    pairs[2 * pair + 1] = (a & kLowMask) | (b & kLowMask) << 16;
  }
  return pair;
}

void OutputFormat::SetNormalization(const std::vector<double>& mean,
                                    const std::vector<double>& std) {
  mul.resize(size_t{width} * channels);
  add.resize(mul.size());
  for (size_t i = 0; i < mul.size(); ++i) {
    size_t c = channels_last ? i % channels : i / width;
    mul[i] = static_cast<float>(1.0 / (255.0 * std[c]));
    add[i] = static_cast<float>(-mean[c] / std[c]);
  }
}

bool Resizer::Prepare(const AxisPlan& x, const AxisPlan& y, bool flip) {
  return x_.Prepare(x, flip) && y_.Prepare(y, false);
}

Rect Resizer::source() const {
  return {x_.source_begin(), y_.source_begin(), x_.source_end() - x_.source_begin(),
          y_.source_end() - y_.source_begin()};
}

Status Resizer::Run(const PixelView& view, const OutputFormat& format, uint32_t left, uint32_t top,
                    std::byte* out) {
  ResizeJob job{};
  job.view = view;
  job.x = &x_;
  job.y = &y_;
  job.format = &format;
  job.left = left;
  job.top = top;
  job.out = out;
  job.window_stride = RoundUp(size_t{x_.num_outputs()} * view.channels + 15, 64);
  // A finished row, then the same with gray spread; or a row of zeros.
  const size_t spread_bytes =
      view.channels < format.channels ? size_t{x_.num_outputs()} * format.channels : 0;
  const size_t row_bytes =
      std::max(job.window_stride + spread_bytes, size_t{format.width} * format.channels);
  job.window_rows = y_.max_count() + 2 * ResizeJob::kBandRows;
  size_t band_bytes = RoundUp(size_t{view.width} * view.channels, 16) * ResizeJob::kBandRows;
  if (!band_.Reserve(band_bytes) ||
      !columns_.Reserve(RoundUp(x_.num_outputs(), 16) * view.channels * ResizeJob::kBandRows) ||
      !window_.Reserve(job.window_rows * job.window_stride) || !row_.Reserve(row_bytes))
    return Error(Code::kResourceExhausted, "no memory for resizing {} x {} pixels", view.width,
                 view.height);
  job.band = Data(band_);
  job.columns = Data(columns_);
  job.window = Data(window_);
  job.row = Data(row_);
  job.spread = job.row + job.window_stride;
  if (x_.num_outputs() < format.width || y_.num_outputs() < format.height)
    FillBlack(format, job.row, out);
  RunResizeJob(job);
  return OkStatus();
}

uint64_t Resizer::memory_bytes() const {
  return x_.memory_bytes() + y_.memory_bytes() + band_.capacity() + columns_.capacity() +
         window_.capacity() + row_.capacity();
}

}  // namespace headrace::codec
