#include "headrace/codec/image.h"

#include "headrace/base/text.h"
#include "headrace/codec/image_decoder.h"
#include "headrace/codec/pixel_conversion.h"
#include "headrace/codec/png_decoder.h"

namespace headrace::codec {
namespace {

constexpr std::string_view kJpegMagic = "\xff\xd8\xff", kPngMagic = "\x89PNG\r\n\x1a\n";

Status NotAnImage(Bytes encoded) {
  if (encoded.empty())
    return Error(Code::kDataLoss, "the field is empty (0 bytes), expected an image");
  std::string_view head = AsText(encoded).substr(0, 12), name;
  if (head.starts_with("RIFF") && head.ends_with("WEBP")) name = "WebP";
  if (head.substr(0, 4) == "GIF8") name = "GIF";
  if (head.substr(0, 2) == "BM") name = "BMP";
  if (head.substr(0, 4) == std::string_view("II*\0", 4) ||
      head.substr(0, 4) == std::string_view("MM\0*", 4))
    name = "TIFF";
  if (!name.empty())
    return Error(Code::kUnimplemented, "a {} image: JPEG and PNG are supported", name);
  for (std::string_view magic : {kJpegMagic, kPngMagic})
    if (magic.substr(0, head.size()) == head)
      return Error(Code::kDataLoss, "an image truncated at byte {}, in its first bytes",
                   encoded.size());
  return Error(Code::kDataLoss,
               "not an image: {} bytes that begin with \"{}\", expected a JPEG or PNG",
               encoded.size(), EscapeText(head));
}

// Turns the decoder's view into exactly `channels`.
Result<PixelView> WithChannels(const PixelView& view, uint32_t channels, Scratch::Rep* rep) {
  if (view.channels == channels) return view;
  size_t stride = size_t{view.width} * 3;
  if (!rep->widened.Reserve(stride * view.height))
    return Error(Code::kResourceExhausted, "no memory for the pixels");
  auto* rgb = reinterpret_cast<uint8_t*>(rep->widened.data());
  for (size_t y = 0; y < view.height; ++y)
    ExpandLuma(view.data + y * view.stride, view.width, rgb + y * stride);
  return PixelView{rgb, stride, view.width, view.height, 3};
}

}  // namespace

ImageFormat DetectImageFormat(Bytes encoded) {
  std::string_view text = AsText(encoded);
  if (text.substr(0, kJpegMagic.size()) == kJpegMagic) return ImageFormat::kJpeg;
  if (text.substr(0, kPngMagic.size()) == kPngMagic) return ImageFormat::kPng;
  return ImageFormat::kUnknown;
}

Result<ImageInfo> OpenImage(Bytes encoded, uint64_t max_pixels, Scratch::Rep* rep) {
  switch (DetectImageFormat(encoded)) {
    case ImageFormat::kJpeg:
      return rep->jpeg.Open(encoded, max_pixels);
    case ImageFormat::kPng:
      return ReadPngInfo(encoded, max_pixels);
    case ImageFormat::kUnknown:
      break;
  }
  return NotAnImage(encoded);
}

Result<PixelView> DecodeOpenedImage(Bytes encoded, const ImageInfo& info, const Rect& region,
                                    bool luma, Scratch::Rep* rep) {
  if (info.format == ImageFormat::kJpeg)
    return rep->jpeg.DecodeOpened(region, luma, &rep->pixels, &rep->row);
  return DecodePng(encoded, region, luma, &rep->pixels, &rep->row);
}

Result<ImageInfo> ReadImageInfo(Bytes encoded, uint64_t max_pixels, Scratch* scratch) {
  if (DetectImageFormat(encoded) == ImageFormat::kJpeg)
    return scratch->rep()->jpeg.ReadInfo(encoded, max_pixels);
  return OpenImage(encoded, max_pixels, scratch->rep());
}

Result<PixelView> DecodeRegion(Bytes encoded, const Rect& region, uint32_t channels,
                               uint64_t max_pixels, const DecodeHints&, Scratch* scratch) {
  if (channels != 1 && channels != 3)
    return Error(Code::kInvalidArgument, "a region is decoded into 1 or 3 channels, not {}",
                 channels);
  Scratch::Rep* rep = scratch->rep();
  HR_ASSIGN_OR_RETURN(ImageInfo info, OpenImage(encoded, max_pixels, rep));
  bool inside = region.width > 0 && region.height > 0 && region.x < info.width &&
                region.y < info.height && region.width <= info.width - region.x &&
                region.height <= info.height - region.y;
  if (!inside)
    return Error(Code::kOutOfRange,
                 "the region {} x {} at ({}, {}) is not inside the image of {} x {}", region.width,
                 region.height, region.x, region.y, info.width, info.height);
  HR_ASSIGN_OR_RETURN(PixelView view, DecodeOpenedImage(encoded, info, region, channels == 1, rep));
  return WithChannels(view, channels, rep);
}

}  // namespace headrace::codec
