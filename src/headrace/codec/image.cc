#include "headrace/codec/image.h"

#include <utility>

#include "headrace/base/text.h"
#include "headrace/codec/exif.h"
#include "headrace/codec/image_decoder.h"
#include "headrace/codec/orientation.h"
#include "headrace/codec/pixel_conversion.h"
#include "headrace/codec/png_decoder.h"
#include "headrace/codec/webp_decoder.h"

namespace headrace::codec {
namespace {

constexpr std::string_view kJpegMagic = "\xff\xd8\xff", kPngMagic = "\x89PNG\r\n\x1a\n";

bool IsWebp(std::string_view head) {
  return head.size() >= 12 && head.starts_with("RIFF") && head.substr(8, 4) == "WEBP";
}

Status NotAnImage(Bytes encoded) {
  if (encoded.empty())
    return Error(Code::kDataLoss, "the field is empty (0 bytes), expected an image");
  std::string_view head = AsText(encoded).substr(0, 12), name;
  if (head.substr(0, 4) == "GIF8") name = "GIF";
  if (head.substr(0, 2) == "BM") name = "BMP";
  if (head.substr(0, 4) == std::string_view("II*\0", 4) ||
      head.substr(0, 4) == std::string_view("MM\0*", 4))
    name = "TIFF";
  if (!name.empty())
    return Error(Code::kUnimplemented, "a {} image: JPEG, PNG and WebP are supported", name);
  for (std::string_view magic : {kJpegMagic, kPngMagic})
    if (magic.substr(0, head.size()) == head)
      return Error(Code::kDataLoss, "an image truncated at byte {}, in its first bytes",
                   encoded.size());
  return Error(Code::kDataLoss,
               "not an image: {} bytes that begin with \"{}\", expected a JPEG, PNG or WebP",
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

// Reads the header; everything as it is stored.
Result<ImageInfo> OpenStored(Bytes encoded, const DecodeHints& hints, uint64_t max_pixels,
                             Scratch::Rep* rep) {
  switch (DetectImageFormat(encoded)) {
    case ImageFormat::kJpeg:
      return rep->jpeg.Open(encoded, hints, max_pixels);
    case ImageFormat::kPng:
      return ReadPngInfo(encoded, max_pixels);
    case ImageFormat::kWebp:
      return ReadWebpInfo(encoded, max_pixels);
    case ImageFormat::kUnknown:
      break;
  }
  return NotAnImage(encoded);
}

void Count(SeekRefusal path, Scratch::Rep* rep) { ++rep->decode_counts[static_cast<size_t>(path)]; }

Result<PixelView> DecodeStored(Bytes encoded, const ImageInfo& info, const Rect& region,
                               uint32_t reduction, bool luma, Scratch::Rep* rep) {
  if (info.format == ImageFormat::kJpeg) {
    auto view = rep->jpeg.DecodeOpened(region, reduction, luma, &rep->pixels, &rep->row);
    if (view.ok()) Count(rep->jpeg.last_path(), rep);
    return view;
  }
  auto view = info.format == ImageFormat::kWebp
                  ? DecodeWebp(encoded, info, region, luma, &rep->pixels)
                  : DecodePng(encoded, region, luma, &rep->pixels, &rep->row);
  if (view.ok()) Count(SeekRefusal::kNotJpeg, rep);
  return view;
}

ImageInfo WithOrientation(ImageInfo info, Bytes encoded, ExifOrientation exif) {
  if (exif == ExifOrientation::kIgnore) return info;
  info.orientation = ReadExifOrientation(FindExif(info.format, encoded));
  if (OrientationOf(info.orientation).transposed) std::swap(info.width, info.height);
  return info;
}

}  // namespace

ImageFormat DetectImageFormat(Bytes encoded) {
  std::string_view text = AsText(encoded);
  if (text.substr(0, kJpegMagic.size()) == kJpegMagic) return ImageFormat::kJpeg;
  if (text.substr(0, kPngMagic.size()) == kPngMagic) return ImageFormat::kPng;
  if (IsWebp(text)) return ImageFormat::kWebp;
  return ImageFormat::kUnknown;
}

Result<ImageInfo> OpenImage(Bytes encoded, const DecodeHints& hints, ExifOrientation exif,
                            uint64_t max_pixels, Scratch::Rep* rep) {
  HR_ASSIGN_OR_RETURN(ImageInfo info, OpenStored(encoded, hints, max_pixels, rep));
  return WithOrientation(info, encoded, exif);
}

Result<PixelView> DecodeOpenedImage(Bytes encoded, const ImageInfo& info, const Rect& region,
                                    uint32_t reduction, bool luma, Scratch::Rep* rep) {
  Orientation orientation = OrientationOf(info.orientation);
  if (orientation.upright()) return DecodeStored(encoded, info, region, reduction, luma, rep);
  Rect stored = StoredRect(orientation, region, info.width, info.height);
  ImageInfo as_stored = info;
  if (orientation.transposed) std::swap(as_stored.width, as_stored.height);
  HR_ASSIGN_OR_RETURN(PixelView view, DecodeStored(encoded, as_stored, stored, 1, luma, rep));
  return TurnUpright(orientation, view, &rep->upright);
}

bool HasYccPlanes(const ImageInfo& info, const Scratch::Rep* rep) {
  return info.format == ImageFormat::kJpeg && OrientationOf(info.orientation).upright() &&
         rep->jpeg.HasYccPlanes();
}

Result<YccPlanes> DecodeOpenedPlanes(const Rect& region, uint32_t reduction, Scratch::Rep* rep) {
  auto planes = rep->jpeg.DecodeSamples(region, reduction, &rep->pixels);
  if (planes.ok()) Count(rep->jpeg.last_path(), rep);
  return planes;
}

Result<ImageInfo> ReadImageInfo(Bytes encoded, uint64_t max_pixels, Scratch* scratch,
                                ExifOrientation exif) {
  if (DetectImageFormat(encoded) != ImageFormat::kJpeg)
    return OpenImage(encoded, {}, exif, max_pixels, scratch->rep());
  HR_ASSIGN_OR_RETURN(ImageInfo info, scratch->rep()->jpeg.ReadInfo(encoded, max_pixels));
  return WithOrientation(info, encoded, exif);
}

Result<PixelView> DecodeRegion(Bytes encoded, const Rect& region, uint32_t channels,
                               uint64_t max_pixels, const DecodeHints& hints, Scratch* scratch,
                               ExifOrientation exif) {
  if (channels != 1 && channels != 3)
    return Error(Code::kInvalidArgument, "a region is decoded into 1 or 3 channels, not {}",
                 channels);
  Scratch::Rep* rep = scratch->rep();
  HR_ASSIGN_OR_RETURN(ImageInfo info, OpenImage(encoded, hints, exif, max_pixels, rep));
  bool inside = region.width > 0 && region.height > 0 && region.x < info.width &&
                region.y < info.height && region.width <= info.width - region.x &&
                region.height <= info.height - region.y;
  if (!inside)
    return Error(Code::kOutOfRange,
                 "the region {} x {} at ({}, {}) is not inside the image of {} x {}", region.width,
                 region.height, region.x, region.y, info.width, info.height);
  HR_ASSIGN_OR_RETURN(PixelView view,
                      DecodeOpenedImage(encoded, info, region, 1, channels == 1, rep));
  return WithChannels(view, channels, rep);
}

}  // namespace headrace::codec
