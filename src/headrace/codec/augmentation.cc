#include "headrace/codec/augmentation.h"

#include <fmt/format.h>

#include <array>
#include <vector>

namespace headrace::codec {
namespace {

constexpr double kMaxFactor = 1e3, kMaxHue = 0.5, kMinSigma = 1e-3, kMaxSigma = 1e3;

Result<Range> ReadRange(const Members& op, std::string_view name, Range fallback, double min,
                        double max) {
  HR_ASSIGN_OR_RETURN(std::vector<double> pair, op.Reals(name, {fallback.min, fallback.max}, 2));
  if (!(pair[0] >= min && pair[0] <= pair[1] && pair[1] <= max))
    return op.Wrong(name, fmt::format("expected {} <= least <= most <= {}", min, max));
  return Range{pair[0], pair[1]};
}

Status ReadColorJitter(const Members& op, Augmentation* out) {
  HR_RETURN_IF_ERROR(op.OnlyKnown({"op", "brightness", "contrast", "saturation", "hue", "p"}));
  constexpr std::array<std::string_view, 3> kFactors = {"brightness", "contrast", "saturation"};
  for (size_t i = 0; i < kFactors.size(); ++i) {
    HR_ASSIGN_OR_RETURN(out->jitter[i], ReadRange(op, kFactors[i], out->jitter[i], 0, kMaxFactor));
  }
  HR_ASSIGN_OR_RETURN(out->jitter[3], ReadRange(op, "hue", out->jitter[3], -kMaxHue, kMaxHue));
  HR_ASSIGN_OR_RETURN(out->p, op.Real("p", 1.0, 0, 1));
  return OkStatus();
}

Status ReadGaussianBlur(const Members& op, Augmentation* out) {
  HR_RETURN_IF_ERROR(op.OnlyKnown({"op", "kernel_size", "sigma", "p"}));
  if (!op.Has("kernel_size")) return op.Wrong("kernel_size", "is missing");
  HR_ASSIGN_OR_RETURN(uint64_t size, op.Unsigned("kernel_size", 1, 1, BlurKernel::kMaxSize));
  if (size % 2 == 0)
    return op.Wrong("kernel_size", fmt::format("expected an odd number, found {}", size));
  out->kernel_size = static_cast<uint32_t>(size);
  HR_ASSIGN_OR_RETURN(out->sigma, ReadRange(op, "sigma", out->sigma, kMinSigma, kMaxSigma));
  HR_ASSIGN_OR_RETURN(out->p, op.Real("p", 1.0, 0, 1));
  return OkStatus();
}

void JitterColors(const Augmentation& a, const ColorJitterDraw& draw, const Planes& image,
                  AlignedBuffer* memory) {
  for (uint8_t which : draw.order) {
    auto factor = static_cast<float>(draw.factors[which]);
    // Factors that change nothing cost nothing.
    if (which < 3 && a.jitter[which].min == 1.0 && a.jitter[which].max == 1.0) continue;
    if (which == 3 && a.jitter[3].min == 0.0 && a.jitter[3].max == 0.0) continue;
    if (which == 0) AdjustBrightness(image, factor);
    if (which == 1) AdjustContrast(image, factor, memory);
    if (which == 2) AdjustSaturation(image, factor, memory);
    if (which == 3)
      ShiftHue(image, static_cast<uint8_t>(static_cast<int>(draw.factors[3] * 255.0)));
  }
}

}  // namespace

Result<Augmentation> Augmentation::Read(std::string_view name, const Members& op,
                                        uint64_t op_index) {
  Augmentation a;
  a.op_index = op_index;
  if (name == "color_jitter") {
    HR_RETURN_IF_ERROR(ReadColorJitter(op, &a));
    return a;
  }
  if (name == "gaussian_blur") {
    a.kind = Kind::kGaussianBlur;
    HR_RETURN_IF_ERROR(ReadGaussianBlur(op, &a));
    return a;
  }
  a.kind = Kind::kRandomGrayscale;
  HR_RETURN_IF_ERROR(op.OnlyKnown({"op", "p"}));
  HR_ASSIGN_OR_RETURN(a.p, op.Real("p", 0.1, 0, 1));
  return a;
}

void Augmentation::Apply(const DrawKey& key, const Planes& image, AlignedBuffer* memory) const {
  KeyedRandom random = OpRandom(key, op_index);
  switch (kind) {
    case Kind::kColorJitter: {
      ColorJitterDraw draw = DrawColorJitter(random, p, jitter);
      if (draw.applied) JitterColors(*this, draw, image, memory);
      break;
    }
    case Kind::kRandomGrayscale:
      if (random.NextDouble() < p) ToGray(image);
      break;
    case Kind::kGaussianBlur: {
      BlurDraw draw = DrawBlur(random, p, sigma);
      if (draw.applied) Blur(image, BlurKernel(kernel_size, draw.sigma), memory);
      break;
    }
  }
}

}  // namespace headrace::codec
