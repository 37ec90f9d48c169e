// Decodes WebP files and regions of them with libwebp: lossy, lossless, with and without alpha.
// Keeps nothing between images (libwebp allocates for each). Safe from any thread with buffers of
// its own. Used inside the codec only.
#pragma once

#include <cstdint>

#include "headrace/base/bytes.h"
#include "headrace/base/status.h"
#include "headrace/codec/image.h"

namespace headrace::codec {

// Reads the headers only.
//   kDataLoss           no WebP, a wrong header, or truncated: the byte where the file ends
//   kResourceExhausted  more than max_pixels
//   kUnimplemented      an animation
Result<ImageInfo> ReadWebpInfo(Bytes file, uint64_t max_pixels);

// Decodes `region` (inside the image) of a file that ReadWebpInfo accepted into `pixels`, bit-equal
// to the same part of libwebp's decode of the whole image (fancy upsampling). The view has 1
// channel when `luma` is asked for, else 3. Alpha is dropped. Memory: the region with a border of 2
// pixels; libwebp's own is some rows of a lossy image, 4 bytes a pixel of a whole lossless one.
// kDataLoss for damage, kResourceExhausted for memory.
Result<PixelView> DecodeWebp(Bytes file, const ImageInfo& info, const Rect& region, bool luma,
                             AlignedBuffer* pixels);

}  // namespace headrace::codec
