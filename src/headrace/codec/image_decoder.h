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
// turned upright). An upright JPEG may be decoded reduced 2, 4 or 8 times: then the region is in
// pixels of the reduced image. The view has 1 channel for grey files and when `luma` is asked for,
// else 3.
Result<PixelView> DecodeOpenedImage(Bytes encoded, const ImageInfo& info, const Rect& region,
                                    uint32_t reduction, bool luma, Scratch::Rep* rep);

// Whether the image that OpenImage accepted last is an upright JPEG of Y, Cb and Cr.
bool HasYccPlanes(const ImageInfo& info, const Scratch::Rep* rep);
// Decodes the samples of such an image that have a part in `region` (of the unreduced image).
Result<YccPlanes> DecodeOpenedPlanes(const Rect& region, uint32_t reduction, Scratch::Rep* rep);

}  // namespace headrace::codec
