// Resampling of an image that is still in Y, Cb and Cr: each plane from its own resolution, then
// the colour conversion of the few pixels that are left. Faster than converting first; where
// colours change sharply the result differs a little, since nothing is clamped before averaging. A
// PlaneResizer is for one thread at a time and reuses its memory. Used inside the codec only.
#pragma once

#include "headrace/base/bytes.h"
#include "headrace/base/status.h"
#include "headrace/codec/resize.h"
#include "headrace/codec/sample_plane.h"

namespace headrace::codec {

// A rectangle of the stored image, resampled. The plans count pixels, with step 1.
struct PlaneResize {
  uint32_t origin_x = 0, origin_y = 0;
  AxisPlan x, y;
  bool flip = false;
};

class PlaneResizer {
 public:
  // The pixels of one axis of which Run may need samples, of planes reduced `reduction` times:
  // moves `begin` from the plan's first pixel to the first of them and sets their number.
  static void SourceRange(const AxisPlan& plan, uint32_t reduction, uint32_t* begin,
                          uint32_t* size);

  // Resamples `planes`, which must hold all samples that have a part in the rectangle, and writes
  // the result at (left, top) of `out`, an image of `format` with 3 channels. Where it does not
  // reach, black is written. kResourceExhausted when memory is short.
  Status Run(const YccPlanes& planes, const PlaneResize& resize, const OutputFormat& format,
             uint32_t left, uint32_t top, std::byte* out);

  uint64_t memory_bytes() const {
    return luma_.memory_bytes() + chroma_.memory_bytes() + resampled_.capacity();
  }

 private:
  // Plane `number` of `planes`.
  Status ResamplePlane(const YccPlanes& planes, size_t number, const PlaneResize& resize,
                       std::byte* out);

  Resizer luma_, chroma_;
  OutputFormat sample_format_;  // of one resampled plane
  AlignedBuffer resampled_;     // Y, Cb, Cr; then R, G, B; then a row of zeros or of whole pixels
};

}  // namespace headrace::codec
