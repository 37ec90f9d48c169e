// The random operations on an image's colours and sharpness, between resizing and normalizing.
// Immutable, safe from any thread. Used inside the codec only.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "headrace/base/bytes.h"
#include "headrace/base/status.h"
#include "headrace/codec/description.h"
#include "headrace/codec/draws.h"
#include "headrace/codec/pixel_ops.h"

namespace headrace::codec {

struct Augmentation {
  enum class Kind : uint8_t { kColorJitter, kRandomGrayscale, kGaussianBlur };
  // Brightness, contrast, saturation (factors), hue (turns).
  using Jitter = std::array<Range, 4>;

  Kind kind = Kind::kColorJitter;
  uint64_t op_index = 0;  // position in "ops": part of the draws' key
  double p = 1.0;
  Jitter jitter{Range{1, 1}, Range{1, 1}, Range{1, 1}, Range{0, 0}};
  uint32_t kernel_size = 1;
  Range sigma{0.1, 2.0};

  // Reads the operation of this name ("color_jitter", "random_grayscale", "gaussian_blur").
  // kInvalidArgument as Members says.
  static Result<Augmentation> Read(std::string_view name, const Members& op, uint64_t op_index);

  // Draws and applies it. `memory` is of at least PixelOpMemory bytes.
  void Apply(const DrawKey& key, const Planes& image, AlignedBuffer* memory) const;
};

}  // namespace headrace::codec
