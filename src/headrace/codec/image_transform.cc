#include "headrace/codec/image_transform.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "headrace/codec/augmentation.h"
#include "headrace/codec/description.h"
#include "headrace/codec/draws.h"
#include "headrace/codec/image_decoder.h"
#include "headrace/codec/orientation.h"
#include "headrace/codec/pixel_ops.h"
#include "headrace/codec/resize.h"
#include "headrace/codec/scratch.h"

namespace headrace::codec {
namespace {

constexpr uint64_t kDefaultMaxPixels =
    178956970;  // the limit at which Pillow warns of a bomb, times two
constexpr int64_t kMaxSide = 16384;

struct Size {
  uint32_t height = 0, width = 0;
};

// Whether JPEGs are converted to RGB before the resize, or resized in Y, Cb and Cr.
enum class Quality : uint8_t { kExact, kFast };

// The operations as described. Immutable.
struct ImageOps {
  std::optional<CropDistribution> resized_crop;  // to the output's size
  uint64_t resized_crop_index = 0;               // position in "ops": part of the draws' key
  std::optional<Size> resize;
  uint32_t short_side = 0;  // instead of `resize`
  std::optional<Size> center_crop;
  std::optional<double> flip_probability;
  uint64_t flip_index = 0;
  std::vector<Augmentation> augmentations;
  std::vector<double> mean, std;
  ExifOrientation exif = ExifOrientation::kApply;
  uint64_t stream = 0;
  uint64_t max_pixels = kDefaultMaxPixels;
  Quality quality = Quality::kExact;
  bool dct_scaling = false;
};

// Where the output's pixels come from: a rectangle of the image, resampled.
struct Geometry {
  uint32_t origin_x = 0, origin_y = 0;  // of the samples that the plans count
  AxisPlan x, y;
  uint32_t left = 0, top = 0;  // black border of the output before the pixels
  bool flip = false;
};

// The central `want` of `have` samples, with torchvision's rounding (halves to even).
void CenterAxis(uint32_t have, uint32_t want, AxisPlan* plan, uint32_t* border) {
  if (want > have) {
    *border = (want - have) / 2;
    plan->count = have;
    return;
  }
  plan->begin = static_cast<uint32_t>(RoundHalfEven((have - want) * 0.5));
  plan->count = want;
}

class ImageTransform : public Transform {
 public:
  ImageTransform(TensorSpec spec, ImageOps ops, OutputFormat format)
      : spec_(std::move(spec)),
        ops_(std::move(ops)),
        format_(std::move(format)),
        planar_format_(format_),
        bytes_(spec_.bytes()) {
    planar_format_.dtype = DType::kUint8;
    planar_format_.channels_last = false;
  }

  const TensorSpec& output() const override { return spec_; }

  Status Apply(Bytes encoded, const DecodeHints& hints, const DrawKey& key, Scratch* scratch,
               MutableBytes out) const override {
    if (out.size() != bytes_)
      return Error(Code::kInvalidArgument, "an image takes {} bytes, the output has {}", bytes_,
                   out.size());
    Scratch::Rep* rep = scratch->rep();
    StageClock clock(rep->recorder);
    HR_ASSIGN_OR_RETURN(ImageInfo info, OpenImage(encoded, hints, ops_.exif, ops_.max_pixels, rep));
    Geometry geometry = Place(info.width, info.height, key);
    geometry.flip = ops_.flip_probability &&
                    OpRandom(key, ops_.flip_index).NextDouble() < *ops_.flip_probability;
    RecordView(info, geometry, key, rep);
    if (geometry.flip) geometry.left = format_.width - geometry.left - geometry.x.count;
    Status status = ops_.augmentations.empty()
                        ? Render(encoded, info, geometry, format_, rep, &clock, out.data())
                        : Augment(encoded, info, geometry, key, rep, &clock, out.data());
    clock.Lap(Stage::kTransform, out.size());
    return status;
  }

