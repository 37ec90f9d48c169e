#include "triangle_resize.h"

#include <algorithm>
#include <cmath>

namespace headrace::floor {
namespace {

// Four floats that the compiler keeps in one register: red, green, blue and one to spare.
using Lanes = float __attribute__((vector_size(16), aligned(4)));

// row[i] = sum of kTaps source rows, weighted. The compiler unrolls and vectorizes it.
template <int kTaps>
void SumRows(const uint8_t* source, size_t stride, const float* weights, int count, float* row) {
  for (int i = 0; i < count; ++i) {
    float sum = 0;
    for (int tap = 0; tap < kTaps; ++tap) sum += weights[tap] * source[i + tap * stride];
    row[i] = sum;
  }
}

void SumRows(int taps, const uint8_t* source, size_t stride, const float* weights, int count,
             float* row) {
  constexpr int kMost = 5;
  switch (taps) {
    case 1:
      return SumRows<1>(source, stride, weights, count, row);
    case 2:
      return SumRows<2>(source, stride, weights, count, row);
    case 3:
      return SumRows<3>(source, stride, weights, count, row);
    case 4:
      return SumRows<4>(source, stride, weights, count, row);
    default:
      SumRows<kMost>(source, stride, weights, count, row);
  }
  for (int tap = kMost; tap < taps; ++tap) {
    for (int i = 0; i < count; ++i) row[i] += weights[tap] * source[i + tap * stride];
  }
}

// One output row from `row`, whose first pixel is input column `first_column`. kTaps 0: any number.
template <int kTaps>
void SumColumns(const float* row, int first_column, const int* first, const float* weights,
                int taps, Lanes scale, Lanes offset, Lanes* out) {
  const int count = kTaps > 0 ? kTaps : taps;
  for (int x = 0; x < kSize; ++x) {
    const float* pixel = row + 3 * (first[x] - first_column);
    const float* weight = weights + static_cast<size_t>(x) * taps;
    Lanes sum = {0, 0, 0, 0};
    for (int tap = 0; tap < count; ++tap) {
      sum += *reinterpret_cast<const Lanes*>(pixel + 3 * tap) * weight[tap];
    }
    out[x] = sum * scale + offset;
  }
}

template <typename Value>
void StorePlanes(const Lanes* row, bool flip, Value* out) {
  for (int channel = 0; channel < 3; ++channel) {
    Value* plane = out + channel * kSize * kSize;
    if (flip) {
      for (int x = 0; x < kSize; ++x) plane[kSize - 1 - x] = static_cast<Value>(row[x][channel]);
    } else {
      for (int x = 0; x < kSize; ++x) plane[x] = static_cast<Value>(row[x][channel]);
    }
  }
}

}  // namespace

void TriangleResize::Plan(int begin, int length, int input_size, Axis& axis) {
  const double scale = static_cast<double>(length) / kSize;
  const double support = std::max(scale, 1.0);
  axis.taps = std::min(static_cast<int>(std::ceil(support)) * 2 + 1, input_size);
  axis.first.resize(kSize);
  axis.weights.assign(static_cast<size_t>(kSize) * axis.taps, 0.f);
  for (int i = 0; i < kSize; ++i) {
    const double center = begin + (i + 0.5) * scale;
    const int low = std::max(begin, static_cast<int>(center - support + 0.5));
    const int high = std::min(begin + length, static_cast<int>(center + support + 0.5));
    const int first = std::min(low, input_size - axis.taps);
    float* weights = &axis.weights[static_cast<size_t>(i) * axis.taps];
    double sum = 0;
    for (int j = low; j < high; ++j) {
      const double weight = std::max(0.0, 1.0 - std::abs(j + 0.5 - center) / support);
      weights[j - first] = static_cast<float>(weight);
      sum += weight;
    }
    for (int j = low; j < high; ++j) weights[j - first] /= static_cast<float>(sum);
    axis.first[i] = first;
  }
}

template <typename Value>
void TriangleResize::Run(const Pixels& pixels, const Rect& crop, bool flip, Value* out) {
  Plan(crop.left, crop.width, pixels.width, across_);
  Plan(crop.top, crop.height, pixels.height, down_);
  const int first_column = across_.first.front();
  const int count = 3 * (across_.first.back() + across_.taps - first_column);
  if (row_.size() < static_cast<size_t>(count) + 4) row_.resize(count + 4);

  constexpr bool kIsFloat = std::is_same_v<Value, float>;
  Lanes scale = {1, 1, 1, 1};
  Lanes offset = {0.5f, 0.5f, 0.5f, 0.5f};  // rounds when the value is cut off
  for (int channel = 0; kIsFloat && channel < 3; ++channel) {
    scale[channel] = 1 / (255 * kStd[channel]);
    offset[channel] = -kMean[channel] / kStd[channel];
  }

  Lanes done[kSize];
  for (int y = 0; y < kSize; ++y) {
    const float* weights = &down_.weights[static_cast<size_t>(y) * down_.taps];
    const uint8_t* source =
        pixels.data + down_.first[y] * pixels.row_bytes() + 3 * static_cast<size_t>(first_column);
    int taps = down_.taps;
    while (taps > 1 && weights[taps - 1] == 0) --taps;
    SumRows(taps, source, pixels.row_bytes(), weights, count, row_.data());

    const auto sum_columns = across_.taps == 3   ? SumColumns<3>
                             : across_.taps == 5 ? SumColumns<5>
                                                 : SumColumns<0>;
    sum_columns(row_.data(), first_column, across_.first.data(), across_.weights.data(),
                across_.taps, scale, offset, done);
    StorePlanes(done, flip, out + y * kSize);
  }
}

template void TriangleResize::Run<float>(const Pixels&, const Rect&, bool, float*);
template void TriangleResize::Run<uint8_t>(const Pixels&, const Rect&, bool, uint8_t*);

}  // namespace headrace::floor
