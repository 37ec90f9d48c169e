// Antialiased bilinear resize of a crop to 224 x 224, fused with flip, normalization and the split
// into channel planes. The filter is Pillow's: a triangle as wide as the scale, at least two
// pixels. One TriangleResize belongs to one thread.
#pragma once

#include <cstdint>
#include <vector>

#include "jpeg_region.h"

namespace headrace::floor {

inline constexpr int kSize = 224;  // pixels each way of the result
inline constexpr int kImageValues = 3 * kSize * kSize;

inline constexpr float kMean[3] = {0.485f, 0.456f, 0.406f};
inline constexpr float kStd[3] = {0.229f, 0.224f, 0.225f};

class TriangleResize {
 public:
  // Writes kImageValues values to `out`, channel planes one after the other: normalized with kMean
  // and kStd for float, the rounded gray levels for uint8_t. `crop` counts from the first pixel of
  // `pixels` and lies inside it.
  template <typename Value>
  void Run(const Pixels& pixels, const Rect& crop, bool flip, Value* out);

 private:
  // For each output position: the first input that counts, and `taps` weights that add up to 1.
  struct Axis {
    int taps = 0;
    std::vector<int> first;
    std::vector<float> weights;
  };
  static void Plan(int begin, int length, int input_size, Axis& axis);

  Axis across_;
  Axis down_;
  std::vector<float> row_;  // one output row high, as wide as the input that counts
};

}  // namespace headrace::floor
