// The orientation that Exif data gives an image, and where JPEG, PNG and WebP files keep Exif data.
// Every read is bounded by the bytes given; data that makes no sense means "upright", never an
// error. Pure, safe from any thread. Used inside the codec only.
#pragma once

#include <cstdint>

#include "headrace/base/bytes.h"
#include "headrace/codec/image.h"

namespace headrace::codec {

// The Orientation tag (0x0112) of the first directory of a TIFF structure, with or without
// "Exif\0\0" before it: 1 to 8; 1 when it is missing, damaged or another value. Of two such tags
// the last counts.
uint8_t ReadExifOrientation(Bytes exif);

// The Exif data of a file: JPEG's first APP1 segment "Exif" before the image data, PNG's chunk
// eXIf, WebP's chunk EXIF (when VP8X says that there is one). Empty when there is none.
Bytes FindExif(ImageFormat format, Bytes file);

}  // namespace headrace::codec