 private:
  void RecordView(const ImageInfo& info, const Geometry& g, const DrawKey& key,
                  Scratch::Rep* rep) const {
    ViewGeometry view{ops_.stream, key, info.orientation, info.width, info.height,
                      {},          {},  format_.width,    g.flip};
    view.x = {g.origin_x, g.x.in, g.x.out, g.x.begin, g.left, g.x.count};
    view.y = {g.origin_y, g.y.in, g.y.out, g.y.begin, g.top, g.y.count};
    rep->views.Record(view);
  }

  Geometry Place(uint32_t width, uint32_t height, const DrawKey& key) const {
    Geometry g;
    if (ops_.resized_crop) {
      Rect crop = DrawResizedCrop(OpRandom(key, ops_.resized_crop_index), *ops_.resized_crop, width,
                                  height);
      g.origin_x = crop.x;
      g.origin_y = crop.y;
      g.x = {crop.width, format_.width, 0, format_.width};
      g.y = {crop.height, format_.height, 0, format_.height};
      return g;
    }
    Size size{height, width};
    if (ops_.resize) size = *ops_.resize;
    if (ops_.short_side) size = ShortSideSize(width, height);
    g.x = {width, size.width, 0, size.width};
    g.y = {height, size.height, 0, size.height};
    if (ops_.center_crop) {
      CenterAxis(size.width, ops_.center_crop->width, &g.x, &g.left);
      CenterAxis(size.height, ops_.center_crop->height, &g.y, &g.top);
    }
    return g;
  }

  Size ShortSideSize(uint32_t width, uint32_t height) const {
    auto longer = [&](uint32_t a, uint32_t b) {
      return static_cast<uint32_t>(uint64_t{ops_.short_side} * a / b);
    };
    if (width <= height) return {longer(height, width), ops_.short_side};
    return {ops_.short_side, longer(width, height)};
  }

  // How many times the inverse DCT may reduce the image: at least the output's size must be left.
  uint32_t Reduction(const ImageInfo& info, const Geometry& g) const {
    uint32_t reduction = ops_.dct_scaling && info.format == ImageFormat::kJpeg ? 8 : 1;
    if (!OrientationOf(info.orientation).upright()) reduction = 1;
    while (reduction > 1 && (g.x.in / g.x.out < reduction || g.y.in / g.y.out < reduction))
      reduction /= 2;
    return reduction;
  }

  // Decodes what the output needs and resamples it.
  Status Render(Bytes encoded, const ImageInfo& info, const Geometry& g, const OutputFormat& format,
                Scratch::Rep* rep, StageClock* clock, std::byte* out) const {
    uint32_t reduction = Reduction(info, g);
    if (ops_.quality == Quality::kFast && format.channels == 3 && HasYccPlanes(info, rep))
      return RenderPlanes(encoded, g, reduction, format, rep, clock, out);
    AxisPlan x = Coarser(g.x, g.origin_x, reduction), y = Coarser(g.y, g.origin_y, reduction);
    if (!rep->resizer.Prepare(x, y, g.flip))
      return Error(Code::kResourceExhausted, "no memory for the weights of a resize");
    Rect region = rep->resizer.source();
    region.x += g.origin_x / reduction;
    region.y += g.origin_y / reduction;
    HR_ASSIGN_OR_RETURN(PixelView view, DecodeOpenedImage(encoded, info, region, reduction,
                                                          format.channels == 1, rep));
    clock->Lap(Stage::kDecode, encoded.size());
    return rep->resizer.Run(view, format, g.left, g.top, out);
  }

