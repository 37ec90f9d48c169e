// What a Scratch holds: buffers and decoder state of one thread. Used inside the codec only.
#pragma once

#include <memory>

#include "headrace/base/bytes.h"
#include "headrace/base/stage_timer.h"
#include "headrace/codec/jpeg_decoder.h"
#include "headrace/codec/plane_resizer.h"
#include "headrace/codec/resize.h"
#include "headrace/codec/transform.h"
#include "headrace/codec/view_geometry.h"

namespace headrace::codec {

struct Scratch::Rep {
  explicit Rep(StageRecorder* r) : recorder(r) {}
  StageRecorder* recorder;  // not owned; may be null
  JpegDecoder jpeg;
  AlignedBuffer pixels;   // the decoded region
  AlignedBuffer row;      // one row before conversion: CMYK, PNG
  AlignedBuffer upright;  // the region turned as Exif says
  AlignedBuffer widened;  // a grey region expanded to three channels
  AlignedBuffer planes;   // the resized image, when operations on its colours follow
  AlignedBuffer op_memory;
  Resizer resizer;
  PlaneResizer plane_resizer;
  ViewLog views;  // of the images transformed so far
  DecodeCounts decode_counts{};
};

}  // namespace headrace::codec
