// TFRecord in place: frames, messages, and every kind of bad input.
#include "headrace/dataset/tfrecord.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "headrace/base/testing/allocation_counter.h"
#include "headrace/codec/npy.h"
#include "headrace/dataset/array_form.h"
#include "headrace/dataset/dataset.h"
#include "headrace/dataset/index_build.h"
#include "headrace/dataset/testing/dump.h"
#include "headrace/dataset/testing/tar_maker.h"
#include "headrace/dataset/testing/tfrecord_maker.h"
#include "headrace/dataset/verify.h"
#include "headrace/env/testing/memory_file_system.h"
#include "headrace/env/testing/temporary_directory.h"

namespace headrace::dataset {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::shared_ptr<const Dataset> Open(FileSystem* fs, const std::string& path) {
  auto dataset = Dataset::Open(fs, path, OpenOptions());
  EXPECT_TRUE(dataset.ok()) << dataset.status().ToString();
  return dataset.ok() ? *dataset : nullptr;
}

Status OpenStatus(FileSystem* fs, const std::string& path) {
  return Dataset::Open(fs, path, OpenOptions()).status();
}

Result<IndexReport> Index(FileSystem* fs, const std::vector<std::string>& paths,
                          const BuildOptions& build = {}) {
  IndexOptions options;
  options.build = build;
  return IndexDataset(fs, paths, options, Context());
}

BuildOptions AllowDamage() {
  BuildOptions options;
  options.allow_damage = true;
  return options;
}

BuildOptions WithChecksums() {
  BuildOptions options;
  options.checksums = true;
  return options;
}

// The .npy array that readers get.
std::string Npy(ElementType element, uint64_t count, std::string_view elements) {
  ArrayForm form = ArrayForm::Make(element, {&count, 1}).value();
  std::string npy(NpyBytes(form), '\0');
  EXPECT_TRUE(
      WriteNpy(form, AsBytes(elements), {reinterpret_cast<std::byte*>(npy.data()), npy.size()})
          .ok());
  return npy;
}

std::string Int64Npy(const std::vector<int64_t>& values) {
  return Npy(ElementType::kInt64, values.size(),
             {reinterpret_cast<const char*>(values.data()), values.size() * 8});
}

std::string FloatNpy(const std::vector<float>& values) {
  return Npy(ElementType::kFloat32, values.size(),
             {reinterpret_cast<const char*>(values.data()), values.size() * 4});
}

std::string SmallExample(int64_t label) {
  return MakeExample({{"label", Int64Feature({label})},
                      {"image", BytesFeature({fmt::format("picture {}", label)})}});
}

std::string SmallFile(int64_t first, int64_t count) {
  std::vector<std::string> messages;
  for (int64_t i = 0; i < count; ++i) messages.push_back(SmallExample(first + i));
  return MakeTfRecord(messages);
}

std::map<std::string, FieldTexts> SmallSamples(const std::string& name, int64_t first,
                                               int64_t count) {
  std::map<std::string, FieldTexts> samples;
  for (int64_t i = 0; i < count; ++i)
    samples[fmt::format("{}/{:08}", name, i)] = {{"label", Int64Npy({first + i})},
                                                 {"image", fmt::format("picture {}", first + i)}};
  return samples;
}

TEST(TfRecordName, NamesThatSaySo) {
  for (const char* name : {"a.tfrecord", "a.tfrecords", "a.tfrec", "a.tfrecord-00000-of-00010",
                           "a.tfrecords-0-of-1", "a.tfrecord.gz", "a.tfrecord-00-of-10.gz"})
    EXPECT_TRUE(IsTfRecordName(name)) << name;
  for (const char* name : {"a.tar", "tfrecord", "a-00000-of-00010", "a.tfrecord-00000-of-",
                           "a.tfrecord-of-1", "a.tfrecord.idx", ""})
    EXPECT_FALSE(IsTfRecordName(name)) << name;
  EXPECT_TRUE(IsShardOfManyName("train-00000-of-01024"));
  EXPECT_FALSE(IsShardOfManyName("-00000-of-01024"));
  EXPECT_FALSE(IsShardOfManyName("train-00000-of-01024.json"));
}

TEST(TfRecordMask, IsTheOneOfTheFormat) {
  // CRC32C of "123456789" is e3069283; rotated right by 15 and added to the constant.
  EXPECT_EQ(MaskCrc32c(0xe3069283u), 0x2507c60du + 0xa282ead8u);
  for (uint32_t crc : {0u, 1u, 0xffffffffu, 0xa282ead8u, 0xe3069283u})
    EXPECT_EQ(UnmaskCrc32c(MaskCrc32c(crc)), crc);
}

TEST(TfRecord, ReadsFilesAndFoldersWithAndWithoutIndex) {
  MemoryFileSystem fs;
  Put(&fs, "/d/t.tfrecord-00000-of-00002", SmallFile(0, 3));
  Put(&fs, "/d/t.tfrecord-00001-of-00002", SmallFile(3, 2));
  Put(&fs, "/d/notes.txt", "not a shard");
  auto expected = SmallSamples("t.tfrecord-00000-of-00002", 0, 3);
  expected.merge(SmallSamples("t.tfrecord-00001-of-00002", 3, 2));
  auto in_place = Open(&fs, "/d");
  EXPECT_EQ(in_place->kind(), "tfrecord");
  EXPECT_THAT(in_place->fields(), ElementsAre("image", "label"));
  EXPECT_EQ(in_place->first_sample(1), 3u);
  EXPECT_EQ(in_place->FindKey("t.tfrecord-00001-of-00002/00000001").value(), 4u);
  EXPECT_EQ(ReadAll(in_place), expected);
  EXPECT_EQ(ReadAll(in_place), expected);  // now against what was learned
  EXPECT_EQ(ReadAllByField(Open(&fs, "/d")), expected);
  EXPECT_EQ(ReadAll(Open(&fs, "/d/t.tfrecord-00000-of-00002")),
            SmallSamples("t.tfrecord-00000-of-00002", 0, 3));

  ASSERT_TRUE(Index(&fs, {"/d"}).ok());
  auto indexed = Open(&fs, "/d");
  EXPECT_EQ(indexed->version(), in_place->version());
  EXPECT_EQ(ReadAll(indexed), expected);
  EXPECT_EQ(ReadAllByField(indexed), expected);

  ASSERT_TRUE(Index(&fs, {"/d"}, WithChecksums()).ok());
  auto checked = Open(&fs, "/d");
  EXPECT_TRUE(checked->Index(0).value()->fully_checksummed());
  EXPECT_EQ(ReadAll(checked), expected);
  EXPECT_EQ(ReadAllByField(checked), expected);
  EXPECT_EQ(ReadAll(checked, {.whole_records = true}), expected);
  EXPECT_EQ(ReadAll(checked, {.verify_checksums = false}), expected);
}

TEST(TfRecord, IsFoundByItsContentWhereTheNameDoesNotTell) {
  MemoryFileSystem fs;
  Put(&fs, "/d/train-00000-of-00002", SmallFile(0, 1));
  Put(&fs, "/d/train-00001-of-00002", SmallFile(1, 1));
  Put(&fs, "/one.bin", SmallFile(5, 2));
  EXPECT_EQ(Open(&fs, "/d")->num_samples(), 2u);
  EXPECT_EQ(ReadAll(Open(&fs, "/one.bin")), SmallSamples("one.bin", 5, 2));
  ASSERT_TRUE(Index(&fs, {"/one.bin"}).ok());
  Put(&fs, "/other/x-00000-of-00001.jpg", "a picture in a plain folder");
  EXPECT_EQ(Open(&fs, "/other")->kind(), "folder");
}

TEST(TfRecord, GivesEveryKindOfFeature) {
  MemoryFileSystem fs;
  Put(&fs, "/a.tfrecord",
      MakeTfRecord({MakeExample({
          {"ints", Int64Feature({0, 1, -1, 127, 128, INT64_MAX, INT64_MIN})},
          {"floats", FloatFeature({1.5f, -0.0f, 3e38f})},
          {"no_ints", Int64Feature({})},
          {"no_floats", FloatFeature({})},
          {"no_bytes", BytesFeature({})},
          {"empty", BytesFeature({""})},
          {"many", BytesFeature({"a", "", "ccc"})},
          {"nothing", ""},
      })}));
  auto dataset = Open(&fs, "/a.tfrecord");
  FieldTexts expected = {
      {"ints", Int64Npy({0, 1, -1, 127, 128, INT64_MAX, INT64_MIN})},
      {"floats", FloatNpy({1.5f, -0.0f, 3e38f})},
      {"no_ints", Int64Npy({})},
      {"no_floats", FloatNpy({})},
      {"empty", ""},
      {"many", "a"},
      {"many[1]", ""},
      {"many[2]", "ccc"},
  };
  EXPECT_EQ(ReadAll(dataset).at("a.tfrecord/00000000"), expected);
  EXPECT_EQ(ReadAllByField(Open(&fs, "/a.tfrecord")).at("a.tfrecord/00000000"), expected);
  auto npy = codec::ParseNpy(AsBytes(expected["ints"]));
  ASSERT_TRUE(npy.ok()) << npy.status().ToString();
  EXPECT_EQ(npy->type, codec::NpyType::kI64);
  EXPECT_EQ(npy->dims[0], 7u);
}

// What a protobuf parser accepts although no writer at hand makes it.
TEST(TfRecord, ReadsMessagesAsProtobufSays) {
  MemoryFileSystem fs;
  auto single = [](uint32_t tag, std::string_view raw) {
    return std::string(1, static_cast<char>(tag)).append(raw);
  };
  std::string unpacked = single(1 << 3, "\x05") + single(1 << 3, "\x06");
  std::string two_packed =
      ProtoField(1, PackedVarints({1, 300})) + ProtoField(1, PackedVarints({2}));
  std::string lone_float = single(1 << 3 | 5, std::string_view("\0\0\x80\x3f", 4));
  std::string unknown = single(9 << 3, "\x01") + single(10 << 3 | 1, "12345678") +
                        single(11 << 3 | 5, "1234") + ProtoField(12, "skipped");
  std::string value_first =
      ProtoField(1, ProtoField(2, Int64Feature({7})) + unknown + ProtoField(1, "value_first"));
  std::string kinds =
      ProtoField(1, ProtoField(1, "kinds") + ProtoField(2, FloatFeature({1}) + Int64Feature({8})));
  std::string joined = ProtoField(1, ProtoField(1, "joined") + ProtoField(2, Int64Feature({1})) +
                                         ProtoField(2, Int64Feature({2})));
  std::string map = MapEntry("twice", Int64Feature({1})) + value_first + kinds + joined +
                    MapEntry("unpacked", ProtoField(3, unpacked)) +
                    MapEntry("two_packed", ProtoField(3, two_packed)) +
                    MapEntry("lone_float", ProtoField(2, lone_float + unknown)) + unknown;
  Put(&fs, "/a.tfrecord",
      MakeTfRecord({ProtoField(1, map) + unknown +
                    ProtoField(1, MapEntry("twice", BytesFeature({"last wins"})))}));
  FieldTexts expected = {{"twice", "last wins"},         {"value_first", Int64Npy({7})},
                         {"kinds", Int64Npy({8})},       {"joined", Int64Npy({1, 2})},
                         {"unpacked", Int64Npy({5, 6})}, {"two_packed", Int64Npy({1, 300, 2})},
                         {"lone_float", FloatNpy({1})}};
  EXPECT_EQ(ReadAll(Open(&fs, "/a.tfrecord")).begin()->second, expected);
}

TEST(TfRecord, AnEmptyMessageIsASampleWithoutFields) {
  MemoryFileSystem fs;
  Put(&fs, "/a.tfrecord", MakeTfRecord({"", SmallExample(1)}));
  auto dataset = Open(&fs, "/a.tfrecord");
  EXPECT_EQ(dataset->num_samples(), 2u);
  EXPECT_TRUE(ReadAll(dataset, {.whole_records = true}).begin()->second.empty());
  Put(&fs, "/d/a.tfrecord", "");
  EXPECT_THAT(OpenStatus(&fs, "/d").ToString(), HasSubstr("no samples in /d"));
  Put(&fs, "/d/b.tfrecord", SmallFile(0, 1));
  EXPECT_EQ(Open(&fs, "/d")->num_samples(), 1u);
}

// --- bad input ---

TEST(TfRecord, RefusesWhatIsCompressedOrNone) {
  MemoryFileSystem fs;
  Put(&fs, "/a.tfrecord.gz", "\x1f\x8b\x08 and so on");
  Status gzip = OpenStatus(&fs, "/a.tfrecord.gz");
  EXPECT_EQ(gzip.code(), Code::kUnimplemented);
  EXPECT_THAT(gzip.ToString(), HasSubstr("gunzip"));
  Put(&fs, "/z.tfrecord", "\x78\x9c and so on, as zlib does");
  EXPECT_THAT(OpenStatus(&fs, "/z.tfrecord").ToString(), HasSubstr("zlib"));
  Put(&fs, "/n.tfrecord", "something else altogether");
  Status none = OpenStatus(&fs, "/n.tfrecord");
  EXPECT_EQ(none.code(), Code::kDataLoss);
  EXPECT_THAT(none.ToString(), HasSubstr("/n.tfrecord is not a TFRecord file"));
}

TEST(TfRecord, ACutFileNamesTheOffset) {
  MemoryFileSystem fs;
  const std::string whole = SmallFile(0, 3);
  const size_t third = 2 * whole.size() / 3;  // records of equal size
  for (size_t cut : {third + 5, third + 14, whole.size() - 1}) {
    Put(&fs, "/a.tfrecord", whole.substr(0, cut));
    Status status = OpenStatus(&fs, "/a.tfrecord");
    EXPECT_EQ(status.code(), Code::kDataLoss);
    EXPECT_EQ(status.location().offset, third);
    EXPECT_THAT(status.ToString(), HasSubstr("--allow-damage"));
  }
  auto report = Index(&fs, {"/a.tfrecord"}, AllowDamage());
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  EXPECT_EQ(report->shards[0].scan.num_damaged, 1u);
  EXPECT_EQ(ReadAll(Open(&fs, "/")), SmallSamples("a.tfrecord", 0, 2));
}

TEST(TfRecord, ADamagedLengthCostsTheRecordsUpToTheNextGoodOne) {
  MemoryFileSystem fs;
  std::string bytes = SmallFile(0, 4);
  const size_t record = bytes.size() / 4;
  bytes[record] ^= 0x40;
  Put(&fs, "/a.tfrecord", bytes);
  Status status = OpenStatus(&fs, "/a.tfrecord");
  EXPECT_EQ(status.location().offset, record);
  EXPECT_THAT(status.ToString(), HasSubstr("length"));
  auto report = Index(&fs, {"/a.tfrecord"}, AllowDamage());
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  ASSERT_EQ(report->shards[0].scan.damage.size(), 1u);
  EXPECT_EQ(report->shards[0].scan.damage[0].resumed_at, 2 * record);
  auto left = ReadAll(Open(&fs, "/"));
  EXPECT_EQ(left.size(), 3u);
  EXPECT_EQ(left["a.tfrecord/00000001"]["image"], "picture 2");
}

TEST(TfRecord, DamagedDataIsFoundWhenItIsReadAndCostsItsSample) {
  MemoryFileSystem fs;
  std::string bytes = SmallFile(0, 3);
  bytes[bytes.find("picture 1") + 3] ^= 1;
  Put(&fs, "/a.tfrecord", bytes);
  auto dataset = Open(&fs, "/a.tfrecord");
  const FieldId image = dataset->FindField("image").value();
  auto reader = SampleReader::Create(dataset, {});
  EXPECT_TRUE(reader->Read(0, {}, Context()).ok());
  EXPECT_TRUE(reader->Read(2, {}, Context()).ok());
  // Its label is not hit, but nothing tells that before the record was checked.
  for (int i = 0; i < 2; ++i) {
    Status status = reader->Read(1, std::span(&image, 1), Context()).status();
    EXPECT_EQ(status.code(), Code::kDataLoss);
    EXPECT_EQ(status.location().key, "a.tfrecord/00000001");
    EXPECT_EQ(status.location().file, "a.tfrecord");
    EXPECT_EQ(status.location().offset, bytes.size() / 3 + kTfHeaderBytes);
    auto view = reader->Locate(1);
    std::string out(view->entries[0].length, '\0');
    EXPECT_EQ(reader
                  ->ReadField(view->entries[0],
                              {reinterpret_cast<std::byte*>(out.data()), out.size()}, Context())
                  .code(),
              Code::kDataLoss);
  }
  EXPECT_EQ(Index(&fs, {"/a.tfrecord"}, WithChecksums()).status().location().key,
            "a.tfrecord/00000001");
  BuildOptions options = WithChecksums();
  options.allow_damage = true;
  ASSERT_TRUE(Index(&fs, {"/a.tfrecord"}, options).ok());
  auto indexed = Open(&fs, "/");
  reader = SampleReader::Create(indexed, {});
  EXPECT_TRUE(reader->Read(0, {}, Context()).ok());
  EXPECT_EQ(reader->Read(1, {}, Context()).status().code(), Code::kDataLoss);
}

TEST(TfRecord, ADamagedRecordThatCannotBeParsedIsLeftOut) {
  MemoryFileSystem fs;
  std::string bytes = SmallFile(0, 3);
  bytes[bytes.size() / 3 + kTfHeaderBytes + 1] ^= 0x7f;  // a length inside the message
  Put(&fs, "/a.tfrecord", bytes);
  EXPECT_THAT(OpenStatus(&fs, "/a.tfrecord").ToString(), HasSubstr("checksum"));
  auto report = Index(&fs, {"/a.tfrecord"}, AllowDamage());
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  EXPECT_EQ(report->shards[0].scan.num_damaged, 1u);
  auto left = ReadAll(Open(&fs, "/"));
  EXPECT_EQ(left.size(), 2u);
  EXPECT_EQ(left.count("a.tfrecord/00000002"), 1u);  // numbers stay
}

// One flipped bit makes an unknown field of all features: the record then says nothing, in good
// form.
TEST(TfRecord, DamageThatHidesAllFeaturesIsFound) {
  MemoryFileSystem fs;
  std::string bytes = SmallFile(0, 3);
  bytes[bytes.size() / 3 + kTfHeaderBytes] ^= 96;
  Put(&fs, "/a.tfrecord", bytes);
  EXPECT_THAT(OpenStatus(&fs, "/a.tfrecord").ToString(), HasSubstr("checksum"));
  // With a name that was hit, the sample seems to lack the field.
  bytes = SmallFile(0, 3);
  bytes[bytes.find("label")] ^= 1;
  Put(&fs, "/a.tfrecord", bytes);
  auto dataset = Open(&fs, "/a.tfrecord");
  auto reader = SampleReader::Create(dataset, {});
  const FieldId label = dataset->FindField("label").value();
  EXPECT_EQ(reader->Read(0, std::span(&label, 1), Context()).status().code(), Code::kDataLoss);
  EXPECT_TRUE(reader->Read(1, std::span(&label, 1), Context()).ok());
}

TEST(TfRecord, ARecordThatIsNoExampleSaysWhereAndWhy) {
  MemoryFileSystem fs;
  const std::string group(1, static_cast<char>(1 << 3 | 3));
  for (const auto& [message, reason] : std::vector<std::pair<std::string, std::string>>{
           {"not a message", "offset"},
           {ProtoField(1, group), "group"},
           {ProtoField(1, ProtoField(1, ProtoField(2, Int64Feature({1})))), "without a name"},
           {MakeExample({{"f", ProtoField(2, ProtoField(1, "12345"))}}), "multiple of 4"},
           {MakeExample({{"i", ProtoField(3, ProtoField(1, "\xff"))}}), "cut off"},
           {MakeExample({{"i", ProtoField(3, ProtoField(1, std::string(11, '\xff')))}}),
            "more than 10 bytes"},
           {std::string("\0\0", 2), "number of a field"}}) {
    Put(&fs, "/a.tfrecord", MakeTfRecord({SmallExample(1), message}));
    Status status = OpenStatus(&fs, "/a.tfrecord");
    EXPECT_TRUE(status.code() == Code::kInvalidArgument || status.code() == Code::kUnimplemented);
    EXPECT_THAT(status.ToString(), HasSubstr("record 1 of /a.tfrecord is no tf.train.Example"));
    EXPECT_THAT(status.ToString(), HasSubstr(reason));
    auto report = Index(&fs, {"/a.tfrecord"}, AllowDamage());
    ASSERT_TRUE(report.ok()) << report.status().ToString();
    EXPECT_EQ(report->shards[0].num_skipped, 1u);
    EXPECT_EQ(report->shards[0].first_skipped, "a.tfrecord/00000001");
    ASSERT_TRUE(fs.Remove("/headrace.json").ok());
    ASSERT_TRUE(fs.Remove("/a.tfrecord.hridx").ok());
  }
}

TEST(TfRecord, KindsAreNotMixed) {
  MemoryFileSystem fs;
  Put(&fs, "/a.tfrecord", SmallFile(0, 1));
  Put(&fs, "/b.tar", MakeTar(MakeSamples("k", 1)));
  EXPECT_THAT(Index(&fs, {"/a.tfrecord", "/b.tar"}).status().ToString(),
              HasSubstr("different kinds"));
}

TEST(TfRecord, AShardThatChangedIsNotRead) {
  MemoryFileSystem fs;
  Put(&fs, "/a.tfrecord", SmallFile(0, 3));
  ASSERT_TRUE(Index(&fs, {"/a.tfrecord"}).ok());
  Put(&fs, "/a.tfrecord", SmallFile(4, 3));
  auto reader = SampleReader::Create(Open(&fs, "/"), {});
  EXPECT_EQ(reader->Read(0, {}, Context()).status().code(), Code::kFailedPrecondition);
  // A byte flipped near the start is damage of that sample, not another shard.
  std::string bytes = SmallFile(0, 3);
  bytes[bytes.find("picture 0")] ^= 1;
  Put(&fs, "/a.tfrecord", bytes);
  reader = SampleReader::Create(Open(&fs, "/"), {});
  EXPECT_EQ(reader->Read(0, {}, Context()).status().code(), Code::kDataLoss);
  EXPECT_TRUE(reader->Read(1, {}, Context()).ok());
}

TEST(TfRecord, VerifyFindsDamageInsideAndAroundRecords) {
  MemoryFileSystem fs;
  const std::string good = SmallFile(0, 3);
  Put(&fs, "/a.tfrecord", good);
  auto verdict = [&] {
    auto report = Verify(Open(&fs, "/"), {}, Context());
    EXPECT_TRUE(report.ok()) << report.status().ToString();
    return report->shards[0];
  };
  for (const BuildOptions& build : {BuildOptions(), WithChecksums()}) {
    Put(&fs, "/a.tfrecord", good);
    ASSERT_TRUE(Index(&fs, {"/a.tfrecord"}, build).ok());
    EXPECT_EQ(verdict().checked, 6u);
    EXPECT_EQ(verdict().damaged, 0u);
    std::string bytes = good;
    bytes[bytes.find("image")] ^= 1;  // a name: covered by the record, by no field
    Put(&fs, "/a.tfrecord", bytes);
    EXPECT_EQ(verdict().damaged, 1u);
    EXPECT_EQ(verdict().checked, 4u);
  }
  std::string bytes = good;
  bytes[good.size() / 3] ^= 1;  // a length: covered by the file's checksum only
  Put(&fs, "/a.tfrecord", bytes);
  EXPECT_EQ(verdict().damaged, 1u);
}

TEST(TfRecord, ReadsOnlyWhatIsWantedOnceItIsChecked) {
  MemoryFileSystem fs;
  Put(&fs, "/a.tfrecord",
      MakeTfRecord({MakeExample(
          {{"image", BytesFeature({std::string(200'000, 'x')})}, {"label", Int64Feature({3})}})}));
  auto dataset = Open(&fs, "/a.tfrecord");
  auto reader = SampleReader::Create(dataset, {});
  const FieldId label = dataset->FindField("label").value();
  ASSERT_TRUE(reader->Read(0, std::span(&label, 1), Context()).ok());
  EXPECT_GT(reader->last_cost().bytes, 200'000u);
  auto view = reader->Read(0, std::span(&label, 1), Context());
  ASSERT_TRUE(view.ok());
  EXPECT_EQ(reader->last_cost().bytes, 1u);
  EXPECT_EQ(AsText(view->fields[0].data), Int64Npy({3}));
}

// By record, by field, by ReadField; arrays among them.
TEST(TfRecord, AllocatesNothingPerSampleInSteadyState) {
  TemporaryDirectory folder;
  const std::string path = folder.path() + "/a.tfrecord";
  ASSERT_TRUE(PosixFileSystem()->WriteAtomically(path, AsBytes(SmallFile(0, 100))).ok());
  for (const ReadOptions& options : {ReadOptions{.learn_checksums = false}, ReadOptions(),
                                     ReadOptions{.verify_checksums = false}}) {
    auto dataset = Open(PosixFileSystem(), path);
    auto reader = SampleReader::Create(dataset, options);
    std::vector<std::byte> out(4096);
    auto pass = [&] {
      for (uint64_t i = 0; i < 100; ++i) {
        ASSERT_TRUE(reader->Read(i, {}, Context()).ok());
        auto view = reader->Locate(i);
        for (const FieldEntry& entry : view->entries)
          ASSERT_TRUE(
              reader->ReadField(entry, MutableBytes(out).first(entry.length), Context()).ok());
      }
    };
    pass();
    pass();
    headrace::testing::AllocationCounter counter;
    pass();
    EXPECT_EQ(counter.count(), 0u);
  }
}

// --- properties ---

RC_GTEST_PROP(TfRecordProperty, WhatIsWrittenIsRead, ()) {
  MemoryFileSystem fs;
  std::vector<std::string> messages;
  std::map<std::string, FieldTexts> expected;
  const size_t count = *rc::gen::inRange<size_t>(1, 6);
  for (size_t i = 0; i < count; ++i) {
    Features features;
    FieldTexts& texts = expected[fmt::format("a.tfrecord/{:08}", i)];
    const auto names = *rc::gen::unique<std::vector<std::string>>(
        rc::gen::container<std::string>(rc::gen::inRange('a', 'f')));
    for (const std::string& name : names) {
      if (name.empty()) continue;
      const int kind = *rc::gen::inRange(0, 3);
      if (kind == 0) {
        auto value = *rc::gen::arbitrary<std::string>();
        features.emplace_back(name, BytesFeature({value}));
        texts[name] = value;
      } else if (kind == 1) {
        auto values = *rc::gen::arbitrary<std::vector<int64_t>>();
        features.emplace_back(name, Int64Feature(values));
        texts[name] = Int64Npy(values);
      } else {
        auto values = *rc::gen::arbitrary<std::vector<float>>();
        features.emplace_back(name, FloatFeature(values));
        texts[name] = FloatNpy(values);
      }
    }
    messages.push_back(MakeExample(features));
  }
  Put(&fs, "/a.tfrecord", MakeTfRecord(messages));
  auto dataset = Open(&fs, "/a.tfrecord");
  RC_ASSERT(dataset != nullptr);
  RC_ASSERT(ReadAll(dataset) == expected);
  RC_ASSERT(ReadAll(dataset) == expected);
}

// Any one byte that changes is told: the file is refused, or the sample it hit is.
RC_GTEST_PROP(TfRecordProperty, NoDamageIsReadAsData, ()) {
  MemoryFileSystem fs;
  std::string bytes = SmallFile(0, 4);
  const auto at = *rc::gen::inRange<size_t>(0, bytes.size());
  const auto flip = *rc::gen::inRange(1, 256);
  bytes[at] = static_cast<char>(bytes[at] ^ flip);
  Put(&fs, "/a.tfrecord", bytes);
  auto expected = SmallSamples("a.tfrecord", 0, 4);
  auto dataset = Dataset::Open(&fs, "/a.tfrecord", {});
  if (!dataset.ok()) {
    RC_ASSERT(dataset.status().code() == Code::kDataLoss ||
              dataset.status().code() == Code::kUnimplemented);
    return;
  }
  auto reader = SampleReader::Create(*dataset, {});
  int wrong = 0;
  for (uint64_t i = 0; i < (*dataset)->num_samples(); ++i) {
    auto view = reader->Read(i, {}, Context());
    if (view.ok()) {
      RC_ASSERT(ToTexts(**dataset, *view) == expected.at(std::string(view->key)));
    } else {
      ++wrong;
    }
  }
  RC_ASSERT(wrong == 1);
}

}  // namespace
}  // namespace headrace::dataset
