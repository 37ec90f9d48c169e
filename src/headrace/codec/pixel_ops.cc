#include "headrace/codec/pixel_ops.h"

#include <algorithm>
#include <cmath>

#include "headrace/codec/draws.h"
#include "headrace/codec/pixel_kernels.h"

namespace headrace::codec {
namespace {

using Table = std::array<uint8_t, 256>;

// The blend of a constant with each value.
Table BlendTable(uint8_t base, float factor) {
  Table table;
  for (int value = 0; value < 256; ++value) {
    float product = factor * static_cast<float>(value - base);
    float sum = static_cast<float>(base) + product;
    table[static_cast<size_t>(value)] = static_cast<uint8_t>(std::clamp(sum, 0.0f, 255.0f));
  }
  return table;
}

void LookUp(const Planes& image, const Table& table) {
  size_t count = image.plane_bytes() * image.channels;
  for (size_t i = 0; i < count; ++i) image.data[i] = table[image.data[i]];
}

// The luma plane: the image's own, or computed into `memory`.
const uint8_t* Luma(const Planes& image, AlignedBuffer* memory) {
  if (image.channels == 1) return image.data;
  auto* luma = reinterpret_cast<uint8_t*>(memory->data());
  const uint8_t* red = image.data;
  LumaOfPlanes(red, red + image.plane_bytes(), red + 2 * image.plane_bytes(), image.plane_bytes(),
               luma);
  return luma;
}

constexpr size_t RoundUp(size_t n) { return (n + 63) / 64 * 64; }

// The sample that stands for position `at` of `count`, mirrored at the first and the last.
size_t Mirrored(int64_t at, uint32_t count) {
  if (at < 0) at = -at;
  if (at >= count) at = 2 * (int64_t{count} - 1) - at;
  return static_cast<size_t>(at);
}

void BlurPlane(uint8_t* plane, uint32_t height, uint32_t width, const BlurKernel& kernel,
               std::byte* memory) {
  constexpr uint32_t kMaxSize = BlurKernel::kMaxSize;
  const auto half = static_cast<int64_t>(kernel.size / 2);
  const size_t stride = RoundUp(width);
  auto* padded = reinterpret_cast<uint8_t*>(memory);
  auto* sums = reinterpret_cast<int16_t*>(memory + RoundUp(stride + kMaxSize + 1));
  for (size_t y = 0; y < height; ++y) {
    uint8_t* row = plane + y * width;
    std::copy_n(row, width, padded + half);
    for (int64_t i = 1; i <= half; ++i) {
      padded[half - i] = row[Mirrored(-i, width)];
      padded[half + width - 1 + i] = row[Mirrored(int64_t{width} - 1 + i, width)];
    }
    BlurRow(padded, kernel.weights.data(), kernel.size, stride, sums + y * stride);
  }
  std::array<const int16_t*, kMaxSize> rows;
  for (int64_t y = 0; y < height; ++y) {
    for (int64_t k = -half; k <= half; ++k)
      rows[static_cast<size_t>(k + half)] = sums + Mirrored(y + k, height) * stride;
    BlurColumns(rows.data(), kernel.weights.data(), kernel.size, stride, padded);
    std::copy_n(padded, width, plane + static_cast<size_t>(y) * width);
  }
}

}  // namespace

void AdjustBrightness(const Planes& image, float factor) { LookUp(image, BlendTable(0, factor)); }

void AdjustContrast(const Planes& image, float factor, AlignedBuffer* memory) {
  const uint8_t* luma = Luma(image, memory);
  uint64_t sum = 0;
  for (size_t i = 0; i < image.plane_bytes(); ++i) sum += luma[i];
  double mean = static_cast<double>(sum) / static_cast<double>(image.plane_bytes());
  LookUp(image, BlendTable(static_cast<uint8_t>(std::floor(mean + 0.5)), factor));
}

void AdjustSaturation(const Planes& image, float factor, AlignedBuffer* memory) {
  if (image.channels == 1) return;
  const uint8_t* luma = Luma(image, memory);
  for (size_t c = 0; c < 3; ++c)
    BlendPlane(luma, factor, image.plane_bytes(), image.data + c * image.plane_bytes());
}

void ShiftHue(const Planes& image, uint8_t shift) {
  if (image.channels == 1) return;
  uint8_t* red = image.data;
  ShiftHueOfPlanes(red, red + image.plane_bytes(), red + 2 * image.plane_bytes(),
                   image.plane_bytes(), shift);
}

void ToGray(const Planes& image) {
  if (image.channels == 1) return;
  uint8_t* red = image.data;
  size_t count = image.plane_bytes();
  LumaOfPlanes(red, red + count, red + 2 * count, count, red);
  std::copy_n(red, count, red + count);
  std::copy_n(red, count, red + 2 * count);
}

BlurKernel::BlurKernel(uint32_t kernel_size, double sigma) : size(kernel_size) {
  constexpr double kLeastExponent = -700.0;
  std::array<double, kMaxSize> values{};
  double sum = 0.0;
  const uint32_t middle = size / 2;
  for (uint32_t i = 0; i < size; ++i) {
    double x = (static_cast<double>(i) - static_cast<double>(middle)) / sigma;
    double exponent = -0.5 * (x * x);
    values[i] = exponent < kLeastExponent ? 0.0 : ExactExp(exponent);
    sum += values[i];
  }
  int32_t rest = 1 << 14;
  for (uint32_t i = 0; i < size; ++i) {
    weights[i] = static_cast<int16_t>(std::floor(values[i] / sum * 16384.0 + 0.5));
    rest -= weights[i];
  }
  weights[middle] = static_cast<int16_t>(weights[middle] + rest);
}

void Blur(const Planes& image, const BlurKernel& kernel, AlignedBuffer* memory) {
  for (size_t c = 0; c < image.channels; ++c)
    BlurPlane(image.data + c * image.plane_bytes(), image.height, image.width, kernel,
              memory->data());
}

size_t PixelOpMemory(uint32_t height, uint32_t width) {
  size_t stride = RoundUp(width);
  return RoundUp(stride + BlurKernel::kMaxSize + 1) + stride * height * sizeof(int16_t);
}

}  // namespace headrace::codec
