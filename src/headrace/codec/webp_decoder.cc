#include "headrace/codec/webp_decoder.h"

#include <webp/decode.h>

#include <algorithm>

#include "headrace/codec/pixel_conversion.h"

namespace headrace::codec {
namespace {

const uint8_t* Data(Bytes file) { return reinterpret_cast<const uint8_t*>(file.data()); }

Status WebpError(VP8StatusCode code, Bytes file) {
  switch (code) {
    case VP8_STATUS_OUT_OF_MEMORY:
      return Error(Code::kResourceExhausted, "WebP: no memory for decoding");
    case VP8_STATUS_NOT_ENOUGH_DATA:
    case VP8_STATUS_SUSPENDED:
      return Error(Code::kDataLoss, "WebP: the file is truncated: it ends at byte {}", file.size());
    case VP8_STATUS_UNSUPPORTED_FEATURE:
      return Error(Code::kUnimplemented,
                   "WebP: the file uses a feature that libwebp does not know");
    default:
      return Error(Code::kDataLoss, "WebP: the file ({} bytes) is damaged", file.size());
  }
}

// Fancy upsampling looks one chroma sample (two pixels) to each side, and libwebp takes the edge of
// a crop for the edge of the image. Even corners keep the chroma samples where they are.
Rect WithBorder(const Rect& region, const ImageInfo& info) {
  constexpr uint32_t kBorder = 2;
  auto begin = [](uint32_t at) { return (at > kBorder ? at - kBorder : 0) & ~1u; };
  Rect r{begin(region.x), begin(region.y), 0, 0};
  r.width = std::min(region.x + region.width + kBorder, info.width) - r.x;
  r.height = std::min(region.y + region.height + kBorder, info.height) - r.y;
  return r;
}

}  // namespace

Result<ImageInfo> ReadWebpInfo(Bytes file, uint64_t max_pixels) {
  if (file.size() >= 8 && uint64_t{LoadLittle<uint32_t>(&file[4])} + 8 > file.size())
    return Error(Code::kDataLoss,
                 "WebP: the file is truncated: it ends at byte {}, its header claims {}",
                 file.size(), uint64_t{LoadLittle<uint32_t>(&file[4])} + 8);
  WebPBitstreamFeatures features;
  VP8StatusCode code = WebPGetFeatures(Data(file), file.size(), &features);
  if (code != VP8_STATUS_OK) return WebpError(code, file);
  auto width = static_cast<uint32_t>(features.width),
       height = static_cast<uint32_t>(features.height);
  if (uint64_t{width} * height > max_pixels)
    return Error(Code::kResourceExhausted, "WebP: {} x {} pixels are more than the limit of {}",
                 width, height, max_pixels);
  if (features.has_animation)
    return Error(Code::kUnimplemented, "an animated WebP: only still images are supported");
  return ImageInfo{ImageFormat::kWebp, width, height, features.has_alpha ? 4u : 3u};
}

Result<PixelView> DecodeWebp(Bytes file, const ImageInfo& info, const Rect& region, bool luma,
                             AlignedBuffer* pixels) {
  WebPDecoderConfig config;
  if (!WebPInitDecoderConfig(&config))
    return Error(Code::kUnimplemented, "WebP: libwebp has another version than at compile time");
  Rect crop = WithBorder(region, info);
  size_t stride = (size_t{crop.width} * 3 + 63) / 64 * 64, bytes = stride * crop.height;
  if (stride > INT32_MAX || !pixels->Reserve(bytes))
    return WebpError(VP8_STATUS_OUT_OF_MEMORY, file);
  auto* rgb = reinterpret_cast<uint8_t*>(pixels->data());
  config.options.use_cropping = 1;
  config.options.crop_left = static_cast<int>(crop.x);
  config.options.crop_top = static_cast<int>(crop.y);
  config.options.crop_width = static_cast<int>(crop.width);
  config.options.crop_height = static_cast<int>(crop.height);
  config.output.colorspace = MODE_RGB;
  config.output.is_external_memory = 1;
  config.output.u.RGBA = {rgb, static_cast<int>(stride), bytes};
  VP8StatusCode code = WebPDecode(Data(file), file.size(), &config);
  WebPFreeDecBuffer(&config.output);
  if (code != VP8_STATUS_OK) return WebpError(code, file);
  rgb += (region.y - crop.y) * stride + size_t{region.x - crop.x} * 3;
  for (uint32_t y = 0; luma && y < region.height; ++y)
    RgbToLuma(rgb + y * stride, region.width, rgb + y * stride);
  return PixelView{rgb, stride, region.width, region.height, luma ? 1u : 3u};
}

}  // namespace headrace::codec
