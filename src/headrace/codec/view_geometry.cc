#include "headrace/codec/view_geometry.h"

#include <algorithm>
#include <utility>

#include "headrace/codec/orientation.h"

namespace headrace::codec {

Point ViewGeometry::Upright(Point p) const {
  Orientation o = OrientationOf(orientation);
  if (o.transposed) std::swap(p.x, p.y);
  if (o.mirror_x) p.x = width - p.x;
  if (o.mirror_y) p.y = height - p.y;
  return p;
}

void ViewLog::Record(const ViewGeometry& view) {
  auto same = std::find_if(views_.begin(), views_.end(),
                           [&](const ViewGeometry& v) { return v.stream == view.stream; });
  if (same != views_.end())
    *same = view;
  else
    views_.push_back(view);
}

const ViewGeometry* ViewLog::Find(uint64_t stream, const DrawKey& key) const {
  for (const ViewGeometry& view : views_)
    if (view.stream == stream && view.key.seed == key.seed && view.key.epoch == key.epoch &&
        view.key.sample_id == key.sample_id)
      return &view;
  return nullptr;
}

}  // namespace headrace::codec
