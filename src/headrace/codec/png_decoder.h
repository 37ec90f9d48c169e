// Decodes PNG files and regions of them with libspng. Keeps nothing between images (libspng and
// zlib allocate for each). Safe from any thread with buffers of its own. Used inside the codec
// only.
#pragma once

#include <cstdint>

#include "headrace/base/bytes.h"
#include "headrace/base/status.h"
#include "headrace/codec/image.h"

namespace headrace::codec {

// Reads the header and walks over the chunks to the end, which reads no pixels.
//   kDataLoss           no PNG, a wrong header, or truncated: the byte where a chunk should go on
//   kResourceExhausted  more than max_pixels
Result<ImageInfo> ReadPngInfo(Bytes file, uint64_t max_pixels);

// Decodes `region` (inside the image) of a file that ReadPngInfo accepted into `pixels`; `row`
// holds a row. The view has 1 channel for grey files of up to 8 bits and when `luma` is asked for,
// else 3. Alpha is dropped, 16-bit samples keep their high byte. Memory: the region and a row; for
// interlaced files the image. kDataLoss for damage (checksums included), kResourceExhausted for
// memory.
Result<PixelView> DecodePng(Bytes file, const Rect& region, bool luma, AlignedBuffer* pixels,
                            AlignedBuffer* row);

}  // namespace headrace::codec
