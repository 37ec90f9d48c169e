// A small picture of an image or of a region of it. Not for the hot path. Any thread; a Scratch is
// for one thread at a time.
#pragma once

#include <cstdint>
#include <optional>

#include "headrace/base/bytes.h"
#include "headrace/base/status.h"
#include "headrace/codec/image.h"

namespace headrace::codec {

struct ThumbnailOptions {
  std::optional<Rect> region;  // upright, as Exif says; none: the whole image
  // Most pixels of the longer side; the other follows. Nothing is enlarged. 0: no limit.
  uint32_t long_side = 256;
  uint64_t max_pixels = 178956970;
};

struct Thumbnail {
  ImageInfo image;
  Rect region;       // of the image
  PixelView pixels;  // 3 channels; in `memory` of the call, or of the Scratch until its next use
};

// Decodes, and resizes as the transform "resize" does. Fails as DecodeRegion.
Result<Thumbnail> MakeThumbnail(Bytes encoded, const DecodeHints& hints,
                                const ThumbnailOptions& options, Scratch* scratch,
                                AlignedBuffer* memory);

}  // namespace headrace::codec
