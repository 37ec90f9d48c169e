#include "headrace/checkpoint/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "headrace/base/crc32c.h"
#include "headrace/checkpoint/chunk_sums.h"
#include "headrace/checkpoint/section_file.h"
#include "headrace/checkpoint/testing/tiny_checkpoint.h"
#include "headrace/env/file.h"

namespace headrace::checkpoint {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string Golden(std::string_view name) {
  auto content =
      PosixFileSystem()->ReadWhole(fmt::format("{}/{}", HEADRACE_GOLDEN_DIR, name), 1 << 20);
  EXPECT_TRUE(content.ok()) << content.status().ToString();
  return content.ok() ? *content : "";
}

void ExpectGoldenTables(const TensorTable& tensors, const SaveInfo& info) {
  EXPECT_EQ(info.id, (SaveId{1000, 3, 2}));
  EXPECT_EQ(info.world_size, 2u);
  EXPECT_EQ(info.started_ns, 1'700'000'000'000'000'000);
  EXPECT_EQ(info.finished_ns, -5);
  EXPECT_EQ(info.kind, "full");
  EXPECT_EQ(info.dataset_version, "v\u00e9");
  EXPECT_EQ(info.created_by, "headrace 0.1.0");
  ASSERT_EQ(tensors.size(), 3u);
  EXPECT_EQ(tensors.path(0), "/model/layers.0.weight");
  EXPECT_EQ(tensors.dtype(0), DType::kBF16);
  EXPECT_THAT(tensors.shape(0), ElementsAre(300, 7));
  EXPECT_EQ(tensors.path(2), "/step");
  EXPECT_TRUE(tensors.shape(2).empty());
}

std::string BoxLine(const BoxTable& boxes, size_t i) {
  const BoxEntry& entry = boxes.entry(i);
  return fmt::format("{} {} {} {}+{} {} {} {}", entry.tensor, BoxText(boxes.box(i)), entry.file,
                     entry.offset, entry.bytes, entry.crc32c, entry.hash.Hex().substr(0, 2),
                     entry.replica ? "replica" : "");
}

TEST(Manifest, TheGoldenRankManifest) {
  const std::string bytes = Golden("rank_manifest_v1.hrckr");
  auto read = DecodeRankManifest(AsBytes(bytes), "golden");
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  ExpectGoldenTables(read->tensors, read->info);
  EXPECT_EQ(read->rank, 1u);
  EXPECT_EQ(read->tree, "{\"model\": 1}");
  EXPECT_EQ(read->loader_state, std::string("\x00\xff state", 8));
  ASSERT_EQ(read->files.size(), 2u);
  EXPECT_EQ(read->files[0].name, (Hash128{10, 11}));
  EXPECT_EQ(read->files[0].bytes, 5496u);
  EXPECT_EQ(read->files[0].crc32c, 30u);
  EXPECT_FALSE(read->files[0].carried);
  EXPECT_TRUE(read->files[1].carried);
  ASSERT_EQ(read->boxes.size(), 4u);
  EXPECT_EQ(BoxLine(read->boxes, 0), "2 [] 1 5000+1 79 80 replica");
  EXPECT_EQ(BoxLine(read->boxes, 1), "0 [200:300, 0:7] 0 4096+1400 77 80 ");
  EXPECT_EQ(BoxLine(read->boxes, 2), "0 [300:300, 0:7] 0 5496+0 77 80 ");
  EXPECT_EQ(BoxLine(read->boxes, 3), "1 [0:2] 1 4096+8 78 80 ");
  EXPECT_EQ(EncodeRankManifest(*read).value(), bytes);
}

TEST(Manifest, TheGoldenManifest) {
  const std::string bytes = Golden("manifest_v1.hrckm");
  auto read = DecodeManifest(AsBytes(bytes), "golden");
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  ExpectGoldenTables(read->tensors, read->info);
  EXPECT_THAT(read->first_box, ElementsAre(0, 2, 3, 4));
  EXPECT_EQ(BoxLine(read->boxes, 0), "0 [0:200, 0:7] 1 4096+2800 77 80 ");
  EXPECT_EQ(BoxLine(read->boxes, 3), "2 [] 2 5000+1 79 80 ");
  EXPECT_EQ(read->trees.Of(0), "{}");
  EXPECT_EQ(read->trees.Of(1), "{\"model\": 1}");
  EXPECT_EQ(read->loader_states.Of(1), "");
  EXPECT_EQ(read->FindTensor("/step"), 2u);
  EXPECT_EQ(read->FindTensor("/model/layers.0.weight"), 0u);
  EXPECT_EQ(read->FindTensor("/nope"), std::nullopt);
  EXPECT_EQ(read->data_bytes(), 2800u + 1400 + 8 + 1);
  EXPECT_EQ(EncodeManifest(*read).value(), bytes);
}

TEST(Manifest, TheGoldenChecksums) {
  std::string data(70000, '\0');
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<char>(i * 7 % 251);
  ChunkSums::Builder builder;
  builder.Append(AsBytes(data));
  EXPECT_EQ(builder.Finish({uint64_t{1} << 60, 9}).Encode(), Golden("sums_v1.crc"));
}

TEST(Manifest, EachFlippedBitAndEachCutIsNoticed) {
  const std::string rank = Golden("rank_manifest_v1.hrckr"), whole = Golden("manifest_v1.hrckm");
  for (size_t bit = 0; bit < rank.size() * 8; ++bit) {
    std::string wrong = rank;
    wrong[bit / 8] = static_cast<char>(wrong[bit / 8] ^ (1 << bit % 8));
    EXPECT_EQ(DecodeRankManifest(AsBytes(wrong), "x").status().code(), Code::kDataLoss) << bit;
  }
  for (size_t bit = 0; bit < whole.size() * 8; ++bit) {
    std::string wrong = whole;
    wrong[bit / 8] = static_cast<char>(wrong[bit / 8] ^ (1 << bit % 8));
    EXPECT_EQ(DecodeManifest(AsBytes(wrong), "x").status().code(), Code::kDataLoss) << bit;
  }
  for (size_t size = 0; size < whole.size(); ++size)
    EXPECT_EQ(DecodeManifest(AsBytes(whole).first(size), "x").status().code(), Code::kDataLoss);
  EXPECT_EQ(DecodeManifest(AsBytes(whole + '\0'), "x").status().code(), Code::kDataLoss);
  EXPECT_EQ(DecodeManifest(AsBytes(rank), "x").status().code(), Code::kDataLoss);
}

// The table's CRC32C, after something in the table was changed.
void SealTable(std::string* file) {
  const size_t end = 24 + 32 * LoadLittle<uint32_t>(&(*file)[12]);
  StoreLittle<uint32_t>(&(*file)[end], Crc32c(AsBytes(*file).first(end)));
}

TEST(Manifest, NewerFilesAreRefusedAsSuch) {
  std::string file = Golden("manifest_v1.hrckm");
  StoreLittle<uint32_t>(&file[8], 2);
  SealTable(&file);
  EXPECT_EQ(DecodeManifest(AsBytes(file), "x").status().code(), Code::kFailedPrecondition);
}

TEST(SectionFile, UnknownSectionsAreSkippedUnlessRequired) {
  const SectionFormat format = {"12345678", 3, "thing"};
  for (bool required : {false, true}) {
    SectionWriter writer(format);
    writer.Add(1, true, "one");
    writer.Add(9, required, "nine");
    writer.Add(12, false, "");
    const std::string file = writer.Finish();
    auto reader = SectionReader::Open(AsBytes(file), format, 8, "x");
    EXPECT_EQ(reader.status().code(), required ? Code::kFailedPrecondition : Code::kOk);
    reader = SectionReader::Open(AsBytes(file), format, 9, "x");
    ASSERT_TRUE(reader.ok()) << reader.status().ToString();
    EXPECT_EQ(AsText(reader->Get(1)), "one");
    EXPECT_EQ(AsText(reader->Get(9)), "nine");
    EXPECT_TRUE(reader->Get(2).empty());
    EXPECT_EQ(reader->Damaged(2, "why").code(), Code::kDataLoss);
  }
  EXPECT_TRUE(SectionReader::Open(AsBytes(SectionWriter(format).Finish()), format, 8, "x").ok());
}

RC_GTEST_PROP(ManifestProperty, WhatIsWrittenReadsTheSame, ()) {
  const auto world_size = *rc::gen::inRange<uint32_t>(1, 6);
  std::vector<TinyTensor> tensors;
  const size_t count = *rc::gen::inRange<size_t>(0, 10);
  for (size_t i = 0; i < count; ++i) {
    auto shape = *rc::gen::container<std::vector<uint64_t>>(*rc::gen::inRange<size_t>(0, 4),
                                                            rc::gen::inRange<uint64_t>(0, 9));
    tensors.push_back({fmt::format("/{:02}/{}", i, *rc::gen::arbitrary<std::string>()), DType::kI16,
                       std::move(shape)});
  }
  std::vector<RankManifest> ranks = TinyRanks({7, 1, 1}, world_size, tensors);
  std::vector<RankManifest> again;
  for (RankManifest& rank : ranks) {
    rank.tree = *rc::gen::arbitrary<std::string>();
    rank.loader_state = *rc::gen::arbitrary<std::string>();
    const std::string bytes = EncodeRankManifest(rank).value();
    auto read = DecodeRankManifest(AsBytes(bytes), "x");
    RC_ASSERT(read.ok());
    RC_ASSERT(read->tree == rank.tree);
    RC_ASSERT(read->loader_state == rank.loader_state);
    RC_ASSERT(EncodeRankManifest(*read).value() == bytes);
    again.push_back(*std::move(read));
  }
  const Manifest manifest = AssembleAll(ranks).value();
  const std::string bytes = EncodeManifest(manifest).value();
  RC_ASSERT(EncodeManifest(AssembleAll(again).value()).value() == bytes);
  auto read = DecodeManifest(AsBytes(bytes), "x");
  RC_ASSERT(read.ok());
  RC_ASSERT(read->first_box == manifest.first_box);
  RC_ASSERT(EncodeManifest(*read).value() == bytes);
  for (uint32_t rank = 0; rank < world_size; ++rank) {
    RC_ASSERT(read->trees.Of(rank) == ranks[rank].tree);
    RC_ASSERT(read->loader_states.Of(rank) == ranks[rank].loader_state);
  }
  for (uint32_t i = 0; i < tensors.size(); ++i) RC_ASSERT(read->FindTensor(tensors[i].path) == i);
}

TEST(Manifest, RefusesToEncodeWhatItPromisesNotToHold) {
  auto fresh = [] { return TinyRanks({7, 1, 1}, 2, TinyTensors())[0]; };
  auto expect = [](const RankManifest& manifest, std::string_view why) {
    auto bytes = EncodeRankManifest(manifest);
    EXPECT_EQ(bytes.status().code(), Code::kInvalidArgument) << why;
    EXPECT_THAT(bytes.status().message(), HasSubstr(why));
  };
  EXPECT_TRUE(EncodeRankManifest(fresh()).ok());
  RankManifest m = fresh();
  m.tensors.Add("/a", DType::kU8, {});
  expect(m, "not behind");
  m = fresh();
  m.tensors.Add("/z/nothing", DType::kU8, {});
  expect(m, "not behind");
  m = fresh();
  m.tensors.Add("/z/z" + std::string(70'000, 'z'), DType::kU8, {});
  expect(m, "65,535");
  m = fresh();
  m.tensors.Add("/zz", DType::kU8, std::vector<uint64_t>(65, 1));
  expect(m, "64 dimensions");
  m = fresh();
  m.tensors.Add("/zz", DType::kF4, std::vector<uint64_t>{3});
  expect(m, "whole number");
  m = fresh();
  m.boxes.entry(0).file = 1;
  expect(m, "file 1 of 1");
  m = fresh();
  m.boxes.entry(0).bytes += 1;
  expect(m, "does not have");
  m = fresh();
  m.boxes.entry(0).offset = 1 << 30;
  expect(m, "lie outside");
  m = fresh();
  m.boxes.entry(0).offset = UINT64_MAX;
  expect(m, "lie outside");
  m = fresh();
  AddTinyBox(1, Box({3}, {2}), &m);
  expect(m, "outside the tensor");
  m = fresh();
  m.rank = 2;
  expect(m, "rank 2 of 2");
  m = fresh();
  m.info.id.attempt = 0;
  expect(m, "attempt 0");
}

TEST(Manifest, RefusesAnotherOrder) {
  const Manifest good = AssembleAll(TinyRanks({7, 1, 1}, 3, TinyTensors())).value();
  EXPECT_TRUE(EncodeManifest(good).ok());
  Manifest m = good;
  m.files[0].rank = 2;
  EXPECT_THAT(EncodeManifest(m).status().message(), HasSubstr("file 1"));
  m = good;
  m.boxes.Add(good.boxes.entry(0), good.boxes.box(0));
  EXPECT_THAT(EncodeManifest(m).status().message(), HasSubstr("not behind"));
  m = good;
  m.trees.of_rank.pop_back();
  EXPECT_THAT(EncodeManifest(m).status().message(), HasSubstr("not each rank"));
}

TEST(Manifest, Keys) {
  const SaveId id{1000, 3, 2};
  EXPECT_EQ(AttemptPrefix(id), "attempts/000000001000-000003-0002/");
  EXPECT_EQ(RankManifestKey(id, 17), "attempts/000000001000-000003-0002/000017.hrckr");
  EXPECT_EQ(ManifestKey(id, {1, 2}),
            "manifests/000000001000-000003-0002-00000000000000010000000000000002.hrckm");
  FileEntry file;
  file.name = {1, 2};
  EXPECT_EQ(file.DataKey(), "data/00000000000000010000000000000002.safetensors");
  EXPECT_EQ(file.SumsKey(), "data/00000000000000010000000000000002.crc");
}

}  // namespace
}  // namespace headrace::checkpoint
