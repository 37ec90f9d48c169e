// Turns the encoded bytes of one field into one fixed-shape piece of a batch: JPEG, PNG and WebP
// into pixels, text, JSON and .npy into numbers. A Transform is immutable and may be used by any
// number of threads at once, each with its own Scratch. Pure functions on buffers: no I/O, no
// clock, no state. The result depends on the bytes, the description and the draws only: never on
// threads, machine or code path.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/bytes.h"
#include "headrace/base/keyed_random.h"
#include "headrace/base/stage_timer.h"
#include "headrace/base/status.h"
#include "headrace/codec/seek_points.h"

namespace headrace::codec {

enum class DType : uint8_t {
  kUint8,
  kInt8,
  kInt16,
  kInt32,
  kInt64,
  kFloat16,
  kBfloat16,
  kFloat32,
  kFloat64
};
size_t DTypeBytes(DType dtype);
std::string_view DTypeName(DType dtype);  // "uint8", "bfloat16"...
Result<DType> ParseDType(std::string_view name);

// What a Transform writes for one sample.
struct TensorSpec {
  DType dtype = DType::kUint8;
  std::vector<int64_t> shape;  // of one sample, without the batch dimension; {} = a scalar
  uint64_t bytes() const;
};

// The key of a sample's random draws. The same triple gives the same draws everywhere.
struct DrawKey {
  uint64_t seed = 0;
  uint64_t epoch = 0;
  uint64_t sample_id = 0;  // index of the sample in the dataset version
};

// How the images of one Scratch were decoded: index = SeekRefusal (kNone = from seek points).
using DecodeCounts = std::array<uint64_t, kNumSeekRefusals>;

// Per-thread memory and decoder state, reused from sample to sample. Not thread-safe.
class Scratch {
 public:
  explicit Scratch(StageRecorder* recorder = nullptr);  // not owned; null = times are not kept
  ~Scratch();
  Scratch(Scratch&&) noexcept;

  struct Rep;
  Rep* rep() { return rep_.get(); }
  // Bytes held now. Bounded: what one image of the largest allowed size needs (a quarter more after
  // growth). In steady state nothing is allocated per sample, but for progressive JPEGs (libjpeg's
  // coefficients), PNGs (libspng and zlib) and WebPs (libwebp), which free it again.
  uint64_t memory_bytes() const;
  // Images decoded so far.
  const DecodeCounts& decode_counts() const;

 private:
  std::unique_ptr<Rep> rep_;
};

// Side information about the encoded bytes that lets a decoder do less. Pixels never depend on it.
struct DecodeHints {
  // The record of these bytes (seek_points.h); empty = none. Any bytes are safe: what does not
  // belong to the encoded bytes or lies is not used.
  Bytes seek_points;
  // CRC32C of the encoded bytes, when it was just computed from them; else the codec does it before
  // it trusts a record.
  std::optional<uint32_t> crc32c;
};

class Transform {
 public:
  virtual ~Transform() = default;
  // What Apply writes. A shape whose size depends on the sample is refused by Create.
  virtual const TensorSpec& output() const = 0;
  // Decodes and transforms `encoded`, writes exactly output().bytes() bytes to `out`.
  //   kDataLoss         not an image, truncated, damaged: the message says what and where. Offsets
  //                     in it count from the start of `encoded`; location() is left to the caller,
  //                     who knows file, key and field.
  //   kResourceExhausted more pixels than the limit allows, or no memory.
  //   kUnimplemented    a coding that the decoders do not know.
  //   kInvalidArgument  `out` has another size.
  // After a failure `out` holds unspecified bytes and `scratch` can be used again at once.
  virtual Status Apply(Bytes encoded, const DecodeHints& hints, const DrawKey& key,
                       Scratch* scratch, MutableBytes out) const = 0;
};

// Builds a Transform from its JSON description, one object:
//   {"type": "image", "ops": [...], "dtype": "float32", "layout": "NCHW", "channels": 3,
//    "max_pixels": 178956970, "exif_orientation": "apply|ignore", "quality": "exact|fast",
//    "dct_scaling": false, "stream": 0}
//   with ops applied in this order, each optional but that one of the first three fixes the size:
//     {"op": "random_resized_crop", "size": [h, w], "scale": [0.08, 1.0], "ratio": [0.75, 1.3333]}
//     {"op": "resize", "size": [h, w]}  or  {"op": "resize", "short_side": 256}
//     {"op": "center_crop", "size": [h, w]}
//     {"op": "random_horizontal_flip", "p": 0.5}
//     {"op": "color_jitter", "brightness": [0.6, 1.4], "contrast": [...], "saturation": [...],
//      "hue": [-0.1, 0.1], "p": 1}
//     {"op": "random_grayscale", "p": 0.1}
//     {"op": "gaussian_blur", "kernel_size": 23, "sigma": [0.1, 2.0], "p": 1}
//     {"op": "normalize", "mean": [r, g, b], "std": [r, g, b]}      (of values scaled to 0..1)
//   Defaults: dtype uint8, NCHW, 3 channels. "short_side" needs a center_crop after it; resize
//   and center_crop are not combined with random_resized_crop; normalize needs a floating-point
//   dtype, which without it holds value / 255.
//   {"type": "boxes", "max_boxes": 100, "coordinates": "xyxy|xywh", "min_size": 1,
//    "relative_to": "stored|upright", "path": "/a/b", "stream": 0}
//   gives float32 [max_boxes, 5]. Its Apply must come after that of the image of the same sample,
//   with the same Scratch and key: else kInvalidArgument.
//   {"type": "label", "dtype": "int64", "shape": [], "format": "auto|text|json|npy", "path":
//   "/a/b"}
// docs/guide/transforms.md defines every member, the draws and the exact pixels.
// kInvalidArgument names the member that is wrong, unknown or missing.
Result<std::shared_ptr<const Transform>> CreateTransform(std::string_view json);

}  // namespace headrace::codec
