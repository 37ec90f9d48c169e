#include "headrace/loader/plan/batch_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace headrace::loader {
namespace {

using testing::HasSubstr;

BatchPlan Make(uint64_t samples, uint64_t batch, uint32_t world, uint32_t rank, Tail tail) {
  auto plan = BatchPlan::Create(samples, batch, world, rank, tail);
  EXPECT_TRUE(plan.ok()) << plan.status().ToString();
  return *plan;
}

// A cut that some loader could have: N, B, tail, and a world that B can feed.
struct Cut {
  uint64_t samples, batch;
  Tail tail;
  BatchPlan Plan(uint32_t world, uint32_t rank) const {
    return Make(samples, batch, world, rank, tail);
  }
  uint32_t MaxWorld() const { return static_cast<uint32_t>(std::min<uint64_t>(batch, 64)); }
};

Cut DrawCut() {
  Cut cut{};
  cut.batch = *rc::gen::inRange<uint64_t>(1, 200);
  cut.tail = *rc::gen::element(Tail::kDrop, Tail::kPad, Tail::kUneven);
  cut.samples = *rc::gen::inRange<uint64_t>(cut.tail == Tail::kDrop ? cut.batch : 1, 1500);
  return cut;
}

// The positions of a global batch by its definition, in stream order.
std::vector<uint64_t> Definition(const Cut& cut, uint64_t batch) {
  std::vector<uint64_t> positions;
  for (uint64_t p = batch * cut.batch; p < (batch + 1) * cut.batch; ++p) {
    if (p < cut.samples) {
      positions.push_back(p);
    } else if (cut.tail == Tail::kPad) {
      positions.push_back(p % cut.samples);
    }
  }
  return positions;
}

// What the ranks of a world give for a global batch, put back in stream order by taking turns.
std::vector<uint64_t> Union(const Cut& cut, uint32_t world, uint64_t batch) {
  std::vector<std::pair<uint64_t, uint64_t>> found;  // unwrapped position, position
  for (uint32_t rank = 0; rank < world; ++rank) {
    const BatchPlan plan = cut.Plan(world, rank);
    if (batch >= plan.num_batches()) continue;
    uint64_t unwrapped = plan.BatchBegin(batch);
    while (unwrapped % world != rank) ++unwrapped;
    for (uint64_t row = 0; row < plan.NumRows(batch); ++row, unwrapped += world) {
      found.emplace_back(unwrapped, plan.PositionOf(batch, row));
    }
  }
  std::sort(found.begin(), found.end());
  std::vector<uint64_t> positions;
  for (const auto& [unwrapped, position] : found) positions.push_back(position);
  return positions;
}

RC_GTEST_PROP(BatchPlanProperty, UnionOverRanksIsTheGlobalBatchForEveryWorldSize, ()) {
  const Cut cut = DrawCut();
  const auto world = *rc::gen::inRange<uint32_t>(1, cut.MaxWorld() + 1);
  for (uint64_t batch = 0; batch < cut.Plan(1, 0).num_global_batches(); ++batch) {
    RC_ASSERT(Union(cut, world, batch) == Definition(cut, batch));
  }
}

RC_GTEST_PROP(BatchPlanProperty, LengthsAgreeWithWhatIsGiven, ()) {
  const Cut cut = DrawCut();
  const auto world = *rc::gen::inRange<uint32_t>(1, cut.MaxWorld() + 1);
  uint64_t rows = 0, most_batches = 0;
  for (uint32_t rank = 0; rank < world; ++rank) {
    const BatchPlan plan = cut.Plan(world, rank);
    uint64_t max_rows = 0;
    for (uint64_t batch = 0; batch < plan.num_batches(); ++batch) {
      RC_ASSERT(plan.NumRows(batch) >= 1);
      max_rows = std::max(max_rows, plan.NumRows(batch));
      rows += plan.NumRows(batch);
    }
    RC_ASSERT(plan.MaxRows() == max_rows);
    most_batches = std::max(most_batches, plan.num_batches());
    if (cut.tail != Tail::kUneven) RC_ASSERT(plan.num_batches() == plan.num_global_batches());
    RC_ASSERT(plan.num_batches() + 1 >= plan.num_global_batches());
  }
  const uint64_t full = cut.samples / cut.batch * cut.batch;
  const uint64_t padded = (cut.samples + cut.batch - 1) / cut.batch * cut.batch;
  RC_ASSERT(rows == (cut.tail == Tail::kDrop  ? full
                     : cut.tail == Tail::kPad ? padded
                                              : cut.samples));
  RC_ASSERT(most_batches == cut.Plan(world, 0).num_global_batches());
}

RC_GTEST_PROP(BatchPlanProperty, RanksDifferByAtMostOneRow, ()) {
  const Cut cut = DrawCut();
  const auto world = *rc::gen::inRange<uint32_t>(1, cut.MaxWorld() + 1);
  for (uint64_t batch = 0; batch < cut.Plan(world, 0).num_global_batches(); ++batch) {
    uint64_t least = UINT64_MAX, most = 0;
    for (uint32_t rank = 0; rank < world; ++rank) {
      const uint64_t rows = cut.Plan(world, rank).NumRows(batch);
      least = std::min(least, rows);
      most = std::max(most, rows);
      if (cut.batch % world == 0 && cut.tail != Tail::kUneven) RC_ASSERT(rows == cut.batch / world);
    }
    RC_ASSERT(most - least <= 1u);
  }
}

// Delivers up to `count` global batches from `point` on and appends their (epoch, position) pairs.
StreamPoint Deliver(const Cut& cut, uint32_t world, StreamPoint point, uint64_t count,
                    std::vector<std::pair<uint64_t, uint64_t>>* stream) {
  for (uint64_t n = 0; n < count; ++n) {
    for (uint64_t p : Union(cut, world, point.batch)) stream->emplace_back(point.epoch, p);
    point = cut.Plan(world, 0).PointAfter(point.epoch, point.batch + 1);
  }
  return point;
}

RC_GTEST_PROP(BatchPlanProperty, ResumesWithChangingWorldsRepeatTheUninterruptedStream, ()) {
  Cut cut = DrawCut();
  cut.samples = std::max<uint64_t>(cut.samples % 300, cut.tail == Tail::kDrop ? cut.batch : 1);
  const uint64_t batches = 3 * cut.Plan(1, 0).num_global_batches();
  std::vector<std::pair<uint64_t, uint64_t>> whole, resumed;
  Deliver(cut, 1, {0, 0}, batches, &whole);
  LoaderState state;
  state.dataset_version = "v";
  state.global_batch = cut.batch;
  state.lanes = state.window_shards = 1;
  state.tail = cut.tail;
  for (uint64_t done = 0; done < batches;) {
    const auto world = *rc::gen::inRange<uint32_t>(1, cut.MaxWorld() + 1);
    const auto count = *rc::gen::inRange<uint64_t>(1, batches - done + 1);
    const auto read = LoaderState::FromJson(state.ToJson());
    RC_ASSERT(read.ok());
    const auto point = cut.Plan(world, world - 1).PointOf(read->epoch, read->next_position);
    RC_ASSERT(point.ok());
    const StreamPoint next = Deliver(cut, world, *point, count, &resumed);
    state.epoch = next.epoch;
    state.next_position = cut.Plan(world, 0).BatchBegin(next.batch);
    done += count;
  }
  RC_ASSERT(resumed == whole);
}

// Another global batch size from a common border on: no sample twice, none lost.
RC_GTEST_PROP(BatchPlanProperty, AnotherBatchSizeGoesOnFromACommonBorder, ()) {
  const auto first = *rc::gen::inRange<uint64_t>(1, 20);
  const auto second = *rc::gen::inRange<uint64_t>(1, 20);
  const auto samples = *rc::gen::inRange<uint64_t>(20, 500);
  const Cut before{samples, first, Tail::kUneven}, after{samples, second, Tail::kUneven};
  std::vector<std::pair<uint64_t, uint64_t>> stream;
  const auto delivered = *rc::gen::inRange<uint64_t>(0, before.Plan(1, 0).num_global_batches());
  const StreamPoint stop = Deliver(before, 1, {0, 0}, delivered, &stream);
  const uint64_t position = before.Plan(1, 0).BatchBegin(stop.batch);
  const auto point = after.Plan(1, 0).PointOf(stop.epoch, position);
  RC_ASSERT(point.ok() == (position % second == 0));
  if (!point.ok()) return;
  Deliver(after, 1, *point, after.Plan(1, 0).num_global_batches() - point->batch, &stream);
  RC_ASSERT(stream.size() == samples);
  for (uint64_t p = 0; p < samples; ++p) RC_ASSERT(stream[p] == std::pair(uint64_t{0}, p));
}

TEST(BatchPlan, TheLastBatchOfEachTail) {
  // 10 samples, batches of 4, 3 ranks: the tail is positions 8 and 9.
  EXPECT_EQ(Make(10, 4, 3, 0, Tail::kDrop).num_batches(), 2u);
  EXPECT_EQ(Make(10, 4, 3, 0, Tail::kPad).num_batches(), 3u);
  EXPECT_EQ(Make(10, 4, 3, 0, Tail::kPad).PositionOf(2, 0), 9u);
  EXPECT_EQ(Make(10, 4, 3, 2, Tail::kPad).PositionOf(2, 1), 1u);  // position 11 = 10 + 1
  EXPECT_EQ(Make(10, 4, 3, 0, Tail::kUneven).num_batches(), 3u);
  EXPECT_EQ(Make(10, 4, 3, 1, Tail::kUneven).num_batches(), 2u);
  EXPECT_EQ(Make(10, 4, 3, 2, Tail::kUneven).num_batches(), 3u);
}

TEST(BatchPlan, PadGoesRoundMoreThanOnceWhenTheBatchIsLarger) {
  const BatchPlan plan = Make(3, 8, 1, 0, Tail::kPad);
  EXPECT_EQ(plan.num_batches(), 1u);
  std::vector<uint64_t> positions;
  for (uint64_t row = 0; row < 8; ++row) positions.push_back(plan.PositionOf(0, row));
  EXPECT_THAT(positions, testing::ElementsAre(0, 1, 2, 0, 1, 2, 0, 1));
}

// One or three shards over two ranks: what counts is samples, so both ranks have equal batches.
TEST(BatchPlan, EveryRankHasTheSameNumberOfBatchesUnderDropAndPad) {
  for (Tail tail : {Tail::kDrop, Tail::kPad}) {
    for (uint32_t world : {2u, 3u, 7u, 64u}) {
      for (uint32_t rank = 1; rank < world; ++rank) {
        EXPECT_EQ(Make(1001, 64, world, rank, tail).num_batches(),
                  Make(1001, 64, world, 0, tail).num_batches());
      }
    }
  }
}

TEST(BatchPlan, TheEpochAfterAResumeIsWhole) {
  const BatchPlan plan = Make(1000, 10, 2, 0, Tail::kDrop);
  const auto point = plan.PointOf(1, 900);
  ASSERT_TRUE(point.ok());
  EXPECT_EQ(*point, (StreamPoint{1, 90}));
  EXPECT_EQ(plan.PointAfter(1, 99), (StreamPoint{1, 99}));
  EXPECT_EQ(plan.PointAfter(1, 100), (StreamPoint{2, 0}));
  EXPECT_EQ(plan.num_batches(), 100u);
}

TEST(BatchPlan, AStateAtTheEndMeansTheNextEpoch) {
  EXPECT_EQ(*Make(100, 10, 1, 0, Tail::kDrop).PointOf(4, 100), (StreamPoint{5, 0}));
  EXPECT_EQ(*Make(105, 10, 1, 0, Tail::kDrop).PointOf(4, 100), (StreamPoint{5, 0}));
  EXPECT_EQ(*Make(105, 10, 1, 0, Tail::kPad).PointOf(4, 100), (StreamPoint{4, 10}));
  EXPECT_EQ(*Make(105, 10, 1, 0, Tail::kUneven).PointOf(4, 105), (StreamPoint{5, 0}));
}

TEST(BatchPlan, RefusesAPositionThatIsNoBorder) {
  const BatchPlan plan = Make(100, 10, 1, 0, Tail::kDrop);
  EXPECT_THAT(std::string(plan.PointOf(0, 15).status().message()), HasSubstr("15 is not a border"));
  EXPECT_THAT(std::string(plan.PointOf(0, 110).status().message()),
              HasSubstr("110 is beyond the end of the epoch, which has 100 samples"));
}

TEST(BatchPlan, RefusesWhatCannotRun) {
  const auto message = [](uint64_t samples, uint64_t batch, uint32_t world, uint32_t rank,
                          Tail tail) {
    const auto plan = BatchPlan::Create(samples, batch, world, rank, tail);
    EXPECT_EQ(plan.status().code(), Code::kInvalidArgument);
    return std::string(plan.status().message());
  };
  EXPECT_THAT(message(10, 0, 1, 0, Tail::kDrop), HasSubstr("1 to 2147483648, found 0"));
  EXPECT_THAT(message(10, 4, 0, 0, Tail::kDrop), HasSubstr("world_size must be at least 1"));
  EXPECT_THAT(message(10, 4, 2, 2, Tail::kDrop), HasSubstr("rank must be 0 to 1 in a world of 2"));
  EXPECT_THAT(message(10, 4, 8, 0, Tail::kDrop), HasSubstr("4 rows for 8 ranks"));
  EXPECT_THAT(message(3, 4, 1, 0, Tail::kDrop), HasSubstr("at most 3, or tail=pad or tail=uneven"));
  EXPECT_THAT(message(0, 4, 1, 0, Tail::kPad), HasSubstr("found 0"));
}

TEST(Tail, NamesAndBack) {
  for (Tail tail : {Tail::kDrop, Tail::kPad, Tail::kUneven}) {
    EXPECT_EQ(*ParseTail(TailName(tail)), tail);
  }
  EXPECT_THAT(std::string(ParseTail("Drop").status().message()),
              HasSubstr("drop, pad or uneven; found 'Drop'"));
}

}  // namespace
}  // namespace headrace::loader
