// The decoders behind one door, in two steps: header first, so that the crop can be chosen, then
// the pixels of a region. Used inside the codec only; one Scratch, one thread.
#pragma once

#include "headrace/codec/image.h"
#include "headrace/codec/scratch.h"

namespace headrace::codec {

// Reads the header of `encoded`. Fails as Transform::Apply does. `hints` must stay valid until the
// image was decoded.
Result<ImageInfo> OpenImage(Bytes encoded, const DecodeHints& hints, ExifOrientation exif,
                            uint64_t max_pixels, Scratch::Rep* rep);
// Decodes `region` of the image that OpenImage accepted last (in the coordinates of `info`, pixels
// turned upright). The view has 1 channel for grey files
// and when `luma` is asked for, else 3.
Result<PixelView> DecodeOpenedImage(Bytes encoded, const ImageInfo& info, const Rect& region,
                                    bool luma, Scratch::Rep* rep);

}  // namespace headrace::codec
