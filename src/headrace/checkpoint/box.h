// Boxes: the part of a tensor that one place holds, as an offset and a length in each dimension.
// Any number of dimensions: 0 (a scalar: one element), and lengths of 0 (no element). Elements of a
// box lie in row-major order. Pure functions and values, safe from any thread. Boxes that are given
// together must have the same number of dimensions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "headrace/base/status.h"

namespace headrace::checkpoint {

using Extents = std::span<const uint64_t>;  // a shape, or one number for each dimension

inline constexpr size_t kMaxDimensions = 64;

// A box whose numbers lie elsewhere.
struct BoxView {
  Extents offset, length;
  size_t dimensions() const { return length.size(); }
};

struct Box {
  std::vector<uint64_t> offset, length;

  Box() = default;
  Box(std::vector<uint64_t> o, std::vector<uint64_t> l)
      : offset(std::move(o)), length(std::move(l)) {}
  explicit Box(BoxView box)
      : offset(box.offset.begin(), box.offset.end()),
        length(box.length.begin(), box.length.end()) {}
  // All of a tensor of that shape.
  static Box Whole(Extents shape) {
    return Box(std::vector<uint64_t>(shape.size()), {shape.begin(), shape.end()});
  }
  BoxView view() const { return {offset, length}; }
  operator BoxView() const { return view(); }  // NOLINT: implicit by design
  bool operator==(const Box&) const = default;
};

// "[0:4, 16:32]"; "[]" without dimensions.
std::string BoxText(BoxView box);
// "[4, 32]".
std::string ShapeText(Extents shape);

// Elements of a shape: 1 without dimensions. Empty when there are more than 2^62.
std::optional<uint64_t> Volume(Extents shape);
bool SameBox(BoxView a, BoxView b);
// True when the box is all of a tensor of that shape.
bool IsWhole(BoxView box, Extents shape);
// True when the box lies in a tensor of that shape, and has as many dimensions.
bool FitsInto(BoxView box, Extents shape);
// What both hold. Empty when that is no element.
std::optional<Box> Overlap(BoxView a, BoxView b);

// What is wrong with boxes that should cover each element of a tensor once.
struct TilingFault {
  enum class Kind : uint8_t {
    kOutside,  // box `first` does not lie in the tensor
    kOverlap,  // boxes `first` and `second` share `region`
    kMissing,  // no box holds `region`
    // A cut so irregular that it is not looked at (more than 20,000 boxes with no straight cut
    // between them), or a tensor of more than 2^62 elements: no program makes them.
    kTooIrregular,
  };
  Kind kind;
  uint32_t first = 0, second = 0;  // places in `boxes`
  Box region;  // kMissing: where something is missing; when the boxes there are laid without any
               // straight cut it holds more than that
};
// Checks that `boxes` cover each element of a tensor of that shape once. Boxes without elements
// count as nothing. Returns at most `max_faults` faults, none when all is well. O(n log n) for cuts
// that straight lines make.
std::vector<TilingFault> CheckTiling(Extents shape, std::span<const BoxView> boxes,
                                     size_t max_faults = 16);

// Elements that lie one behind the other both in a stored box and in a wanted one.
struct Run {
  uint64_t stored = 0, wanted = 0;  // place of its first element in each box
  uint64_t elements = 0;
  bool operator==(const Run&) const = default;
};
// The runs of what two boxes share, in ascending order; all are of the same length.
//
//   for (Runs runs(stored, wanted); !runs.done(); runs.Next()) Copy(runs.now());
class Runs {
 public:
  Runs(BoxView stored, BoxView wanted);
  bool done() const { return left_ == 0; }
  const Run& now() const { return now_; }  // not when done
  void Next();
  uint64_t left() const { return left_; }  // with the present one

 private:
  struct Dimension {
    uint64_t count, at;  // runs in this dimension, and which of them is the present one
    uint64_t stored_stride, wanted_stride;
  };
  std::vector<Dimension> outer_;  // outermost first
  Run now_;
  uint64_t left_ = 0;
};

struct ByteRange {
  uint64_t offset = 0, bytes = 0;
  uint64_t end() const { return offset + bytes; }
  bool operator==(const ByteRange&) const = default;
};
// Neighbours that are read together.
struct MergedRange {
  ByteRange range;
  size_t first = 0, count = 0;  // of the ranges it covers
};
// Merges ranges, which ascend by offset and may overlap, while the gap between them is at most
// `max_gap` bytes and the whole at most `max_bytes` (a range that is longer stays by itself).
std::vector<MergedRange> MergeNear(std::span<const ByteRange> ranges, uint64_t max_gap,
                                   uint64_t max_bytes);

struct Interval {
  uint64_t offset = 0, length = 0;
  bool operator==(const Interval&) const = default;
};
// Part `which` of `parts` equal ones, as torch.chunk and DTensor cut: all have ceil(n / parts)
// elements, but late ones may be shorter, or empty (then at offset n). parts > 0, which < parts.
Interval EvenSplit(uint64_t n, uint64_t parts, uint64_t which);

// How one dimension of a mesh cuts a tensor.
struct MeshSplit {
  std::optional<size_t> dimension;  // of the tensor; empty: replicated
  uint64_t parts = 1, which = 0;    // size of the mesh's dimension, and this rank's place in it
  // Cut after those to its right, as DTensor's strided sharding is (FSDP over tensor parallelism).
  bool strided = false;
};
// The box of one rank, from the leftmost dimension of the mesh to the rightmost, then the strided
// ones from right to left. kInvalidArgument: a dimension that the tensor lacks, or which >= parts.
Result<Box> ShardOf(Extents shape, std::span<const MeshSplit> mesh);

}  // namespace headrace::checkpoint
