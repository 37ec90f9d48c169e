// Where the pixels of an image went: what a transform of the same sample needs to turn coordinates
// along. Not thread-safe: part of one Scratch. Used inside the codec only.
#pragma once

#include <cstdint>
#include <vector>

#include "headrace/codec/transform.h"

namespace headrace::codec {

struct Point {
  double x = 0.0, y = 0.0;
};

// One axis of an upright image: `in` pixels from `origin` become `out`, of which those from `begin`
// on lie from `left` on in the output, `count` of them.
struct AxisGeometry {
  uint32_t origin = 0, in = 1, out = 1, begin = 0, left = 0, count = 1;
  double Map(double at) const { return (at - origin) * out / in - begin + left; }
};

struct ViewGeometry {
  uint64_t stream = 0;
  DrawKey key;
  uint8_t orientation = 1;         // Exif's, as applied
  uint32_t width = 0, height = 0;  // of the upright image
  AxisGeometry x, y;
  uint32_t output_width = 0;
  bool mirrored = false;

  // From stored coordinates to upright ones.
  Point Upright(Point stored) const;
};

// The newest view of each stream.
class ViewLog {
 public:
  void Record(const ViewGeometry& view);
  // The view that was made with this key; null when the newest one of the stream was not.
  const ViewGeometry* Find(uint64_t stream, const DrawKey& key) const;
  uint64_t memory_bytes() const { return views_.capacity() * sizeof(ViewGeometry); }

 private:
  std::vector<ViewGeometry> views_;  // one for each stream that the transforms name
};

}  // namespace headrace::codec
