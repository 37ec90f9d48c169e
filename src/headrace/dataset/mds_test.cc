// MDS datasets in place: index.json, shards, compression, hashes, and every kind of bad input.
#include "headrace/dataset/mds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "headrace/dataset/content_hash.h"
#include "headrace/dataset/dataset.h"
#include "headrace/dataset/index_build.h"
#include "headrace/dataset/testing/dump.h"
#include "headrace/dataset/testing/mds_folder.h"
#include "headrace/dataset/testing/tar_maker.h"
#include "headrace/dataset/verify.h"
#include "headrace/env/testing/memory_file_system.h"

namespace headrace::dataset {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Rows = MdsFolder::Rows;

const std::vector<MdsTestColumn> kColumns = {{"image", "jpeg"}, {"label", "int", 8}};

template <typename T>
std::string Raw(T value) {
  std::string bytes(sizeof value, '\0');
  StoreLittle(bytes.data(), value);
  return bytes;
}

std::string Npy(ElementType element, const std::vector<uint64_t>& dims, std::string_view elements) {
  ArrayForm form = ArrayForm::Make(element, dims).value();
  std::string npy(NpyBytes(form), '\0');
  Status made =
      WriteNpy(form, AsBytes(elements), {reinterpret_cast<std::byte*>(npy.data()), npy.size()});
  EXPECT_TRUE(made.ok()) << made.ToString();
  return npy;
}

std::string Hash(std::string_view algorithm, std::string_view bytes) {
  auto hash = ContentHash::Create(algorithm).value();
  hash->Update(AsBytes(bytes));
  return hash->Finish();
}

Rows LabelRows(int64_t first, int64_t count) {
  Rows rows;
  for (int64_t i = first; i < first + count; ++i)
    rows.push_back({fmt::format("picture {}", i), Raw(i)});
  return rows;
}

std::shared_ptr<const Dataset> Open(FileSystem* fs, const std::string& path,
                                    const OpenOptions& options = {}) {
  auto dataset = Dataset::Open(fs, path, options);
  EXPECT_TRUE(dataset.ok()) << dataset.status().ToString();
  return dataset.ok() ? *dataset : nullptr;
}

Status OpenStatus(FileSystem* fs, const std::string& path) {
  return Dataset::Open(fs, path, OpenOptions()).status();
}

Status ReadStatus(FileSystem* fs, const std::string& path, uint64_t sample = 0) {
  auto dataset = Dataset::Open(fs, path, OpenOptions());
  if (!dataset.ok()) return dataset.status();
  return SampleReader::Create(*dataset, {})->Read(sample, {}, Context()).status();
}

Result<IndexReport> Index(FileSystem* fs, const std::string& path, bool checksums = false) {
  IndexOptions options;
  options.build.checksums = checksums;
  return IndexDataset(fs, std::vector<std::string>{path}, options, Context());
}

std::map<std::string, FieldTexts> LabelSamples(size_t shard, int64_t first, int64_t count) {
  std::map<std::string, FieldTexts> samples;
  for (int64_t i = 0; i < count; ++i)
    samples[fmt::format("shard.{:05}.mds/{:08}", shard, i)] = {
        {"image", fmt::format("picture {}", first + i)},
        {"label", Npy(ElementType::kInt64, {}, Raw(first + i))}};
  return samples;
}

std::map<std::string, FieldTexts> TwoShards(MdsFolder* folder, const std::string& compression) {
  folder->Add(LabelRows(0, 3), compression);
  folder->Add(LabelRows(3, 2), compression);
  auto expected = LabelSamples(0, 0, 3);
  expected.merge(LabelSamples(1, 3, 2));
  return expected;
}

TEST(Mds, ReadsInPlaceAndIndexed) {
  for (const char* compression : {"", "zstd:7"}) {
    MemoryFileSystem fs;
    MdsFolder folder(&fs, "/d", kColumns);
    auto expected = TwoShards(&folder, compression);
    auto in_place = Open(&fs, "/d");
    EXPECT_EQ(in_place->kind(), "mds");
    EXPECT_THAT(in_place->fields(), ElementsAre("image", "label"));
    EXPECT_EQ(in_place->num_samples(), 5u);
    EXPECT_EQ(in_place->FindKey("shard.00001.mds/00000001").value(), 4u);
    EXPECT_EQ(ReadAll(in_place), expected);
    EXPECT_EQ(ReadAll(in_place), expected);
    EXPECT_EQ(ReadAllByField(Open(&fs, "/d/index.json")), expected);
    ASSERT_TRUE(Index(&fs, "/d").ok());
    auto indexed = Open(&fs, "/d");
    EXPECT_EQ(indexed->version(), in_place->version());
    EXPECT_EQ(ReadAll(indexed), expected);
    ASSERT_TRUE(Index(&fs, "/d", true).ok());
    auto checked = Open(&fs, "/d");
    EXPECT_TRUE(checked->Index(0).value()->fully_checksummed());
    EXPECT_EQ(ReadAll(checked), expected);
    for (size_t shard : {0, 1}) {
      EXPECT_TRUE(checked->CheckShard(shard, Context()).ok());
      EXPECT_TRUE(checked->CheckWholeShard(shard, Context()).ok());
    }
  }
}

TEST(Mds, OpensByIndexJsonAlone) {
  MemoryFileSystem fs;
  MdsFolder folder(&fs, "/d", kColumns);
  TwoShards(&folder, "");
  Put(&fs, "/d/shard.00001.mds", "not a shard");
  auto dataset = Open(&fs, "/d");
  auto reader = SampleReader::Create(dataset, {});
  EXPECT_TRUE(reader->Read(2, {}, Context()).ok());
  EXPECT_EQ(reader->Read(3, {}, Context()).status().code(), Code::kDataLoss);
}

TEST(Mds, AShardThatIsThereUnpackedIsReadSo) {
  MemoryFileSystem fs;
  MdsFolder folder(&fs, "/d", kColumns);
  folder.Add(LabelRows(0, 3), "zstd");
  Put(&fs, "/d/shard.00000.mds", MakeMdsShard(kColumns, LabelRows(0, 3)));
  Put(&fs, "/d/shard.00000.mds.packed", "nobody looks here");
  EXPECT_EQ(ReadAll(Open(&fs, "/d")), LabelSamples(0, 0, 3));
}

TEST(Mds, MemoryForUnpackedShardsIsBounded) {
  MemoryFileSystem fs;
  MdsFolder folder(&fs, "/d", kColumns);
  std::map<std::string, FieldTexts> expected;
  for (size_t i = 0; i < 5; ++i) {
    folder.Add(LabelRows(static_cast<int64_t>(10 * i), 10), "zstd");
    expected.merge(LabelSamples(i, static_cast<int64_t>(10 * i), 10));
  }
  // Less than a shard, and a little more than two.
  for (uint64_t limit : {uint64_t{1}, uint64_t{1100}}) {
    OpenOptions options;
    options.max_unpacked_bytes = limit;
    auto dataset = Open(&fs, "/d", options);
    EXPECT_EQ(ReadAll(dataset), expected);
    EXPECT_EQ(ReadAll(dataset), expected);
  }
}

TEST(Mds, GivesEveryEncoding) {
  MemoryFileSystem fs;
  const std::string pil = Raw<uint32_t>(2) + Raw<uint32_t>(1) + Raw<uint32_t>(3) + "RGBabcdef";
  const std::string dynamic = Raw<uint8_t>(17) + Raw<uint8_t>(2 << 2 | 1) + Raw<uint16_t>(1) +
                              Raw<uint16_t>(2) + Raw<int16_t>(-1) + Raw<int16_t>(500);
  std::vector<MdsTestColumn> columns = {{"a_bytes", "bytes"},
                                        {"b_str", "str"},
                                        {"c_json", "json"},
                                        {"d_png", "png"},
                                        {"e_f16", "float16", 2},
                                        {"f_u8", "uint8", 1},
                                        {"g_nd", "ndarray"},
                                        {"h_nd", "ndarray:float32"},
                                        {"i_nd", "ndarray:uint8:2,2", 4},
                                        {"j_pil", "pil"},
                                        {"k_int", "str_int"},
                                        {"l_list", "list[jpeg]"}};
  MdsFolder folder(&fs, "/d", columns);
  folder.Add({{"\1\2", "text", "{}", "", Raw<uint16_t>(0x3c00), "\7", dynamic,
               Raw<uint8_t>(1 << 2) + Raw<uint8_t>(1) + Raw(1.5f), "wxyz", pil, "-12",
               std::string(8, '\0')}});
  FieldTexts expected = {
      {"a_bytes", "\1\2"},
      {"b_str", "text"},
      {"c_json", "{}"},
      {"d_png", ""},
      {"e_f16", Npy(ElementType::kFloat16, {}, Raw<uint16_t>(0x3c00))},
      {"f_u8", Npy(ElementType::kUint8, {}, "\7")},
      {"g_nd", Npy(ElementType::kInt16, {1, 2}, Raw<int16_t>(-1) + Raw<int16_t>(500))},
      {"h_nd", Npy(ElementType::kFloat32, {1}, Raw(1.5f))},
      {"i_nd", Npy(ElementType::kUint8, {2, 2}, "wxyz")},
      {"j_pil", Npy(ElementType::kUint8, {1, 2, 3}, "abcdef")},
      {"k_int", "-12"},
      {"l_list", std::string(8, '\0')},
  };
  EXPECT_EQ(ReadAll(Open(&fs, "/d")).begin()->second, expected);
}

TEST(Mds, FoldersOfOthersAreNotTakenForIt) {
  MemoryFileSystem fs;
  Put(&fs, "/f/index.json", R"({"chunks": []})");
  Put(&fs, "/f/cat/1.jpg", "x");
  EXPECT_EQ(Open(&fs, "/f")->kind(), "folder");
  Put(&fs, "/g/index.json", R"({"version": 2, "shards": [)");
  EXPECT_THAT(OpenStatus(&fs, "/g").ToString(), HasSubstr("/g/index.json"));
}

TEST(Mds, RefusesByNameWhatItCannotRead) {
  for (const auto& [encoding, size, reason] :
       std::vector<std::tuple<std::string, std::optional<uint64_t>, std::string>>{
           {"pkl", {}, "pickled object can run any code"},
           {"mine", {}, "'mine' is not known"},
           {"ndarray:complex64", {}, "complex64"},
           {"ndarray:uint8:2,x", {}, "shape"},
           {"ndarray:uint8:2,0", {}, "shape"},
           {"int", 4, "its size is 4 bytes"},
           {"ndarray:uint16:2,3", 6, "has 12"}}) {
    MemoryFileSystem fs;
    MdsFolder folder(&fs, "/d", {{"x", encoding, size}});
    folder.Add({{std::string(size.value_or(1), 'v')}});
    Status status = OpenStatus(&fs, "/d");
    EXPECT_TRUE(status.code() == Code::kUnimplemented || status.code() == Code::kInvalidArgument);
    EXPECT_THAT(status.ToString(), HasSubstr("/d/index.json: shards[0]: column 'x'"));
    EXPECT_THAT(status.ToString(), HasSubstr(reason));
  }
  MemoryFileSystem fs;
  MdsFolder folder(&fs, "/d", kColumns);
  folder.Add(LabelRows(0, 1), "lzma");
  EXPECT_THAT(OpenStatus(&fs, "/d").ToString(), HasSubstr("'lzma' is not known"));
}

TEST(Mds, DamagedIndexJsonNamesTheMember) {
  MdsTestShard shard{.samples = 1, .bytes = 100};
  const std::string good = MakeMdsIndex(kColumns, {shard});
  auto broken = [&](std::string_view from, std::string_view to) {
    std::string text = good;
    size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
    return MdsIndex::FromJson(text, "index.json").status().ToString();
  };
  EXPECT_TRUE(MdsIndex::FromJson(good, "index.json").ok());
  EXPECT_THAT(broken("\"samples\"", "\"simples\""), HasSubstr("samples"));
  EXPECT_THAT(broken("\"basename\": \"shard", "\"basename\": \"../shard"), HasSubstr("'..'"));
  EXPECT_THAT(broken("\"basename\": \"shard", "\"basename\": \"/shard"), HasSubstr("absolute"));
  EXPECT_THAT(broken("\"bytes\": 100", "\"bytes\": -1"), HasSubstr("bytes"));
  EXPECT_THAT(broken("\"bytes\": 100", "\"bytes\": 5000000000"), HasSubstr("more than a shard"));
  EXPECT_THAT(broken("\"mds\"", "\"csv\""), HasSubstr("'csv' is not supported"));
  EXPECT_THAT(broken("\"version\": 2, \"samples\"", "\"version\": 1, \"samples\""),
              HasSubstr("version 1"));
  EXPECT_THAT(broken("[\"image\", \"label\"]", "[\"image\"]"), HasSubstr("column_names has 1"));
  EXPECT_THAT(broken("[\"image\", \"label\"]", "[\"image\", \"image\"]"),
              HasSubstr("column_names[1]"));
  EXPECT_THAT(broken("\"raw_data\"", "\"raw\""), HasSubstr("raw_data"));
}

TEST(Mds, AMissingShardIsToldAtOnce) {
  for (const char* compression : {"", "zstd"}) {
    MemoryFileSystem fs;
    MdsFolder folder(&fs, "/d", kColumns);
    TwoShards(&folder, compression);
    ASSERT_TRUE(Index(&fs, "/d").ok());
    ASSERT_TRUE(fs.Remove(*compression ? "/d/shard.00001.mds.packed" : "/d/shard.00001.mds").ok());
    for (bool with_manifest : {true, false}) {
      Status status = OpenStatus(&fs, "/d");
      EXPECT_EQ(status.code(), Code::kFailedPrecondition);
      EXPECT_THAT(status.ToString(), HasSubstr("/d/shard.00001.mds"));
      if (with_manifest) {
        ASSERT_TRUE(fs.Remove("/d/headrace.json").ok());
      }
    }
  }
}

TEST(Mds, ADamagedSampleIsRefusedOrLeftOut) {
  MemoryFileSystem fs;
  MdsFolder folder(&fs, "/d", kColumns);
  folder.Add(LabelRows(0, 3));
  const std::string whole = Open(&fs, "/d")->version();
  std::string bytes = folder.ShardBytes(0);
  bytes[bytes.find("picture 1") - 4] = '\x7f';  // the size of its image
  Put(&fs, "/d/shard.00000.mds", bytes);
  std::vector<std::string> paths = {"/d"};
  Status refused = IndexDataset(&fs, paths, {}, Context()).status();
  EXPECT_EQ(refused.code(), Code::kDataLoss);
  EXPECT_EQ(refused.location().key, "shard.00000.mds/00000001");
  EXPECT_THAT(refused.ToString(), HasSubstr("--allow-damage"));
  for (bool checksums : {false, true}) {
    IndexOptions options;
    options.build.allow_damage = true;
    options.build.checksums = checksums;
    auto report = IndexDataset(&fs, paths, options, Context());
    ASSERT_TRUE(report.ok()) << report.status().ToString();
    EXPECT_EQ(report->shards[0].scan.num_damaged, 1u);
    EXPECT_THAT(report->shards[0].scan.damage[0].reason, HasSubstr("sample 1: "));
    auto dataset = Open(&fs, "/d");
    ASSERT_NE(dataset, nullptr);
    ASSERT_EQ(dataset->num_samples(), 2u);
    EXPECT_NE(dataset->version(), whole) << "other samples, another version";
    auto reader = SampleReader::Create(dataset, {});
    EXPECT_EQ(reader->Read(0, {}, Context())->key, "shard.00000.mds/00000000");
    auto last = reader->Read(1, {}, Context());
    ASSERT_TRUE(last.ok()) << last.status().ToString();
    EXPECT_EQ(last->key, "shard.00000.mds/00000002");
    EXPECT_EQ(AsText(last->Find(*dataset->FindField("image"))->data), "picture 2");
  }
}

TEST(Mds, WrongSizesNameSampleAndColumn) {
  MemoryFileSystem fs;
  MdsFolder folder(&fs, "/d", kColumns);
  folder.Add(LabelRows(0, 3));
  const std::string good = folder.ShardBytes(0);
  const size_t first = good.find("picture 0") - 4;
  struct Case {
    size_t at;
    char byte;
    const char* reason;
  };
  for (const Case& c : {Case{0, 4, "another number of samples"},
                        {4, 0, "sample 0 would lie"},
                        {17, 0x7f, "sample 2 would lie"},
                        {first, 8, "belong to no column"},
                        {first, 100, "a value of 100 bytes"}}) {
    std::string bytes = good;
    bytes[c.at] = c.byte;
    Put(&fs, "/d/shard.00000.mds", bytes);
    Status status = ReadStatus(&fs, "/d");
    EXPECT_EQ(status.code(), Code::kDataLoss);
    EXPECT_THAT(status.ToString(), HasSubstr(c.reason));
  }
  for (size_t cut : {size_t{0}, size_t{3}, size_t{10}, good.size() - 1}) {
    Put(&fs, "/d/shard.00000.mds", good.substr(0, cut));
    Status status = ReadStatus(&fs, "/d");
    EXPECT_EQ(status.code(), Code::kDataLoss);
    EXPECT_THAT(status.ToString(), HasSubstr("cut short"));
  }
}

TEST(Mds, WrongArraysNameSampleAndColumn) {
  const std::string huge =
      Raw<uint8_t>(8) + Raw<uint8_t>(2 << 2 | 3) + Raw(UINT64_MAX) + Raw<uint64_t>(2) + "x";
  for (const auto& [encoding, value, reason] :
       std::vector<std::tuple<std::string, std::string, std::string>>{
           {"ndarray", "", "ends after 0 bytes"},
           {"ndarray", "\x05", "unknown type 5"},
           {"ndarray", "\x08\x08\x01", "ends after 1 bytes"},
           {"ndarray", "\x08\x04\x03xx", "needs 3"},
           {"ndarray", huge, "2^40 elements"},
           {"ndarray:float64", "\x04\x01xxxxxxxxx", "needs 8"},
           {"pil", "\x01", "ends after 1 bytes"},
           {"pil", std::string("\1\0\0\0\1\0\0\0\1\0\0\0", 12) + "1x", "mode '1'"},
           {"pil", std::string("\1\0\0\0\1\0\0\0\1\0\0\0", 12) + "Lxx", "needs 1"},
           {"pil", std::string("\1\0\0\0\1\0\0\0\xff\0\0\0", 12) + "L", "mode is damaged"}}) {
    MemoryFileSystem fs;
    MdsFolder folder(&fs, "/d", {{"x", encoding}});
    folder.Add({{value}});
    Status status = ReadStatus(&fs, "/d");
    EXPECT_THAT(status.ToString(), HasSubstr(reason)) << encoding;
    EXPECT_EQ(status.location().key, "shard.00000.mds/00000000");
    EXPECT_EQ(status.location().field, "x");
  }
}

TEST(Mds, ADamagedPackedShardIsTold) {
  MemoryFileSystem fs;
  MdsFolder folder(&fs, "/d", kColumns);
  MdsTestShard& shard = folder.Add(LabelRows(0, 3), "zstd");
  std::string packed = fs.ReadWhole("/d/shard.00000.mds.packed", 1 << 20).value();
  Put(&fs, "/d/shard.00000.mds.packed", packed.substr(1));
  EXPECT_THAT(ReadStatus(&fs, "/d").ToString(), HasSubstr("cut short"));
  packed[0] ^= 1;
  Put(&fs, "/d/shard.00000.mds.packed", packed);
  EXPECT_THAT(ReadStatus(&fs, "/d").ToString(), HasSubstr("cannot be unpacked"));
  packed = ZstdPacked(MakeMdsShard(kColumns, LabelRows(0, 4)));
  Put(&fs, "/d/shard.00000.mds.packed", packed);
  shard.packed_bytes = packed.size();
  folder.WriteIndex();
  EXPECT_EQ(ReadStatus(&fs, "/d").code(), Code::kDataLoss);
}

TEST(Mds, HashesAreCheckedWhenAShardIsUnpackedAndByVerify) {
  MemoryFileSystem fs;
  MdsFolder folder(&fs, "/d", kColumns);
  const std::string bytes = MakeMdsShard(kColumns, LabelRows(0, 3));
  MdsTestShard& shard = folder.Add(LabelRows(0, 3), "zstd");
  shard.hashes.Set("sha1", Hash("sha1", bytes)).Set("xxh64", Hash("xxh64", bytes));
  shard.hashes.Set("unheard_of", "00");
  folder.WriteIndex();
  EXPECT_TRUE(ReadStatus(&fs, "/d").ok());
  shard.hashes.Set("xxh64", "0123456789abcdef");
  folder.WriteIndex();
  Status status = ReadStatus(&fs, "/d");
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_THAT(status.ToString(), HasSubstr("xxh64"));
  shard.hashes = Json::MakeObject();
  shard.packed_hashes.Set("md5", "no such digest");
  folder.WriteIndex();
  EXPECT_THAT(ReadStatus(&fs, "/d").ToString(), HasSubstr("md5"));
}

TEST(Mds, VerifyChecksHashesOfPlainShards) {
  MemoryFileSystem fs;
  MdsFolder folder(&fs, "/d", kColumns);
  MdsTestShard& shard = folder.Add(LabelRows(0, 3));
  shard.hashes.Set("sha1", Hash("sha1", folder.ShardBytes(0)));
  folder.WriteIndex();
  auto good = Verify(Open(&fs, "/d"), {}, Context()).value();
  EXPECT_EQ(good.num_faults, 0u);
  EXPECT_EQ(good.shards[0].unverified, 6u);
  std::string bytes = folder.ShardBytes(0);
  bytes[bytes.find("picture 1")] ^= 1;
  Put(&fs, "/d/shard.00000.mds", bytes);
  EXPECT_TRUE(ReadStatus(&fs, "/d").ok());  // reading does not hash whole files
  auto bad = Verify(Open(&fs, "/d"), {}, Context()).value();
  ASSERT_EQ(bad.num_faults, 1u);
  EXPECT_THAT(bad.faults[0].ToString(), HasSubstr("sha1"));
}

TEST(Mds, AnIndexOfOtherShardsIsNotUsed) {
  MemoryFileSystem fs;
  MdsFolder folder(&fs, "/d", kColumns);
  folder.Add(LabelRows(0, 3));
  ASSERT_TRUE(Index(&fs, "/d").ok());
  folder.Add(LabelRows(3, 1));
  Status status = OpenStatus(&fs, "/d");
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_THAT(status.ToString(), HasSubstr("headrace index"));
  ASSERT_TRUE(fs.Remove("/d/index.json").ok());
  EXPECT_EQ(OpenStatus(&fs, "/d").code(), Code::kFailedPrecondition);
}

TEST(Mds, TheVersionStandsForContentNotForFormatting) {
  MemoryFileSystem fs;
  MdsFolder folder(&fs, "/d", kColumns);
  folder.Add(LabelRows(0, 3));
  const std::string version = Open(&fs, "/d")->version();
  std::string text = fs.ReadWhole("/d/index.json", 1 << 20).value();
  Put(&fs, "/d/index.json", Json::Parse(text).value().Dump(2));
  EXPECT_EQ(Open(&fs, "/d")->version(), version);
  MdsFolder other(&fs, "/e", kColumns);
  other.Add(LabelRows(0, 4));
  EXPECT_NE(Open(&fs, "/e")->version(), version);
}

TEST(ContentHash, IsWhatTheOthersCompute) {
  // From Python's hashlib and xxhash, of b"abc".
  EXPECT_EQ(Hash("md5", "abc"), "900150983cd24fb0d6963f7d28e17f72");
  EXPECT_EQ(Hash("sha1", "abc"), "a9993e364706816aba3e25717850c26c9cd0d89d");
  EXPECT_EQ(Hash("sha256", "abc"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(Hash("xxh32", "abc"), "32d153ff");
  EXPECT_EQ(Hash("xxh64", "abc"), "44bc2cf5ad770999");
  EXPECT_EQ(Hash("xxh3_64", "abc"), "78af5f94892f3950");
  EXPECT_EQ(Hash("xxh128", "abc"), "06b05ab6733a618578af5f94892f3950");
  EXPECT_EQ(Hash("blake2s", "abc"),
            "508c5e8c327c14e2e1a72ba34eeb452f37458b209ed63a294d999b4c86675982");
  EXPECT_EQ(ContentHash::Create("crc99").status().code(), Code::kUnimplemented);
}

TEST(Unpack, RefusesNamesItDoesNotKnow) {
  EXPECT_EQ(ParseCompression("zstd:19").value(), Compression::kZstd);
  EXPECT_EQ(ParseCompression("br").value(), Compression::kBrotli);
  EXPECT_EQ(ParseCompression("lz4").status().code(), Code::kUnimplemented);
}

TEST(Unpack, DamagedBytesAreToldInEachFormat) {
  std::string out(100, '\0');
  MutableBytes room(reinterpret_cast<std::byte*>(out.data()), out.size());
  for (Compression compression : {Compression::kNone, Compression::kZstd, Compression::kGzip,
                                  Compression::kBzip2, Compression::kSnappy, Compression::kBrotli})
    for (std::string_view packed : {std::string_view(), std::string_view("\xff\xff\xff garbage")})
      EXPECT_EQ(Unpack(compression, AsBytes(packed), room).code(), Code::kDataLoss);
}

RC_GTEST_PROP(MdsProperty, WhatIsWrittenIsRead, ()) {
  MemoryFileSystem fs;
  const std::vector<MdsTestColumn> columns = {
      {"a", "bytes"}, {"b", "int", 8}, {"c", "str"}, {"d", "ndarray:uint16"}, {"e", "uint8", 1}};
  MdsFolder folder(&fs, "/d", columns);
  std::map<std::string, FieldTexts> expected;
  const size_t num_shards = *rc::gen::inRange<size_t>(1, 4);
  for (size_t s = 0; s < num_shards; ++s) {
    Rows rows;
    const size_t num_rows = *rc::gen::inRange<size_t>(s == 0 ? 1 : 0, 5);
    for (size_t i = 0; i < num_rows; ++i) {
      const auto bytes = *rc::gen::arbitrary<std::string>();
      const auto text = *rc::gen::arbitrary<std::string>();
      const auto number = Raw(*rc::gen::arbitrary<int64_t>());
      const auto small = Raw(*rc::gen::arbitrary<uint8_t>());
      const auto count = *rc::gen::inRange<uint8_t>(1, 200);
      const auto elements =
          *rc::gen::container<std::string>(2 * size_t{count}, rc::gen::arbitrary<char>());
      rows.push_back(
          {bytes, number, text, std::string("\x04") + static_cast<char>(count) + elements, small});
      expected[fmt::format("shard.{:05}.mds/{:08}", s, i)] = {
          {"a", bytes},
          {"b", Npy(ElementType::kInt64, {}, number)},
          {"c", text},
          {"d", Npy(ElementType::kUint16, {count}, elements)},
          {"e", Npy(ElementType::kUint8, {}, small)}};
    }
    folder.Add(rows, *rc::gen::arbitrary<bool>() ? "zstd" : "");
  }
  auto dataset = Open(&fs, "/d");
  RC_ASSERT(dataset != nullptr);
  RC_ASSERT(ReadAll(dataset) == expected);
  RC_ASSERT(ReadAllByField(dataset) == expected);
}

}  // namespace
}  // namespace headrace::dataset