  Status RenderPlanes(Bytes encoded, const Geometry& g, uint32_t reduction,
                      const OutputFormat& format, Scratch::Rep* rep, StageClock* clock,
                      std::byte* out) const {
    PlaneResize resize{g.origin_x, g.origin_y, g.x, g.y, g.flip};
    Rect region{g.origin_x, g.origin_y, 0, 0};
    PlaneResizer::SourceRange(g.x, reduction, &region.x, &region.width);
    PlaneResizer::SourceRange(g.y, reduction, &region.y, &region.height);
    HR_ASSIGN_OR_RETURN(YccPlanes planes, DecodeOpenedPlanes(region, reduction, rep));
    clock->Lap(Stage::kDecode, encoded.size());
    return rep->plane_resizer.Run(planes, resize, format, g.left, g.top, out);
  }

  // The same with operations on the colours of the resampled image.
  Status Augment(Bytes encoded, const ImageInfo& info, const Geometry& geometry, const DrawKey& key,
                 Scratch::Rep* rep, StageClock* clock, std::byte* out) const {
    Planes image{nullptr, format_.channels, format_.height, format_.width};
    if (!rep->planes.Reserve(image.plane_bytes() * image.channels) ||
        !rep->op_memory.Reserve(PixelOpMemory(image.height, image.width)))
      return Error(Code::kResourceExhausted, "no memory for {} x {} pixels", image.width,
                   image.height);
    HR_RETURN_IF_ERROR(
        Render(encoded, info, geometry, planar_format_, rep, clock, rep->planes.data()));
    image.data = reinterpret_cast<uint8_t*>(rep->planes.data());
    for (const Augmentation& augmentation : ops_.augmentations)
      augmentation.Apply(key, image, &rep->op_memory);
    WritePlanes({image.data, image.plane_bytes(), image.channels, image.height, image.width},
                format_, 0, 0, reinterpret_cast<uint8_t*>(rep->op_memory.data()), out);
    return OkStatus();
  }

  TensorSpec spec_;
  ImageOps ops_;
  OutputFormat format_, planar_format_;  // the latter for augmentations: 8-bit planes
  uint64_t bytes_;
};

// Reads the description, operation by operation.
class Builder {
 public:
  Result<std::shared_ptr<const Transform>> Build(const Json& description) {
    Members members(description, "image transform");
    HR_RETURN_IF_ERROR(
        members.OnlyKnown({"type", "ops", "dtype", "layout", "channels", "max_pixels",
                           "exif_orientation", "quality", "dct_scaling", "stream"}));
    HR_RETURN_IF_ERROR(ReadOutput(members));
    const Json* ops = members.Find("ops");
    if (ops && !ops->is_array())
      return members.Wrong("ops", "expected an array, found " + ops->Dump());
    for (size_t i = 0; ops && i < ops->items().size(); ++i)
      HR_RETURN_IF_ERROR(ReadOp(Members(ops->items()[i], fmt::format("ops[{}]", i)), i));
    if (ops_.short_side && !ops_.center_crop)
      return members.Wrong(
          "ops", "resize with \"short_side\" gives images of many sizes: add a center_crop");
    if (!size_)
      return members.Wrong("ops",
                           "nothing fixes the size of the output: give random_resized_crop, "
                           "resize with \"size\", or center_crop");
    return Finish();
  }

 private:
  Status ReadOutput(const Members& members) {
    HR_ASSIGN_OR_RETURN(std::string dtype, members.Text("dtype", "uint8"));
    HR_ASSIGN_OR_RETURN(format_.dtype, ParseDType(dtype));
    if (format_.dtype != DType::kUint8 && format_.dtype != DType::kFloat16 &&
        format_.dtype != DType::kBfloat16 && format_.dtype != DType::kFloat32)
      return members.Wrong("dtype", "images are uint8, float16, bfloat16 or float32, not " + dtype);
    HR_ASSIGN_OR_RETURN(size_t layout, members.Choice("layout", {"NCHW", "NHWC"}));
    format_.channels_last = layout == 1;
    HR_ASSIGN_OR_RETURN(uint64_t channels, members.Unsigned("channels", 3, 1, 3));
    if (channels == 2) return members.Wrong("channels", "expected 1 or 3, found 2");
    format_.channels = static_cast<uint32_t>(channels);
    HR_ASSIGN_OR_RETURN(ops_.max_pixels,
                        members.Unsigned("max_pixels", kDefaultMaxPixels, 1, uint64_t{1} << 32));
    HR_ASSIGN_OR_RETURN(ops_.stream, members.Unsigned("stream", 0, 0, kMaxStream));
    HR_ASSIGN_OR_RETURN(size_t exif, members.Choice("exif_orientation", {"apply", "ignore"}));
    HR_ASSIGN_OR_RETURN(size_t quality, members.Choice("quality", {"exact", "fast"}));
    ops_.quality = quality == 0 ? Quality::kExact : Quality::kFast;
    HR_ASSIGN_OR_RETURN(ops_.dct_scaling, members.Flag("dct_scaling", false));
    ops_.exif = exif == 0 ? ExifOrientation::kApply : ExifOrientation::kIgnore;
    return OkStatus();
  }

