// Decoding of whole images and regions, and the antialiased resize: the parts of which the image
// Transform is fused. Any thread; a Scratch is for one thread at a time.
#pragma once

#include <cstdint>
#include <string_view>

#include "headrace/codec/transform.h"

namespace headrace::codec {

enum class ImageFormat : uint8_t { kUnknown, kJpeg, kPng, kWebp };
// Decides by magic bytes, never by name.
ImageFormat DetectImageFormat(Bytes encoded);

// Whether the orientation that Exif data of the file gives is applied, as Pillow's
// ImageOps.exif_transpose does.
enum class ExifOrientation : uint8_t { kApply, kIgnore };

struct ImageInfo {
  ImageFormat format = ImageFormat::kUnknown;
  uint32_t width = 0, height = 0;  // upright, when the orientation is applied
  uint32_t channels = 0;           // as stored: 1, 2 (grey and alpha), 3 or 4
  uint8_t orientation = 1;         // applied to the stored pixels: Exif's value, 1 to 8
};
// Reads the header only. Fails as Transform::Apply does.
Result<ImageInfo> ReadImageInfo(Bytes encoded, uint64_t max_pixels, Scratch* scratch,
                                ExifOrientation exif = ExifOrientation::kApply);

struct Rect {
  uint32_t x = 0, y = 0, width = 0, height = 0;
};

// Pixels of a decoded region, interleaved 8-bit, in memory of the Scratch until its next use.
struct PixelView {
  const uint8_t* data = nullptr;
  size_t stride = 0;  // bytes from row to row
  uint32_t width = 0, height = 0;
  uint32_t channels = 0;  // 1 or 3
};

// Decodes `region` (must lie within the image, in the coordinates of ReadImageInfo). `channels` 3
// expands grey and drops alpha, 1 gives luma. Bit-equal to the same region of libjpeg-turbo's
// default decode of the whole image (islow, fancy upsampling). kOutOfRange when the region is not
// inside.
Result<PixelView> DecodeRegion(Bytes encoded, const Rect& region, uint32_t channels,
                               uint64_t max_pixels, const DecodeHints& hints, Scratch* scratch,
                               ExifOrientation exif = ExifOrientation::kApply);

}  // namespace headrace::codec
