// Operations on the colours of 8-bit images in memory: Pillow's arithmetic (ImageEnhance,
// conversion to HSV and back), and a Gaussian blur in integers. Every processor gives the same
// bytes. Pure, safe from any thread. Used inside the codec only.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "headrace/base/bytes.h"

namespace headrace::codec {

// An image of 1 (luma) or 3 (RGB) planes, one after the other, rows without gaps.
struct Planes {
  uint8_t* data = nullptr;
  uint32_t channels = 3, height = 0, width = 0;
  size_t plane_bytes() const { return size_t{height} * width; }
};

// Blends with black, with the mean luma, with each pixel's luma: base + factor * (value - base) in
// float32, product and sum rounded, cut off at 0 and 255, fraction dropped. `factor` >= 0.
// Saturation leaves luma images as they are.
void AdjustBrightness(const Planes& image, float factor);
void AdjustContrast(const Planes& image, float factor, AlignedBuffer* memory);
void AdjustSaturation(const Planes& image, float factor, AlignedBuffer* memory);
// Adds shift / 256 of a turn to the hue. Leaves luma images as they are.
void ShiftHue(const Planes& image, uint8_t shift);
// Gives every channel the luma.
void ToGray(const Planes& image);

// The weights of a Gaussian, in units of 1 / 16384.
struct BlurKernel {
  static constexpr uint32_t kMaxSize = 255;
  uint32_t size = 1;  // odd
  std::array<int16_t, kMaxSize> weights{};

  BlurKernel(uint32_t size, double sigma);
};
// Weighted sums along the rows, rounded to 1 / 128, then along the columns, rounded. What lies
// outside is mirrored at the outermost pixels. Both sides must be larger than size / 2.
void Blur(const Planes& image, const BlurKernel& kernel, AlignedBuffer* memory);

// Bytes of memory that the operations above need for such an image. They take it from a buffer of
// at least that size.
size_t PixelOpMemory(uint32_t height, uint32_t width);

}  // namespace headrace::codec