  // The operations come in one order; each at most once.
  Status ReadOp(const Members& op, size_t index) {
    static constexpr std::array<std::string_view, 8> kOrder = {
        "random_resized_crop", "resize",           "center_crop",   "random_horizontal_flip",
        "color_jitter",        "random_grayscale", "gaussian_blur", "normalize"};
    if (!op.Has("op")) return op.Wrong("op", "is missing");
    HR_ASSIGN_OR_RETURN(std::string name, op.Text("op", ""));
    size_t place =
        static_cast<size_t>(std::find(kOrder.begin(), kOrder.end(), name) - kOrder.begin());
    if (place == kOrder.size())
      return op.Wrong(
          "op", fmt::format("\"{}\" is not known; known are {}", name, fmt::join(kOrder, ", ")));
    if (place < next_place_)
      return op.Wrong("op", fmt::format("\"{}\" must come once, and in this order: {}", name,
                                        fmt::join(kOrder, ", ")));
    next_place_ = place + 1;
    switch (place) {
      case 0:
        return ReadResizedCrop(op, index);
      case 1:
        return ReadResize(op);
      case 2:
        return ReadCenterCrop(op);
      case 3:
        return ReadFlip(op, index);
      case 7:
        return ReadNormalize(op);
      default:
        return ReadAugmentation(name, op, index);
    }
  }

  Result<Size> ReadSize(const Members& op) {
    HR_ASSIGN_OR_RETURN(std::vector<int64_t> size, op.Integers("size", 1, kMaxSide));
    if (size.size() != 2) return op.Wrong("size", "expected [height, width]");
    return Size{static_cast<uint32_t>(size[0]), static_cast<uint32_t>(size[1])};
  }

  Status ReadResizedCrop(const Members& op, size_t index) {
    HR_RETURN_IF_ERROR(op.OnlyKnown({"op", "size", "scale", "ratio"}));
    HR_ASSIGN_OR_RETURN(size_, ReadSize(op));
    CropDistribution d;
    HR_ASSIGN_OR_RETURN(std::vector<double> scale,
                        op.Reals("scale", {d.scale_min, d.scale_max}, 2));
    HR_ASSIGN_OR_RETURN(std::vector<double> ratio,
                        op.Reals("ratio", {d.ratio_min, d.ratio_max}, 2));
    if (!(scale[0] > 0 && scale[0] <= scale[1] && scale[1] <= 1))
      return op.Wrong("scale", "expected 0 < least <= most <= 1");
    if (!(ratio[0] >= 1e-3 && ratio[0] <= ratio[1] && ratio[1] <= 1e3))
      return op.Wrong("ratio", "expected 0.001 <= least <= most <= 1000");
    ops_.resized_crop = CropDistribution{scale[0], scale[1], ratio[0], ratio[1]};
    ops_.resized_crop_index = OpIndex(index, ops_.stream);
    return OkStatus();
  }

