#include "headrace/codec/resize.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace headrace::codec {
namespace {

constexpr size_t RoundUp(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }

uint8_t* Data(AlignedBuffer& buffer) { return reinterpret_cast<uint8_t*>(buffer.data()); }

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

bool AxisTaps::Prepare(const AxisPlan& plan, bool reversed) {
  if (plan == plan_ && reversed == reversed_ && plan.count > 0) return true;
  plan_ = plan;
  reversed_ = reversed;
  if (Compute()) return true;
  plan_ = {};
  return false;
}

// NOLINTBEGIN(bugprone-incorrect-roundings): adding a half and truncating is the definition
// The order of the double operations is part of the definition: it decides the last bits of the
// weights, and with them how halves round.
AxisTaps::Span AxisTaps::ComputeWeights(uint32_t index) {
  double step = plan_.step;
  double scale = static_cast<double>(plan_.in) / step / static_cast<double>(plan_.out);
  double support = std::max(scale, 1.0), inverse = 1.0 / support;
  double center = plan_.phase / step + (static_cast<double>(index) + 0.5) * scale;
  int64_t begin = std::max<int64_t>(static_cast<int64_t>(center - support + 0.5), 0);
  int64_t end =
      std::min<int64_t>(static_cast<int64_t>(center + support + 0.5), plan_.num_samples());
  auto* weights = reinterpret_cast<double*>(weights_.data());
  double sum = 0.0;
  for (int64_t k = begin; k < end; ++k) {
    double distance = std::fabs((static_cast<double>(k) - center + 0.5) * inverse);
    double weight = distance < 1.0 ? 1.0 - distance : 0.0;
    weights[k - begin] = weight;
    sum += weight;
  }
  // The integer weights take the place of the others.
  auto* integers = reinterpret_cast<uint32_t*>(weights);
  for (int64_t k = 0; k < end - begin; ++k) {
    double weight = sum != 0.0 ? weights[k] / sum : weights[k];
    integers[k] = static_cast<uint32_t>(0.5 + weight * (1 << kPrecision));
  }
  Span span{static_cast<uint32_t>(begin), static_cast<uint32_t>(end - begin), integers};
  for (; span.count > 1 && span.weights[0] == 0; ++span.weights, ++span.first) --span.count;
  while (span.count > 1 && span.weights[span.count - 1] == 0) --span.count;
  return span;
}

// NOLINTEND(bugprone-incorrect-roundings)

bool AxisTaps::Compute() {
  // Weights of an output: the support rounded up on both sides, and its middle.
  size_t most = size_t{plan_.in} / plan_.out * 2 + 5;
  if (!outputs_.Reserve(plan_.count * sizeof(Output)) || !weights_.Reserve(most * sizeof(double)) ||
      !pairs_.Reserve(plan_.count * (most + 1) / 2 * 2 * sizeof(uint32_t)))
    return false;
  auto* outputs = reinterpret_cast<Output*>(outputs_.data());
  auto* pairs = reinterpret_cast<uint32_t*>(pairs_.data());
  constexpr uint32_t kLowMask = (1u << kLowBits) - 1;
  uint32_t pair = 0;
  source_begin_ = plan_.num_samples();
  source_end_ = max_count_ = 0;
  for (uint32_t i = 0; i < plan_.count; ++i) {
    Span span = ComputeWeights(plan_.begin + i);
    outputs[reversed_ ? plan_.count - 1 - i : i] = {span.first, span.count, pair};
    for (uint32_t k = 0; k < span.count; k += 2, ++pair) {
      uint32_t a = span.weights[k], b = k + 1 < span.count ? span.weights[k + 1] : 0;
      if (plan_.coarse) {
        pairs[2 * pair] = CoarseWeight(a);
        pairs[2 * pair + 1] = CoarseWeight(b);
        continue;
      }
      pairs[2 * pair] = (a >> kLowBits) | (b >> kLowBits) << 16;
      pairs[2 * pair + 1] = (a & kLowMask) | (b & kLowMask) << 16;
    }
    source_begin_ = std::min(source_begin_, span.first);
    source_end_ = std::max(source_end_, span.first + span.count);
    max_count_ = std::max(max_count_, span.count);
  }
  for (uint32_t i = 0; i < plan_.count; ++i) outputs[i].first -= source_begin_;
  return true;
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
  job.row_bytes = size_t{x_.num_outputs()} * format.channels;
  job.window_stride =
      RoundUp(std::max<size_t>(job.row_bytes, size_t{format.width} * format.channels), 64);
  job.window_rows = y_.max_count() + 2 * ResizeJob::kBandRows;
  size_t band_bytes = RoundUp(size_t{view.width} * view.channels, 16) * ResizeJob::kBandRows;
  if (!band_.Reserve(band_bytes) ||
      !columns_.Reserve(RoundUp(job.row_bytes, 16) * ResizeJob::kBandRows) ||
      !window_.Reserve(job.window_rows * job.window_stride) || !row_.Reserve(job.window_stride))
    return Error(Code::kResourceExhausted, "no memory for resizing {} x {} pixels", view.width,
                 view.height);
  job.band = Data(band_);
  job.columns = Data(columns_);
  job.window = Data(window_);
  job.row = Data(row_);
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
