#include "headrace/checkpoint/box.h"

#include <fmt/format.h>

#include <algorithm>

namespace headrace::checkpoint {
namespace {

constexpr uint64_t kMaxVolume = uint64_t{1} << 62;

// What two boxes share in dimension k; of length 0 when they share nothing.
Interval Shared(BoxView a, BoxView b, size_t k) {
  const uint64_t begin = std::max(a.offset[k], b.offset[k]);
  const uint64_t end = std::min(a.offset[k] + a.length[k], b.offset[k] + b.length[k]);
  return {begin, end > begin ? end - begin : 0};
}

}  // namespace

std::string BoxText(BoxView box) {
  std::string text = "[";
  for (size_t k = 0; k < box.dimensions(); ++k)
    text += fmt::format("{}{}:{}", k > 0 ? ", " : "", box.offset[k], box.offset[k] + box.length[k]);
  return text + "]";
}

std::string ShapeText(Extents shape) {
  std::string text = "[";
  for (size_t k = 0; k < shape.size(); ++k)
    text += fmt::format("{}{}", k > 0 ? ", " : "", shape[k]);
  return text + "]";
}

std::optional<uint64_t> Volume(Extents shape) {
  uint64_t volume = 1;
  bool too_many = false;
  for (uint64_t length : shape) {
    if (length == 0) return 0;
    too_many = too_many || length > kMaxVolume / volume;
    if (!too_many) volume *= length;
  }
  if (too_many) return std::nullopt;
  return volume;
}

bool SameBox(BoxView a, BoxView b) {
  return std::equal(a.offset.begin(), a.offset.end(), b.offset.begin(), b.offset.end()) &&
         std::equal(a.length.begin(), a.length.end(), b.length.begin(), b.length.end());
}

bool IsWhole(BoxView box, Extents shape) {
  return std::equal(box.length.begin(), box.length.end(), shape.begin(), shape.end()) &&
         std::all_of(box.offset.begin(), box.offset.end(), [](uint64_t o) { return o == 0; });
}

bool FitsInto(BoxView box, Extents shape) {
  if (box.length.size() != shape.size() || box.offset.size() != shape.size()) return false;
  for (size_t k = 0; k < shape.size(); ++k)
    if (box.offset[k] > shape[k] || box.length[k] > shape[k] - box.offset[k]) return false;
  return true;
}

std::optional<Box> Overlap(BoxView a, BoxView b) {
  Box shared;
  for (size_t k = 0; k < a.dimensions(); ++k) {
    const Interval part = Shared(a, b, k);
    if (part.length == 0) return std::nullopt;
    shared.offset.push_back(part.offset);
    shared.length.push_back(part.length);
  }
  return shared;
}

Runs::Runs(BoxView stored, BoxView wanted) {
  const std::optional<Box> shared = Overlap(stored, wanted);
  if (!shared) return;
  now_.elements = 1;
  left_ = 1;
  uint64_t stored_stride = 1, wanted_stride = 1;
  bool whole_so_far = true;  // the dimensions behind this one are whole in both boxes
  for (size_t k = shared->length.size(); k-- > 0;) {
    const uint64_t length = shared->length[k];
    now_.stored += (shared->offset[k] - stored.offset[k]) * stored_stride;
    now_.wanted += (shared->offset[k] - wanted.offset[k]) * wanted_stride;
    if (whole_so_far) {
      now_.elements *= length;
    } else if (length > 1) {
      outer_.push_back({length, 0, stored_stride, wanted_stride});
      left_ *= length;
    }
    whole_so_far = whole_so_far && length == stored.length[k] && length == wanted.length[k];
    stored_stride *= stored.length[k];
    wanted_stride *= wanted.length[k];
  }
}

void Runs::Next() {
  if (--left_ == 0) return;
  for (Dimension& d : outer_) {  // innermost first
    now_.stored += d.stored_stride;
    now_.wanted += d.wanted_stride;
    if (++d.at < d.count) return;
    d.at = 0;
    now_.stored -= d.count * d.stored_stride;
    now_.wanted -= d.count * d.wanted_stride;
  }
}

std::vector<MergedRange> MergeNear(std::span<const ByteRange> ranges, uint64_t max_gap,
                                   uint64_t max_bytes) {
  std::vector<MergedRange> merged;
  for (size_t i = 0; i < ranges.size(); ++i) {
    const ByteRange& next = ranges[i];
    if (!merged.empty()) {
      MergedRange& last = merged.back();
      const uint64_t end = std::max(last.range.end(), next.end());
      const bool near =
          next.offset <= last.range.end() || next.offset - last.range.end() <= max_gap;
      if (near && end - last.range.offset <= max_bytes) {
        last.range.bytes = end - last.range.offset;
        ++last.count;
        continue;
      }
    }
    merged.push_back({next, i, 1});
  }
  return merged;
}

Interval EvenSplit(uint64_t n, uint64_t parts, uint64_t which) {
  if (n == 0) return {};
  const uint64_t each = (n - 1) / parts + 1;
  if (which > (n - 1) / each) return {n, 0};  // all is given out before
  return {which * each, std::min(each, n - which * each)};
}

Result<Box> ShardOf(Extents shape, std::span<const MeshSplit> mesh) {
  Box box = Box::Whole(shape);
  auto cut = [&box](const MeshSplit& split) {
    if (!split.dimension) return;
    const size_t k = *split.dimension;
    const Interval part = EvenSplit(box.length[k], split.parts, split.which);
    box.offset[k] += part.offset;
    box.length[k] = part.length;
  };
  for (const MeshSplit& split : mesh) {
    if (split.dimension && *split.dimension >= shape.size())
      return Error(Code::kInvalidArgument, "a tensor of shape {} has no dimension {} to be cut in",
                   ShapeText(shape), *split.dimension);
    if (split.which >= split.parts)
      return Error(Code::kInvalidArgument, "there is no part {} of {} (parts count from 0)",
                   split.which, split.parts);
    if (!split.strided) cut(split);
  }
  for (size_t i = mesh.size(); i-- > 0;)
    if (mesh[i].strided) cut(mesh[i]);
  return box;
}

}  // namespace headrace::checkpoint
