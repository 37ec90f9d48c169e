// Antialiased bilinear resampling with the bytes of Pillow's Image.resize(..., BILINEAR): the
// triangle filter widened by the scale, 22-bit integer weights, columns first, 8 bits between the
// passes. Whole arithmetic is in integers, so every processor gives the same bytes. The float
// outputs are value * mul + add in float32, multiplied and added separately for the same reason. A
// Resizer is for one thread at a time and reuses its memory. Used inside the codec only.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "headrace/base/bytes.h"
#include "headrace/base/status.h"
#include "headrace/codec/image.h"
#include "headrace/codec/transform.h"

namespace headrace::codec {

// One axis: resampling of `in` pixels to `out`, of which [begin, begin + count) are wanted. Where
// the source is coarser than the image (subsampled chroma, a reduced decode), a sample of it takes
// `step` pixels and the first one starts `phase` (less than `step`) pixels before the `in` pixels.
struct AxisPlan {
  uint32_t in = 0, out = 0, begin = 0, count = 0;
  uint32_t step = 1, phase = 0;
  // Weights of 16 bits, summed in 16 bits: about twice as fast, and at most one level off.
  bool coarse = false;
  // Of subsampled chroma: the filter reaches as much farther as upsampling first would blur.
  bool wider = false;
  // How far the filter reaches to each side, in samples.
  double reach() const {
    double scale = std::max(static_cast<double>(in) / step / out, 1.0);
    return wider ? std::sqrt(scale * scale + 0.5) : scale;
  }
  // Samples of the source that have a part in the `in` pixels.
  uint32_t num_samples() const { return (phase + in + step - 1) / step; }
  bool operator==(const AxisPlan&) const = default;
};
// `plan` (of pixels from `origin` on) for a source in which a sample takes `step` pixels; its
// samples are counted from origin / step.
inline AxisPlan Coarser(AxisPlan plan, uint32_t origin, uint32_t step) {
  plan.step = step;
  plan.phase = origin % step;
  return plan;
}

// The weights of one axis. Weights are kept in pairs of two neighbouring samples and split into a
// high and a low part (weight = high * 2048 + low), which is the form that 16-bit multipliers take.
class AxisTaps {
 public:
  struct Output {
    uint32_t first;  // sample of the first weight, counted from source_begin()
    uint32_t count;  // weights; at least 1
    uint32_t pair;   // index of the first pair
  };
  static constexpr int kPrecision = 22, kLowBits = 11;

  // Computes the weights; nothing is done when the last call asked for the same. `reversed` puts
  // the wanted outputs in the opposite order. False when memory is short.
  bool Prepare(const AxisPlan& plan, bool reversed);

  // The samples [source_begin, source_end) of the input that the wanted outputs need.
  uint32_t source_begin() const { return source_begin_; }
  uint32_t source_end() const { return source_end_; }
  uint32_t max_count() const { return max_count_; }
  uint32_t num_outputs() const { return plan_.count; }
  bool coarse() const { return plan_.coarse; }
  const Output& output(size_t i) const {
    return reinterpret_cast<const Output*>(outputs_.data())[i];
  }
  // Pair p: element 2p has both high parts (first sample in the low half), 2p + 1 both low parts.
  // Of coarse weights one element has one weight, out of 65,536.
  const uint32_t* pairs() const { return reinterpret_cast<const uint32_t*>(pairs_.data()); }
  uint64_t memory_bytes() const {
    return outputs_.capacity() + pairs_.capacity() + weights_.capacity();
  }

 private:
  struct Span {
    uint32_t first, count;
    const uint32_t* weights;  // in weights_
  };
  static Span Trim(uint32_t first, uint32_t count, const uint32_t* weights);
  uint32_t TapsPerOutput() const;
  // Appends the weights from place `pair` on; returns the place after them.
  uint32_t AppendPairs(const Span& span, uint32_t pair);
  bool Compute();

  AxisPlan plan_;
  bool reversed_ = false;
  uint32_t source_begin_ = 0, source_end_ = 0, max_count_ = 0;
  AlignedBuffer outputs_, pairs_, weights_;
};

// What the resized pixels are written as. Immutable; shared by all threads.
struct OutputFormat {
  DType dtype = DType::kUint8;  // or kFloat16, kBfloat16, kFloat32
  bool channels_last = false;   // NHWC, else NCHW
  uint32_t channels = 3, height = 0, width = 0;
  // For each value of a row of `width` pixels (planar rows one after the other, or interleaved).
  std::vector<float> mul, add;

  // Fills mul and add: value * float32(1 / (255 std)) + float32(-mean / std).
  void SetNormalization(const std::vector<double>& mean, const std::vector<double>& std);
};

class Resizer {
 public:
  // Chooses the resampling; `flip` mirrors left and right. Afterwards source() is the part of the
  // input that Run must be given. False when memory is short.
  bool Prepare(const AxisPlan& x, const AxisPlan& y, bool flip);
  Rect source() const;

  // Resamples `view` (the pixels of source(); 1 or format.channels channels) and writes
  // the result at (left, top) of `out`, an image of `format`. Where it does not reach, black is
  // written. kResourceExhausted when memory is short.
  Status Run(const PixelView& view, const OutputFormat& format, uint32_t left, uint32_t top,
             std::byte* out);

  uint64_t memory_bytes() const;

 private:
  AxisTaps x_, y_;
  AlignedBuffer band_, columns_, window_, row_;
};

// Writes black everywhere in `out`. `zeros` has room for a row of width * channels bytes.
void FillBlack(const OutputFormat& format, uint8_t* zeros, std::byte* out);

// 8-bit pixels in planes, rows without gaps.
struct PlanarPixels {
  const uint8_t* data = nullptr;
  size_t plane_bytes = 0;  // from plane to plane
  uint32_t channels = 3, height = 0, width = 0;
};
// Writes `pixels` at (left, top) of `out`, an image of `format` with as many channels. `row` has
// room for one row of them.
void WritePlanes(const PlanarPixels& pixels, const OutputFormat& format, uint32_t left,
                 uint32_t top, uint8_t* row, std::byte* out);

// One call of the kernels: everything that they need, as plain pointers.
struct ResizeJob {
  // Rows of a band that is transposed at a time.
  static constexpr uint32_t kBandRows = 64;

  PixelView view;
  const AxisTaps* x;
  const AxisTaps* y;
  const OutputFormat* format;
  uint32_t left, top;
  std::byte* out;
  uint8_t* band;     // [source columns * view.channels, rounded up to 16][kBandRows]
  uint8_t* columns;  // [output columns, rounded up to 16][view.channels][kBandRows]
  uint8_t* window;   // [window_rows][window_stride]
  uint8_t* row;      // [window_stride], one finished row
  uint8_t* spread;   // [output columns * format channels], of gray for several channels
  size_t window_rows, window_stride;
};
// Runs the fastest form for this processor (resize_kernels.cc).
void RunResizeJob(const ResizeJob& job);
// Writes `count` 8-bit values as elements of `dtype`.
void ConvertRow(const uint8_t* values, size_t count, const float* mul, const float* add,
                DType dtype, std::byte* out);

}  // namespace headrace::codec
