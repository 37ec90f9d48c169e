// Turning stored pixels upright, for the eight values of Exif's Orientation tag. Coordinates and
// pixels agree with Pillow's ImageOps.exif_transpose. Pure, safe from any thread. Used inside the
// codec only.
#pragma once

#include <cstdint>

#include "headrace/base/bytes.h"
#include "headrace/base/status.h"
#include "headrace/codec/image.h"

namespace headrace::codec {

// How the stored image comes out of the upright one: mirrored along its axes, then rows and columns
// exchanged (`transposed`: the stored width is the upright height).
struct Orientation {
  bool mirror_x = false, mirror_y = false;  // of the upright image
  bool transposed = false;
  bool upright() const { return !mirror_x && !mirror_y && !transposed; }
};
// `exif` from 1 to 8.
Orientation OrientationOf(uint8_t exif);

// Where the stored pixels of `upright` lie, a rectangle of an upright image of width x height.
Rect StoredRect(const Orientation& orientation, const Rect& upright, uint32_t width,
                uint32_t height);

// Turns the stored pixels of a region upright, into `pixels`. kResourceExhausted when memory is
// short.
Result<PixelView> TurnUpright(const Orientation& orientation, const PixelView& stored,
                              AlignedBuffer* pixels);

}  // namespace headrace::codec