  Status ReadResize(const Members& op) {
    HR_RETURN_IF_ERROR(op.OnlyKnown({"op", "size", "short_side"}));
    if (ops_.resized_crop)
      return op.Wrong("op", "resize cannot follow random_resized_crop, which resizes itself");
    if (op.Has("size") == op.Has("short_side"))
      return op.Wrong("size", "give exactly one of \"size\" and \"short_side\"");
    if (op.Has("size")) {
      HR_ASSIGN_OR_RETURN(size_, ReadSize(op));
      ops_.resize = size_;
      return OkStatus();
    }
    HR_ASSIGN_OR_RETURN(uint64_t side, op.Unsigned("short_side", 0, 1, kMaxSide));
    ops_.short_side = static_cast<uint32_t>(side);
    return OkStatus();
  }

  Status ReadCenterCrop(const Members& op) {
    HR_RETURN_IF_ERROR(op.OnlyKnown({"op", "size"}));
    if (ops_.resized_crop) return op.Wrong("op", "center_crop cannot follow random_resized_crop");
    HR_ASSIGN_OR_RETURN(size_, ReadSize(op));
    ops_.center_crop = size_;
    return OkStatus();
  }

  Status ReadFlip(const Members& op, size_t index) {
    HR_RETURN_IF_ERROR(op.OnlyKnown({"op", "p"}));
    HR_ASSIGN_OR_RETURN(ops_.flip_probability, op.Real("p", 0.5, 0, 1));
    ops_.flip_index = OpIndex(index, ops_.stream);
    return OkStatus();
  }

  Status ReadAugmentation(std::string_view name, const Members& op, size_t index) {
    HR_ASSIGN_OR_RETURN(Augmentation augmentation,
                        Augmentation::Read(name, op, OpIndex(index, ops_.stream)));
    if (size_ && std::min(size_->height, size_->width) <= augmentation.kernel_size / 2)
      return op.Wrong("kernel_size",
                      fmt::format("{} is too large for an output of {} x {} pixels",
                                  augmentation.kernel_size, size_->width, size_->height));
    ops_.augmentations.push_back(augmentation);
    return OkStatus();
  }

  Status ReadNormalize(const Members& op) {
    HR_RETURN_IF_ERROR(op.OnlyKnown({"op", "mean", "std"}));
    if (format_.dtype == DType::kUint8)
      return op.Wrong("op", "normalize needs a floating-point \"dtype\" (the output is uint8)");
    HR_ASSIGN_OR_RETURN(ops_.mean, op.Reals("mean", {}, format_.channels));
    HR_ASSIGN_OR_RETURN(ops_.std, op.Reals("std", {}, format_.channels));
    for (double std : ops_.std)
      if (!(std >= 1e-6 && std <= 1e6))
        return op.Wrong("std", "expected values from 0.000001 to 1000000");
    for (double mean : ops_.mean)
      if (!(mean >= -1e6 && mean <= 1e6))
        return op.Wrong("mean", "expected values from -1000000 to 1000000");
    return OkStatus();
  }

  Result<std::shared_ptr<const Transform>> Finish() {
    format_.height = size_->height;
    format_.width = size_->width;
    if (ops_.mean.empty()) ops_.mean.assign(format_.channels, 0.0);
    if (ops_.std.empty()) ops_.std.assign(format_.channels, 1.0);
    format_.SetNormalization(ops_.mean, ops_.std);
    int64_t c = format_.channels, h = format_.height, w = format_.width;
    TensorSpec spec{format_.dtype, format_.channels_last ? std::vector<int64_t>{h, w, c}
                                                         : std::vector<int64_t>{c, h, w}};
    return std::make_shared<const ImageTransform>(std::move(spec), std::move(ops_),
                                                  std::move(format_));
  }

  ImageOps ops_;
  OutputFormat format_;
  std::optional<Size> size_;
  size_t next_place_ = 0;
};

}  // namespace

Result<std::shared_ptr<const Transform>> CreateImageTransform(const Json& description) {
  return Builder().Build(description);
}

}  // namespace headrace::codec
