#include "headrace/checkpoint/box.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>

#include "headrace/checkpoint/testing/grid.h"

namespace headrace::checkpoint {
namespace {

using Numbers = std::vector<uint64_t>;
using OneRun = Run;  // in a test Run is a method of GoogleTest

// A tensor of few elements, of 0 to 4 dimensions.
Numbers DrawShape() {
  Numbers shape(*rc::gen::inRange<size_t>(0, 5));
  for (uint64_t& length : shape) length = *rc::gen::inRange<uint64_t>(0, 6);
  return shape;
}

Box DrawBox(Extents shape) {
  Box box;
  for (uint64_t length : shape) {
    const uint64_t offset = *rc::gen::inRange<uint64_t>(0, length + 1);
    box.offset.push_back(offset);
    box.length.push_back(*rc::gen::inRange<uint64_t>(0, length - offset + 1));
  }
  return box;
}

TEST(Box, Texts) {
  EXPECT_EQ(BoxText(Box({0, 16}, {4, 16})), "[0:4, 16:32]");
  EXPECT_EQ(BoxText(Box()), "[]");
  EXPECT_EQ(ShapeText(Numbers{4, 32}), "[4, 32]");
  EXPECT_EQ(ShapeText({}), "[]");
}

TEST(Box, Volumes) {
  EXPECT_EQ(Volume({}), 1u);
  EXPECT_EQ(Volume(Numbers{3, 0, UINT64_MAX, UINT64_MAX}), 0u);
  EXPECT_EQ(Volume(Numbers{UINT64_MAX, UINT64_MAX, 0}), 0u);
  EXPECT_EQ(Volume(Numbers{uint64_t{1} << 31, uint64_t{1} << 31}), uint64_t{1} << 62);
  EXPECT_EQ(Volume(Numbers{uint64_t{1} << 31, uint64_t{1} << 31, 2}), std::nullopt);
  EXPECT_EQ(Volume(Numbers{uint64_t{1} << 32, uint64_t{1} << 32}), std::nullopt);
}

TEST(Box, FitsInto) {
  const Numbers shape = {4, 5};
  EXPECT_TRUE(FitsInto(Box({0, 0}, {4, 5}), shape));
  EXPECT_TRUE(FitsInto(Box({4, 5}, {0, 0}), shape));
  EXPECT_FALSE(FitsInto(Box({1, 0}, {4, 5}), shape));
  EXPECT_FALSE(FitsInto(Box({5, 0}, {0, 1}), shape));
  EXPECT_FALSE(FitsInto(Box({0}, {4}), shape));
  EXPECT_FALSE(FitsInto(Box({UINT64_MAX, 0}, {2, 1}), shape));  // no overflow
  EXPECT_TRUE(FitsInto(Box(), {}));
}

TEST(Box, IsWhole) {
  const Numbers shape = {4, 5};
  EXPECT_TRUE(IsWhole(Box({0, 0}, {4, 5}), shape));
  EXPECT_FALSE(IsWhole(Box({0, 0}, {4, 4}), shape));
  EXPECT_FALSE(IsWhole(Box({0, 1}, {4, 5}), shape));
  EXPECT_FALSE(IsWhole(Box({0}, {4}), shape));
  EXPECT_TRUE(IsWhole(Box(), {}));
}

RC_GTEST_PROP(BoxProperty, OverlapIsWhatBothHold, ()) {
  const Numbers shape = DrawShape();
  const Box a = DrawBox(shape), b = DrawBox(shape);
  Numbers in_a = PlacesIn(shape, a), in_b = PlacesIn(shape, b), in_both;
  std::set_intersection(in_a.begin(), in_a.end(), in_b.begin(), in_b.end(),
                        std::back_inserter(in_both));
  const std::optional<Box> shared = Overlap(a, b);
  RC_ASSERT(shared.has_value() == !in_both.empty());
  if (shared) RC_ASSERT(PlacesIn(shape, *shared) == in_both);
}

RC_GTEST_PROP(BoxProperty, RunsCopyWhatBothHoldAndAreAsLongAsCanBe, ()) {
  const Numbers shape = DrawShape();
  const Box stored = DrawBox(shape), wanted = DrawBox(shape);
  const Numbers in_stored = PlacesIn(shape, stored), in_wanted = PlacesIn(shape, wanted);
  // place in stored -> place in wanted, of each element that both hold
  std::map<uint64_t, uint64_t> expected, found;
  for (size_t i = 0; i < in_stored.size(); ++i) {
    const auto at = std::lower_bound(in_wanted.begin(), in_wanted.end(), in_stored[i]);
    if (at != in_wanted.end() && *at == in_stored[i])
      expected[i] = static_cast<uint64_t>(at - in_wanted.begin());
  }
  std::vector<OneRun> runs;
  for (Runs r(stored, wanted); !r.done(); r.Next()) runs.push_back(r.now());
  for (const OneRun& run : runs)
    for (uint64_t i = 0; i < run.elements; ++i)
      RC_ASSERT(found.emplace(run.stored + i, run.wanted + i).second);
  RC_ASSERT(found == expected);
  for (size_t i = 1; i < runs.size(); ++i) {
    const uint64_t stored_gap = runs[i].stored - (runs[i - 1].stored + runs[i - 1].elements);
    const uint64_t wanted_gap = runs[i].wanted - (runs[i - 1].wanted + runs[i - 1].elements);
    RC_ASSERT(runs[i].stored > runs[i - 1].stored);
    RC_ASSERT(runs[i].wanted > runs[i - 1].wanted);
    RC_ASSERT(stored_gap > 0u || wanted_gap > 0u);
  }
}

TEST(Runs, ColumnsOfAWideTensor) {
  // Rows 1 to 2, columns 2 to 4 of a stored box of 4 x 8 at (0, 0).
  std::vector<OneRun> runs;
  Runs all(Box({0, 0}, {4, 8}), Box({1, 2}, {2, 3}));
  EXPECT_EQ(all.left(), 2u);
  for (; !all.done(); all.Next()) runs.push_back(all.now());
  EXPECT_THAT(runs, testing::ElementsAre(OneRun{10, 0, 3}, OneRun{18, 3, 3}));
  EXPECT_TRUE(Runs(Box({0, 0}, {4, 8}), Box({4, 0}, {1, 8})).done());
  EXPECT_EQ(Runs(Box(), Box()).now(), (OneRun{0, 0, 1}));
}

TEST(MergeNear, MergesAcrossSmallGapsUpToALimit) {
  const std::vector<ByteRange> ranges = {{0, 10},  {10, 5},     {20, 10},
                                         {100, 4}, {104, 1000}, {2000, 0}};
  auto texts = [](const std::vector<MergedRange>& merged) {
    std::vector<std::string> out;
    for (const MergedRange& m : merged)
      out.push_back(std::to_string(m.range.offset) + "+" + std::to_string(m.range.bytes) + " " +
                    std::to_string(m.first) + "+" + std::to_string(m.count));
    return out;
  };
  EXPECT_THAT(texts(MergeNear(ranges, 0, 4096)),
              testing::ElementsAre("0+15 0+2", "20+10 2+1", "100+1004 3+2", "2000+0 5+1"));
  EXPECT_THAT(texts(MergeNear(ranges, 5, 4096)),
              testing::ElementsAre("0+30 0+3", "100+1004 3+2", "2000+0 5+1"));
  EXPECT_THAT(
      texts(MergeNear(ranges, 5, 29)),
      testing::ElementsAre("0+15 0+2", "20+10 2+1", "100+4 3+1", "104+1000 4+1", "2000+0 5+1"));
  EXPECT_THAT(texts(MergeNear(ranges, 10'000, 10'000)), testing::ElementsAre("0+2000 0+6"));
  EXPECT_TRUE(MergeNear({}, 5, 5).empty());
}

RC_GTEST_PROP(BoxProperty, MergedRangesHoldAllAndNoMoreThanAllowed, ()) {
  auto offsets = *rc::gen::container<Numbers>(rc::gen::inRange<uint64_t>(0, 500));
  std::sort(offsets.begin(), offsets.end());
  std::vector<ByteRange> ranges;
  for (uint64_t offset : offsets) ranges.push_back({offset, *rc::gen::inRange<uint64_t>(0, 20)});
  const uint64_t gap = *rc::gen::inRange<uint64_t>(0, 30);
  const uint64_t limit = *rc::gen::inRange<uint64_t>(1, 100);
  size_t next = 0;
  for (const MergedRange& m : MergeNear(ranges, gap, limit)) {
    RC_ASSERT(m.first == next);
    RC_ASSERT(m.count > 0u);
    RC_ASSERT(m.count == 1u || m.range.bytes <= limit);
    for (size_t i = m.first; i < m.first + m.count; ++i) {
      RC_ASSERT(ranges[i].offset >= m.range.offset);
      RC_ASSERT(ranges[i].end() <= m.range.end());
    }
    next += m.count;
  }
  RC_ASSERT(next == ranges.size());
}

TEST(EvenSplit, CutsAsTorchChunkDoes) {
  // torch.chunk(arange(10), 4): 3, 3, 3, 1; of 5 in 4: 2, 2, 1, nothing.
  EXPECT_EQ(EvenSplit(10, 4, 0), (Interval{0, 3}));
  EXPECT_EQ(EvenSplit(10, 4, 3), (Interval{9, 1}));
  EXPECT_EQ(EvenSplit(5, 4, 2), (Interval{4, 1}));
  EXPECT_EQ(EvenSplit(5, 4, 3), (Interval{5, 0}));
  EXPECT_EQ(EvenSplit(6, 4, 3), (Interval{6, 0}));
  EXPECT_EQ(EvenSplit(0, 4, 2), (Interval{0, 0}));
  EXPECT_EQ(EvenSplit(UINT64_MAX, 2, 1), (Interval{uint64_t{1} << 63, (uint64_t{1} << 63) - 1}));
}

RC_GTEST_PROP(BoxProperty, PartsLieSideBySide, ()) {
  const uint64_t n = *rc::gen::inRange<uint64_t>(0, 100);
  const uint64_t parts = *rc::gen::inRange<uint64_t>(1, 20);
  uint64_t at = 0, longest = 0;
  for (uint64_t which = 0; which < parts; ++which) {
    const Interval part = EvenSplit(n, parts, which);
    RC_ASSERT(part.offset == at);
    if (which > 0) RC_ASSERT(part.length <= longest);
    longest = part.length;
    at += part.length;
  }
  RC_ASSERT(at == n);
}

TEST(ShardOf, SeveralDimensionsOfAMesh) {
  const Numbers shape = {10, 7};
  // [Shard(0), Shard(1)] on a mesh of 2 x 3, rank (1, 2).
  auto box = ShardOf(shape, std::vector<MeshSplit>{{0, 2, 1}, {1, 3, 2}});
  EXPECT_EQ(*box, Box({5, 6}, {5, 1}));
  // Replicated over the first.
  box = ShardOf(shape, std::vector<MeshSplit>{{std::nullopt, 2, 1}, {1, 3, 2}});
  EXPECT_EQ(*box, Box({0, 6}, {10, 1}));
  // Twice the same dimension: 10 = 5 + 5, then 5 = 2 + 2 + 1.
  box = ShardOf(shape, std::vector<MeshSplit>{{0, 2, 1}, {0, 3, 1}});
  EXPECT_EQ(*box, Box({7, 0}, {2, 7}));
  // FSDP over tensor parallelism: first in 3 (4, 4, 2), then each in 2.
  box = ShardOf(shape, std::vector<MeshSplit>{{0, 2, 1, true}, {0, 3, 1}});
  EXPECT_EQ(*box, Box({6, 0}, {2, 7}));
  EXPECT_EQ(*ShardOf(shape, {}), Box::Whole(shape));
}

TEST(ShardOf, RefusesWhatIsNotThere) {
  const Numbers shape = {10};
  EXPECT_EQ(ShardOf(shape, std::vector<MeshSplit>{{1, 2, 1}}).status().code(),
            Code::kInvalidArgument);
  EXPECT_EQ(ShardOf(shape, std::vector<MeshSplit>{{0, 2, 2}}).status().code(),
            Code::kInvalidArgument);
  EXPECT_EQ(ShardOf(shape, std::vector<MeshSplit>{{0, 0, 0}}).status().code(),
            Code::kInvalidArgument);
}

RC_GTEST_PROP(BoxProperty, ShardsOfAMeshTileTheTensor, ()) {
  const Numbers shape = DrawShape();
  std::vector<MeshSplit> mesh(*rc::gen::inRange<size_t>(0, 4));
  uint64_t ranks = 1;
  for (MeshSplit& split : mesh) {
    split.parts = *rc::gen::inRange<uint64_t>(1, 4);
    if (!shape.empty()) split.dimension = *rc::gen::inRange<size_t>(0, shape.size());
    split.strided = *rc::gen::arbitrary<bool>();
    ranks *= split.parts;
  }
  if (shape.empty()) ranks = 1;  // replicated
  std::vector<Box> boxes;
  for (uint64_t rank = 0; rank < ranks; ++rank) {
    uint64_t rest = rank;
    for (MeshSplit& split : mesh) {
      split.which = rest % split.parts;
      rest /= split.parts;
    }
    boxes.push_back(*ShardOf(shape, mesh));
  }
  for (int count : Coverage(shape, boxes)) RC_ASSERT(count == 1);
  RC_ASSERT(CheckTiling(shape, std::vector<BoxView>(boxes.begin(), boxes.end())).empty());
}

}  // namespace
}  // namespace headrace::checkpoint
