// Image decoding and the image transform on any bytes: no crash, no undefined behavior, bounded
// memory and time; and the decoder must work on a good file right after.
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "headrace/codec/image.h"
#include "headrace/codec/transform.h"

namespace {

using headrace::Bytes;
using namespace headrace::codec;

// So small that a case stays fast, so large that limits and margins are met.
constexpr uint64_t kMaxPixels = 1 << 18;

std::shared_ptr<const Transform> Make(const char* json) {
  auto transform = CreateTransform(json);
  if (!transform.ok()) std::abort();
  return *transform;
}

const std::vector<std::shared_ptr<const Transform>>& Transforms() {
  static const std::vector<std::shared_ptr<const Transform>> transforms = {
      Make(R"({"type": "image", "dtype": "float32", "max_pixels": 262144, "ops": [
          {"op": "random_resized_crop", "size": [32, 24]}, {"op": "random_horizontal_flip"},
          {"op": "normalize", "mean": [0.5, 0.5, 0.5], "std": [0.2, 0.2, 0.2]}]})"),
      Make(R"({"type": "image", "dtype": "float16", "layout": "NHWC", "max_pixels": 262144, "ops": [
          {"op": "resize", "short_side": 20}, {"op": "center_crop", "size": [16, 40]}]})"),
      Make(R"({"type": "image", "max_pixels": 262144, "exif_orientation": "ignore", "ops": [
          {"op": "resize", "size": [9, 11]}, {"op": "color_jitter", "contrast": [0, 2], "hue": [-0.5, 0.5]},
          {"op": "random_grayscale", "p": 0.5}, {"op": "gaussian_blur", "kernel_size": 5}]})"),
      Make(
          R"({"type": "image", "channels": 1, "max_pixels": 262144, "ops": [{"op": "center_crop", "size": [50, 50]}]})")};
  return transforms;
}

void CheckRegions(Bytes input, uint64_t seed, Scratch* scratch) {
  auto info = ReadImageInfo(input, kMaxPixels, scratch);
  if (!info.ok()) return;
  if (info->width == 0 || info->height == 0 || uint64_t{info->width} * info->height > kMaxPixels)
    std::abort();
  headrace::KeyedRandom random(seed);
  Rect r;
  r.x = static_cast<uint32_t>(random.NextBelow(info->width));
  r.y = static_cast<uint32_t>(random.NextBelow(info->height));
  r.width = 1 + static_cast<uint32_t>(random.NextBelow(info->width - r.x));
  r.height = 1 + static_cast<uint32_t>(random.NextBelow(info->height - r.y));
  for (uint32_t channels : {1u, 3u}) {
    auto view = DecodeRegion(input, r, channels, kMaxPixels, {}, scratch);
    if (!view.ok()) continue;
    if (view->width != r.width || view->height != r.height || view->channels != channels)
      std::abort();
    unsigned sum = 0;  // every pixel can be read
    for (uint32_t y = 0; y < r.height; ++y)
      for (uint32_t x = 0; x < r.width * channels; ++x) sum += view->data[y * view->stride + x];
    if (sum > 255u * 3 * kMaxPixels) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static Scratch scratch;
  Bytes input(reinterpret_cast<const std::byte*>(data), size);
  std::vector<std::byte> out;
  for (const auto& transform : Transforms()) {
    out.resize(transform->output().bytes());
    headrace::Status status = transform->Apply(input, {}, {1, 2, size}, &scratch, out);
    if (!status.ok() && status.message().empty()) std::abort();
  }
  CheckRegions(input, size, &scratch);
  return 0;
}
