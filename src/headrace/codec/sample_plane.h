// Decoded samples of an image's components, before their conversion to RGB. Used inside the codec
// only.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace headrace::codec {

// A rectangle of samples of one component.
struct SamplePlane {
  uint8_t* first = nullptr;  // sample (x, y)
  size_t stride = 0;
  uint32_t x = 0, y = 0;  // place in the component
  uint32_t width = 0, height = 0;
  // Pixels of the stored image that a sample takes: 1 or more.
  uint32_t step_x = 1, step_y = 1;
  uint8_t* At(uint32_t sample_x, uint32_t sample_y) const {
    return first + (sample_y - y) * stride + (sample_x - x);
  }
};

// Y, Cb and Cr.
using YccPlanes = std::array<SamplePlane, 3>;

}  // namespace headrace::codec
