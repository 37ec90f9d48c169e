#include "headrace/checkpoint/assemble.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

#include "headrace/checkpoint/testing/tiny_checkpoint.h"

namespace headrace::checkpoint {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr SaveId kId{7, 1, 1};

// The faults of ranks that do not fit together.
std::vector<std::string> FaultsOf(const std::vector<RankManifest>& ranks, uint32_t world_size) {
  Assembler assembler(kId, world_size);
  for (const RankManifest& rank : ranks) EXPECT_TRUE(assembler.Add(rank).ok());
  const Status status = assembler.Finish().status();
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  for (const std::string& fault : assembler.faults())
    EXPECT_THAT(status.message(), HasSubstr(fault));
  return assembler.faults();
}

TEST(Assembler, MakesOneOfAll) {
  const std::vector<RankManifest> ranks = TinyRanks(kId, 3, TinyTensors());
  auto manifest = AssembleAll(ranks);
  ASSERT_TRUE(manifest.ok()) << manifest.status().ToString();
  EXPECT_EQ(manifest->info.started_ns, 998);
  EXPECT_EQ(manifest->info.finished_ns, 2002);
  // 7 rows in 3: 3, 3, 1; 4 in 3: 2, 2, 0; a scalar; nothing.
  EXPECT_THAT(manifest->first_box, ElementsAre(0, 3, 5, 6, 6));
  EXPECT_EQ(manifest->files.size(), 3u);
  EXPECT_EQ(manifest->trees.texts.size(), 1u);
  EXPECT_EQ(manifest->data_bytes(), 7u * 3 * 2 + 4 * 4 + 8);
}

TEST(Assembler, TheOrderOfRanksDoesNotMatter) {
  std::vector<RankManifest> ranks = TinyRanks(kId, 5, TinyTensors());
  for (uint32_t i = 0; i < 5; ++i) {
    ranks[i].tree = std::to_string(i / 2);
    ranks[i].info.created_by = "rank " + std::to_string(i);
    AddTinyBox(3, Box({0, 2}, {0, 3}), &ranks[i]);  // without elements
  }
  const std::string bytes = EncodeManifest(AssembleAll(ranks).value()).value();
  std::vector<size_t> order = {0, 1, 2, 3, 4};
  for (int i = 0; i < 120; ++i) {
    std::vector<RankManifest> mixed;
    for (size_t rank : order) mixed.push_back(ranks[rank]);
    ASSERT_EQ(EncodeManifest(AssembleAll(mixed).value()).value(), bytes);
    std::next_permutation(order.begin(), order.end());
  }
}

TEST(Assembler, EachRankMayHaveTensorsOfItsOwn) {
  std::vector<RankManifest> ranks;
  for (uint32_t rank = 0; rank < 4; ++rank) {
    // Pipeline stages, in an order that is not that of the ranks.
    ranks.push_back(EmptyRankManifest(
        kId, 4, rank, {{fmt::format("/model/{}", (rank * 3) % 4), DType::kF16, {2}}}));
    AddTinyBox(0, Box({0}, {2}), &ranks.back());
  }
  auto manifest = AssembleAll(ranks);
  ASSERT_TRUE(manifest.ok()) << manifest.status().ToString();
  for (uint32_t i = 0; i < 4; ++i)
    EXPECT_EQ(manifest->tensors.path(i), fmt::format("/model/{}", i));
  EXPECT_EQ(manifest->files[manifest->boxes.entry(1).file].rank, 3u);
}

TEST(Assembler, MissingRanksAreNamed) {
  std::vector<RankManifest> ranks = TinyRanks(kId, 9, TinyTensors());
  for (int gone : {7, 3, 2, 1}) ranks.erase(ranks.begin() + gone);
  EXPECT_THAT(FaultsOf(ranks, 9), ElementsAre("4 of 9 ranks did not hand in their part: 1-3, 7"));
  Assembler assembler(kId, 3);
  EXPECT_THAT(assembler.MissingRanks(), ElementsAre(0, 1, 2));
  EXPECT_TRUE(assembler.Add(TinyRanks(kId, 3, {})[1]).ok());
  EXPECT_THAT(assembler.MissingRanks(), ElementsAre(0, 2));
}

TEST(Assembler, RefusesOtherSavesAndTheSameRankTwice) {
  Assembler assembler(kId, 2);
  EXPECT_TRUE(assembler.Add(TinyRanks(kId, 2, {})[1]).ok());
  EXPECT_EQ(assembler.Add(TinyRanks(kId, 2, {})[1]).code(), Code::kInvalidArgument);
  EXPECT_EQ(assembler.Add(TinyRanks({7, 1, 2}, 2, {})[0]).code(), Code::kInvalidArgument);
  EXPECT_EQ(assembler.Add(TinyRanks({7, 2, 1}, 2, {})[0]).code(), Code::kInvalidArgument);
  EXPECT_EQ(assembler.Add(TinyRanks(kId, 3, {})[0]).code(), Code::kInvalidArgument);
  EXPECT_TRUE(assembler.Add(TinyRanks(kId, 2, {})[0]).ok());
  EXPECT_TRUE(assembler.Finish().ok());
}

TEST(Assembler, ListsAllThatIsMissingOrThereTwice) {
  const std::vector<TinyTensor> tensors = {{"/a", DType::kF32, {4, 4}},
                                           {"/b", DType::kF32, {4}},
                                           {"/c", DType::kU8, {}},
                                           {"/d", DType::kU8, {2}}};
  std::vector<RankManifest> ranks;
  for (uint32_t rank = 0; rank < 2; ++rank)
    ranks.push_back(EmptyRankManifest(kId, 2, rank, tensors));
  AddTinyBox(0, Box({0, 0}, {2, 4}), &ranks[0]);  // the lower half is missing
  AddTinyBox(1, Box({0}, {3}), &ranks[0]);
  AddTinyBox(1, Box({2}, {2}), &ranks[1]);
  AddTinyBox(2, Box(), &ranks[1]);
  AddTinyBox(3, Box({0}, {2}), &ranks[0]);
  AddTinyBox(3, Box({0}, {2}), &ranks[1]);  // no replica
  EXPECT_THAT(FaultsOf(ranks, 2),
              ElementsAre("'/a' [4, 4]: no rank has all of [2:4, 0:4]",
                          "'/b' [4]: rank 0 with [0:3] and rank 1 with [2:4] both have [2:3]",
                          "'/d' [2]: rank 0 with [0:2] and rank 1 with [0:2] both have [0:2]"));
}

TEST(Assembler, RanksThatDisagreeOnATensor) {
  auto ranks = TinyRanks(kId, 2, {{"/a", DType::kF32, {4}}});
  ranks[1] = TinyRanks(kId, 2, {{"/a", DType::kF16, {4}}})[1];
  EXPECT_THAT(FaultsOf(ranks, 2), ElementsAre("'/a' is F16 [4] on rank 1 and F32 [4] on rank 0"));
  ranks[1] = TinyRanks(kId, 2, {{"/a", DType::kF32, {4, 1}}})[1];
  EXPECT_THAT(FaultsOf(ranks, 2),
              ElementsAre("'/a' is F32 [4, 1] on rank 1 and F32 [4] on rank 0"));
}

TEST(Assembler, RanksThatDisagreeOnTheSave) {
  auto ranks = TinyRanks(kId, 2, TinyTensors());
  ranks[0].info.dataset_version = "v2";
  ranks[0].info.kind = "light";
  EXPECT_EQ(FaultsOf(ranks, 2).size(), 2u);
}

TEST(Assembler, ReplicasAreKeptOnce) {
  std::vector<RankManifest> ranks;
  for (uint32_t rank = 0; rank < 4; ++rank) {
    ranks.push_back(EmptyRankManifest(kId, 4, rank, {{"/a", DType::kF32, {4}}}));
    AddTinyBox(0, Box({rank / 2 * 2}, {2}), &ranks.back());
    ranks.back().boxes.entry(0).replica = true;
  }
  auto manifest = AssembleAll(ranks);
  ASSERT_TRUE(manifest.ok()) << manifest.status().ToString();
  ASSERT_EQ(manifest->boxes.size(), 2u);
  EXPECT_FALSE(manifest->boxes.entry(0).replica);
  // Files that no kept box lies in are left out.
  ASSERT_EQ(manifest->files.size(), 2u);
  EXPECT_EQ(manifest->files[0].rank, 0u);
  EXPECT_EQ(manifest->files[1].rank, 2u);

  ranks[3].boxes.entry(0).hash.low ^= 1;
  EXPECT_THAT(FaultsOf(ranks, 4),
              ElementsAre("'/a': ranks 2 and 3 say that they have the same [2:4], but their bytes "
                          "differ"));
  ranks[3].boxes.entry(0).replica = false;  // then it is there twice
  EXPECT_THAT(FaultsOf(ranks, 4)[0], HasSubstr("both have [2:4]"));
}

TEST(Assembler, FilesThatSeveralRanksNameAreListedOnce) {
  auto ranks = TinyRanks(kId, 2, {{"/a", DType::kF32, {4}}});
  ranks[0].files[0].name = ranks[1].files[0].name;
  ranks[0].files[0].carried = true;
  auto manifest = AssembleAll(ranks);
  ASSERT_TRUE(manifest.ok()) << manifest.status().ToString();
  ASSERT_EQ(manifest->files.size(), 1u);
  EXPECT_EQ(manifest->files[0].rank, 0u);
  EXPECT_FALSE(manifest->files[0].carried);
  ranks[1].files[0].crc32c = 5;
  EXPECT_THAT(FaultsOf(ranks, 2)[0], HasSubstr("CRC32C"));
}

TEST(Assembler, TheMessageEndsSomewhere) {
  std::vector<TinyTensor> tensors;
  for (int i = 0; i < 1000; ++i) tensors.push_back({fmt::format("/{:04}", i), DType::kU8, {2}});
  Assembler assembler(kId, 1);
  ASSERT_TRUE(assembler.Add(EmptyRankManifest(kId, 1, 0, tensors)).ok());
  const Status status = assembler.Finish().status();
  EXPECT_THAT(status.message(), HasSubstr("and 900 more"));
  EXPECT_EQ(assembler.faults().size(), 1000u);
}

// Whatever the cut, the boxes of the manifest are those handed in, and one that is taken away is
// found missing.
RC_GTEST_PROP(AssemblerProperty, NoticesEachBoxThatIsMissing, ()) {
  const auto world_size = *rc::gen::inRange<uint32_t>(1, 5);
  const std::vector<uint64_t> shape = {*rc::gen::inRange<uint64_t>(1, 9),
                                       *rc::gen::inRange<uint64_t>(1, 9)};
  const uint64_t columns = *rc::gen::inRange<uint64_t>(1, 4);
  std::vector<Box> boxes;
  for (uint32_t rank = 0; rank < world_size; ++rank)
    for (uint64_t column = 0; column < columns; ++column)
      boxes.push_back(
          *ShardOf(shape, std::vector<MeshSplit>{{0, world_size, rank}, {1, columns, column}}));
  std::erase_if(boxes, [](const Box& box) { return Volume(box.length) == 0; });
  const auto gone = *rc::gen::inRange<size_t>(0, boxes.size() + 1);
  std::vector<RankManifest> ranks;
  for (uint32_t rank = 0; rank < world_size; ++rank)
    ranks.push_back(EmptyRankManifest(kId, world_size, rank, {{"/a", DType::kF32, shape}}));
  for (size_t i = 0; i < boxes.size(); ++i)
    if (i != gone) AddTinyBox(0, boxes[i], &ranks[*rc::gen::inRange<size_t>(0, world_size)]);
  auto manifest = AssembleAll(ranks);
  RC_ASSERT(manifest.ok() == (gone == boxes.size()));
  if (manifest.ok()) RC_ASSERT(manifest->boxes.size() == boxes.size());
}

}  // namespace
}  // namespace headrace::checkpoint
