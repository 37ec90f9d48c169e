#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

#include "headrace/base/keyed_random.h"
#include "headrace/checkpoint/box.h"
#include "headrace/checkpoint/testing/grid.h"

namespace headrace::checkpoint {
namespace {

using Kind = TilingFault::Kind;
using Numbers = std::vector<uint64_t>;

std::vector<TilingFault> Check(Extents shape, const std::vector<Box>& boxes, size_t most = 16) {
  return CheckTiling(shape, std::vector<BoxView>(boxes.begin(), boxes.end()), most);
}

std::vector<std::string> Texts(const std::vector<TilingFault>& faults) {
  std::vector<std::string> texts;
  for (const TilingFault& fault : faults) {
    std::string text;
    if (fault.kind == Kind::kOutside) text = "outside " + std::to_string(fault.first);
    if (fault.kind == Kind::kMissing) text = "missing";
    if (fault.kind == Kind::kTooIrregular) text = "irregular";
    if (fault.kind == Kind::kOverlap)
      text = "overlap " + std::to_string(fault.first) + "," + std::to_string(fault.second);
    texts.push_back(text + " " + BoxText(fault.region));
  }
  return texts;
}

TEST(CheckTiling, NamesWhatIsWrong) {
  const Numbers shape = {4, 6};
  EXPECT_THAT(Texts(Check(shape, {})), testing::ElementsAre("missing [0:4, 0:6]"));
  EXPECT_THAT(Texts(Check(shape, {Box({0, 0}, {4, 2}), Box({0, 3}, {4, 3})})),
              testing::ElementsAre("missing [0:4, 2:3]"));
  EXPECT_THAT(Texts(Check(shape, {Box({0, 0}, {4, 4}), Box({0, 3}, {4, 3})})),
              testing::ElementsAre("overlap 0,1 [0:4, 3:4]"));
  EXPECT_THAT(Texts(Check(shape, {Box({0, 0}, {4, 6}), Box({3, 0}, {2, 6})})),
              testing::ElementsAre("outside 1 [3:5, 0:6]"));
  EXPECT_THAT(Texts(Check(shape, {Box({0}, {4})})),
              testing::ElementsAre("outside 0 [0:4]", "missing [0:4, 0:6]"));
  // One too many of what is else well cut: only that is named.
  EXPECT_THAT(Texts(Check(shape, {Box({0, 0}, {2, 6}), Box({2, 0}, {2, 3}), Box({2, 3}, {2, 3}),
                                  Box({2, 3}, {2, 3})})),
              testing::ElementsAre("overlap 2,3 [2:4, 3:6]"));
}

TEST(CheckTiling, ScalarsAndTensorsWithoutElements) {
  EXPECT_TRUE(Check({}, {Box()}).empty());
  EXPECT_THAT(Texts(Check({}, {})), testing::ElementsAre("missing []"));
  EXPECT_THAT(Texts(Check({}, {Box(), Box()})), testing::ElementsAre("overlap 0,1 []"));
  const Numbers empty = {3, 0};
  EXPECT_TRUE(Check(empty, {}).empty());
  EXPECT_TRUE(Check(empty, {Box({0, 0}, {3, 0}), Box({1, 0}, {1, 0})}).empty());
  EXPECT_EQ(Check(empty, {Box({0, 1}, {3, 0})}).size(), 1u);
  // Boxes without elements say nothing.
  EXPECT_TRUE(Check(Numbers{3}, {Box({3}, {0}), Box({0}, {3}), Box({1}, {0})}).empty());
}

TEST(CheckTiling, APinwheelIsATiling) {
  // No straight cut parts these five.
  std::vector<Box> boxes = {Box({0, 0}, {1, 2}), Box({0, 2}, {2, 1}), Box({2, 1}, {1, 2}),
                            Box({1, 0}, {2, 1}), Box({1, 1}, {1, 1})};
  EXPECT_TRUE(Check(Numbers{3, 3}, boxes).empty());
  boxes.pop_back();
  EXPECT_THAT(Texts(Check(Numbers{3, 3}, boxes)), testing::ElementsAre("missing [0:3, 0:3]"));
  boxes.push_back(Box({1, 0}, {1, 2}));
  EXPECT_THAT(Texts(Check(Numbers{3, 3}, boxes)), testing::ElementsAre("overlap 3,4 [1:2, 0:1]"));
}

TEST(CheckTiling, AsManyFaultsAsWanted) {
  std::vector<Box> boxes;
  for (uint64_t i = 0; i < 100; i += 2) boxes.push_back(Box({i}, {1}));
  EXPECT_EQ(Check(Numbers{100}, boxes, 7).size(), 7u);
  EXPECT_EQ(Check(Numbers{100}, boxes, 1000).size(), 50u);
}

TEST(CheckTiling, MoreThanCanBeCountedIsRefused) {
  const Numbers shape = {uint64_t{1} << 40, uint64_t{1} << 40};
  EXPECT_EQ(Check(shape, {Box::Whole(shape)}).at(0).kind, Kind::kTooIrregular);
}

TEST(CheckTiling, TooManyBoxesWithoutAStraightCut) {
  // All overlap, and none is named beyond the limit.
  const std::vector<Box> boxes(20'001, Box({0}, {10}));
  EXPECT_THAT(Texts(Check(Numbers{10}, boxes)), testing::ElementsAre("irregular [0:10]"));
}

TEST(CheckTiling, AGridOfManyBoxes) {
  const uint64_t side = 400;
  std::vector<Box> boxes;
  for (uint64_t i = 0; i < side; ++i)
    for (uint64_t j = 0; j < side; ++j) boxes.push_back(Box({i * 3, j * 2}, {3, 2}));
  KeyedRandom random(5);
  for (size_t i = boxes.size(); i > 1; --i) std::swap(boxes[i - 1], boxes[random.NextBelow(i)]);
  EXPECT_TRUE(Check(Numbers{side * 3, side * 2}, boxes).empty());
  const Box gone = boxes.back();
  boxes.pop_back();
  EXPECT_THAT(Texts(Check(Numbers{side * 3, side * 2}, boxes)),
              testing::ElementsAre("missing " + BoxText(gone)));
}

// Cuts a region in two again and again.
void CutAtRandom(const Box& region, int cuts, std::vector<Box>* out) {
  std::vector<size_t> can_be_cut;
  for (size_t k = 0; k < region.length.size(); ++k)
    if (region.length[k] > 1) can_be_cut.push_back(k);
  if (cuts == 0 || can_be_cut.empty()) return out->push_back(region);
  const size_t k = can_be_cut[*rc::gen::inRange<size_t>(0, can_be_cut.size())];
  const uint64_t first = *rc::gen::inRange<uint64_t>(1, region.length[k]);
  Box a = region, b = region;
  a.length[k] = first;
  b.offset[k] += first;
  b.length[k] -= first;
  CutAtRandom(a, cuts - 1, out);
  CutAtRandom(b, cuts - 1, out);
}

// Puts one box wrong, or takes one away, or not.
void Disturb(Extents shape, std::vector<Box>* boxes) {
  const int how = *rc::gen::inRange(0, 5);
  if (boxes->empty() || how == 0) return;
  const size_t i = *rc::gen::inRange<size_t>(0, boxes->size());
  Box& box = (*boxes)[i];
  if (how == 1) {
    boxes->erase(boxes->begin() + static_cast<std::ptrdiff_t>(i));
  } else if (how == 2) {
    boxes->push_back(Box(box));
  } else if (!shape.empty()) {
    const size_t k = *rc::gen::inRange<size_t>(0, shape.size());
    (how == 3 ? box.offset : box.length)[k] = *rc::gen::inRange<uint64_t>(0, shape[k] + 2);
  }
}

RC_GTEST_PROP(CheckTilingProperty, AgreesWithCounting, ()) {
  Numbers shape(*rc::gen::inRange<size_t>(0, 4));
  for (uint64_t& length : shape) length = *rc::gen::inRange<uint64_t>(0, 7);
  std::vector<Box> boxes;
  CutAtRandom(Box::Whole(shape), *rc::gen::inRange(0, 5), &boxes);
  Disturb(shape, &boxes);
  const bool all_inside =
      std::all_of(boxes.begin(), boxes.end(), [&](const Box& box) { return FitsInto(box, shape); });
  const std::vector<TilingFault> faults = Check(shape, boxes, 1000);
  if (!all_inside) {
    RC_ASSERT(!faults.empty() && faults[0].kind == Kind::kOutside);
    return;
  }
  const std::vector<int> coverage = Coverage(shape, boxes);
  const bool once = std::all_of(coverage.begin(), coverage.end(), [](int n) { return n == 1; });
  RC_ASSERT(faults.empty() == once);
  for (const TilingFault& fault : faults) {
    const Numbers places = PlacesIn(shape, fault.region);
    const auto in_order = [&](uint64_t place) {
      return fault.kind == Kind::kOverlap ? coverage[place] < 2 : coverage[place] != 0;
    };
    // An overlap is one everywhere; of what is missing some is.
    if (fault.kind == Kind::kOverlap)
      RC_ASSERT(std::none_of(places.begin(), places.end(), in_order));
    else
      RC_ASSERT(!std::all_of(places.begin(), places.end(), in_order));
  }
}

}  // namespace
}  // namespace headrace::checkpoint
