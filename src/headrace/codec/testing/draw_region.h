// A region of an image, drawn inside a RapidCheck property. Test code only.
#pragma once

#include <rapidcheck.h>

#include <cstdint>

#include "headrace/codec/image.h"

namespace headrace::codec {

inline Rect DrawRegion(uint32_t width, uint32_t height) {
  Rect r;
  r.x = *rc::gen::inRange(0u, width);
  r.y = *rc::gen::inRange(0u, height);
  r.width = *rc::gen::inRange(1u, width - r.x + 1);
  r.height = *rc::gen::inRange(1u, height - r.y + 1);
  return r;
}

}  // namespace headrace::codec
