#include "headrace/dataset/index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>
#include <memory>

#include "headrace/base/crc32c.h"
#include "headrace/dataset/index_format.h"

namespace headrace::dataset {
namespace {

using ::testing::HasSubstr;

// What an index should give back, held in the simplest way.
struct ModelField {
  std::string name;
  uint64_t offset = 0, length = 0;
  std::optional<uint32_t> crc32c;
  bool in_index = false;
  std::string value;
  std::string seek_points = {};
  std::string array_form = {};
};
struct ModelSample {
  std::string key;
  std::vector<ModelField> fields;
  RecordRange record = {};
};

Status AddTo(IndexBuilder* builder, const ModelSample& sample) {
  std::vector<IndexBuilder::Field> fields;
  for (const ModelField& f : sample.fields)
    fields.push_back(
        {f.name, f.offset, f.length, f.crc32c, f.in_index, f.value, f.seek_points, f.array_form});
  return builder->Add(sample.key, fields, sample.record);
}

std::string Build(ShardKind kind, const std::vector<ModelSample>& samples,
                  const ShardIdentity& identity = {}) {
  IndexBuilder builder(kind);
  for (const ModelSample& sample : samples) {
    Status status = AddTo(&builder, sample);
    EXPECT_TRUE(status.ok()) << status.ToString();
  }
  return builder.Finish(identity).value();
}

std::unique_ptr<IndexReader> Read(std::string bytes) {
  auto reader = IndexReader::FromBytes(std::move(bytes), "test.hridx");
  EXPECT_TRUE(reader.ok()) << reader.status().ToString();
  return std::move(reader).value();
}

std::vector<ModelSample> SmallSamples(size_t count) {
  std::vector<ModelSample> samples;
  uint64_t offset = 512;
  for (size_t i = 0; i < count; ++i) {
    ModelSample s{fmt::format("{:08}", i), {}};
    s.fields.push_back({"jpg", offset, 70000 + i % 100, 17u + static_cast<uint32_t>(i), false, {}});
    s.fields.push_back({"cls", offset + 71168, 3, 99u, false, {}});
    offset += 71168 + 1024;
    samples.push_back(std::move(s));
  }
  return samples;
}

TEST(Index, GivesBackWhatWasAdded) {
  std::vector<ModelSample> samples = {
      {"a/1", {{"jpg", 512, 1000, 7u, false, ""}, {"cls", 2048, 1, std::nullopt, false, ""}}},
      {"", {}},
      {std::string("\0\n\xff/../x", 8), {{"cls", 0, 0, {}, true, "42"}}},
  };
  auto reader = Read(Build(ShardKind::kTar, samples, {4096, 1, 2}));
  EXPECT_EQ(reader->num_samples(), 3u);
  EXPECT_EQ(reader->num_fields(), 3u);
  EXPECT_EQ(reader->num_unchecked_fields(), 1u);
  EXPECT_EQ(reader->identity(), (ShardIdentity{4096, 1, 2}));
  EXPECT_THAT(reader->field_names(), ::testing::ElementsAre("jpg", "cls"));
  IndexSample sample;
  uint64_t ordinal = 9;
  ASSERT_TRUE(reader->Get(2, &sample, &ordinal).ok());
  EXPECT_EQ(ordinal, 2u);
  EXPECT_EQ(sample.key, samples[2].key);
  ASSERT_EQ(sample.fields.size(), 1u);
  EXPECT_EQ(sample.fields[0].value, "42");
  EXPECT_EQ(sample.fields[0].crc32c, Crc32c(AsBytes("42")));
  EXPECT_EQ(reader->Find(samples[2].key).value(), 2u);
  EXPECT_EQ(reader->Find("").value(), 1u);
  EXPECT_EQ(reader->Find("nobody").status().code(), Code::kNotFound);
  EXPECT_EQ(reader->Get(3, &sample).code(), Code::kOutOfRange);
  EXPECT_TRUE(reader->VerifyAll().ok());
}

// The stored form never changes: the file was made by tests/compat/dataset/make_golden.py.
TEST(Index, WritesTheGoldenFileOfVersion1) {
  std::vector<ModelSample> samples;
  for (uint32_t i = 0; i < 300; ++i)
    samples.push_back({fmt::format("a/{:04}", i),
                       {{"jpg", 512 + i * 2048u, 700 + i, 0xdead0000u + i, false, ""},
                        {"cls", 512 + i * 2048u + 1536, 1, std::nullopt, false, ""}}});
  samples.push_back({"line\nbreak\xff", {{"cls", 0, 0, {}, true, "42"}}});
  samples.push_back({"", {}});
  std::string golden =
      PosixFileSystem()->ReadWhole(HEADRACE_GOLDEN_DIR "/index_v1.hridx", 1 << 20).value();
  EXPECT_EQ(Build(ShardKind::kTar, samples, {1 << 20, 1, 2}), golden);
  EXPECT_TRUE(Read(golden)->VerifyAll().ok());
}

TEST(Index, WritesTheGoldenFileOfVersion2) {
  std::vector<ModelSample> samples;
  for (uint32_t i = 0; i < 100; ++i)
    samples.push_back({fmt::format("x.tfrecord/{:08}", i),
                       {{"image", 32 + i * 1000u, 900, 0xc0ffee00u + i, false, ""},
                        {"label", 962 + i * 1000u, 2, std::nullopt, false, "", "", "\x0c\x01\x01"},
                        {"scattered", 0, 0, {}, true, "an array"}},
                       {12 + i * 1000u, 984, 0xfeed0000u + i}});
  samples.push_back({"empty", {}, {uint64_t{1} << 40, 0, 0}});
  std::string golden =
      PosixFileSystem()->ReadWhole(HEADRACE_GOLDEN_DIR "/index_v2.hridx", 1 << 20).value();
  EXPECT_EQ(Build(ShardKind::kRecords, samples, {uint64_t{1} << 41, 3, 4}), golden);
  auto reader = Read(golden);
  EXPECT_TRUE(reader->VerifyAll().ok());
  IndexSample sample;
  ASSERT_TRUE(reader->Get(7, &sample).ok());
  EXPECT_EQ(sample.record, samples[7].record);
  EXPECT_TRUE(sample.fields[1].is_array);
  EXPECT_EQ(sample.fields[1].offset, 7962u);
}

// A program that knows version 1 only must not read what it would misread.
TEST(Index, ArraysAndRecordsRaiseTheVersion) {
  auto version = [](const std::string& bytes) {
    return LoadLittle<uint32_t>(bytes.data() + index_format::kAtVersion);
  };
  std::vector<ModelSample> plain = {{"a", {{"x", 0, 8, {}, false, ""}}}};
  EXPECT_EQ(version(Build(ShardKind::kTar, plain)), 1u);
  EXPECT_EQ(version(Build(ShardKind::kRecords, plain)), 2u);
  plain[0].fields[0].array_form = std::string("\x08\x00", 2);
  EXPECT_EQ(version(Build(ShardKind::kTar, plain)), 2u);
}

TEST(Index, AnArrayFormThatMakesNoSenseIsDamage) {
  auto reader = Read(Build(ShardKind::kTar, {{"a", {{"x", 0, 8, {}, false, "", "", "\x63\x01"}}}}));
  IndexSample sample;
  EXPECT_EQ(reader->Get(0, &sample).code(), Code::kDataLoss);
}

// The fields of these samples, in turn: a, none, none, bcd, none, none.
std::vector<ModelSample> SamplesWithSeekPoints() {
  return {{"0", {{"jpg", 512, 9, 1u, false, "", "a"}, {"cls", 1536, 1, 2u, false, "", ""}}},
          {"1", {{"cls", 2560, 1, 3u, false, "", ""}, {"jpg", 3584, 9, 4u, false, "", "bcd"}}},
          {"2", {{"jpg", 4608, 9, 5u, false, "", ""}, {"n", 0, 0, {}, true, "42", ""}}}};
}

std::string SeekPointsOf(const IndexReader& reader, uint64_t ordinal) {
  auto found = reader.SeekPoints(ordinal);
  EXPECT_TRUE(found.ok()) << found.status().ToString();
  return found.ok() ? std::string(AsText(*found)) : "fault";
}

TEST(Index, GivesBackSeekPoints) {
  auto reader = Read(Build(ShardKind::kTar, SamplesWithSeekPoints()));
  EXPECT_TRUE(reader->has_seek_points());
  EXPECT_EQ(reader->seek_points_bytes(), 4u);
  std::vector<std::string> found;
  for (uint64_t i = 0; i < 6; ++i) found.push_back(SeekPointsOf(*reader, i));
  EXPECT_THAT(found, ::testing::ElementsAre("a", "", "", "bcd", "", ""));
  EXPECT_EQ(reader->SeekPoints(6).status().code(), Code::kOutOfRange);
  EXPECT_TRUE(reader->VerifyAll().ok());
}

TEST(Index, WithoutSeekPointsThereAreNoSectionsForThem) {
  std::vector<ModelSample> samples = SamplesWithSeekPoints();
  for (ModelSample& sample : samples)
    for (ModelField& field : sample.fields) field.seek_points.clear();
  std::string bytes = Build(ShardKind::kTar, samples);
  EXPECT_EQ(LoadLittle<uint32_t>(&bytes[index_format::kAtNumSections]), 4u);
  auto reader = Read(bytes);
  EXPECT_FALSE(reader->has_seek_points());
  EXPECT_EQ(reader->seek_points_bytes(), 0u);
  EXPECT_EQ(SeekPointsOf(*reader, 3), "");
}

TEST(Index, WritesTheGoldenFileWithSeekPoints) {
  std::string golden =
      PosixFileSystem()->ReadWhole(HEADRACE_GOLDEN_DIR "/index_seek_v1.hridx", 1 << 20).value();
  EXPECT_EQ(Build(ShardKind::kTar, SamplesWithSeekPoints(), {8192, 1, 2}), golden);
  EXPECT_TRUE(Read(golden)->VerifyAll().ok());
}

// A program that knows sections 1 to 4 only: their types are moved to where it knows none.
TEST(Index, ReadersThatDoNotKnowSeekPointsSkipThem) {
  namespace f = index_format;
  std::string bytes = Build(ShardKind::kTar, SamplesWithSeekPoints());
  for (size_t i = 0; i < LoadLittle<uint32_t>(&bytes[f::kAtNumSections]); ++i) {
    char* entry = &bytes[f::kAtSections + i * f::kSectionBytes];
    uint32_t type = LoadLittle<uint32_t>(entry);
    if (type >= f::kSeekOffsets) StoreLittle<uint32_t>(entry, type + 1000);
  }
  StoreLittle<uint32_t>(&bytes[f::kAtHeaderCrc], Crc32c(AsBytes(bytes).first(f::kAtHeaderCrc)));
  auto reader = Read(bytes);
  EXPECT_FALSE(reader->has_seek_points());
  EXPECT_TRUE(reader->VerifyAll().ok());
}

// An index whose table of seek points was written by someone who means harm: `at` gets `value`.
std::string WithSeekOffset(size_t at, uint64_t value) {
  namespace f = index_format;
  std::string bytes = Build(ShardKind::kTar, SamplesWithSeekPoints());
  size_t section = LoadLittle<uint64_t>(&bytes[f::kAtSections + 5 * f::kSectionBytes + 8]);
  StoreLittle<uint64_t>(&bytes[section + at * 8], value);
  size_t table = LoadLittle<uint64_t>(&bytes[f::kAtChunkTable]);
  StoreLittle<uint32_t>(&bytes[table],
                        Crc32c(AsBytes(bytes).subspan(f::kHeaderBytes, table - f::kHeaderBytes)));
  StoreLittle<uint32_t>(&bytes[f::kAtChunkTableCrc], Crc32c(AsBytes(bytes).subspan(table)));
  StoreLittle<uint32_t>(&bytes[f::kAtHeaderCrc], Crc32c(AsBytes(bytes).first(f::kAtHeaderCrc)));
  return bytes;
}

TEST(Index, SeekOffsetsThatLieAreNoted) {
  for (uint64_t value : {uint64_t{5}, uint64_t{1} << 40, UINT64_MAX}) {
    auto reader = Read(WithSeekOffset(3, value));
    EXPECT_EQ(reader->SeekPoints(3).status().code(), Code::kDataLoss) << value;
    EXPECT_EQ(reader->SeekPoints(2).status().code(), Code::kDataLoss) << value;
    EXPECT_EQ(SeekPointsOf(*reader, 0), "a");
    Status status = reader->VerifyAll();
    EXPECT_EQ(status.code(), Code::kDataLoss) << value;
    EXPECT_THAT(status.ToString(), HasSubstr("seek points"));
  }
  // In bounds, but another cut than the records have.
  EXPECT_TRUE(Read(WithSeekOffset(4, 3))->SeekPoints(3).ok());
  EXPECT_EQ(Read(WithSeekOffset(6, 3))->VerifyAll().code(), Code::kDataLoss);
}

TEST(Index, ASeekTableOfAnotherLengthIsRefused) {
  namespace f = index_format;
  std::string bytes = Build(ShardKind::kTar, SamplesWithSeekPoints());
  StoreLittle<uint64_t>(&bytes[f::kAtSections + 5 * f::kSectionBytes + 16], 48);
  StoreLittle<uint32_t>(&bytes[f::kAtHeaderCrc], Crc32c(AsBytes(bytes).first(f::kAtHeaderCrc)));
  EXPECT_EQ(IndexReader::FromBytes(bytes, "x").status().code(), Code::kDataLoss);
}

TEST(Index, SeekPointsAreNotTouchedUnlessAskedFor) {
  std::vector<ModelSample> samples = SmallSamples(2000);
  for (ModelSample& sample : samples) sample.fields[0].seek_points = std::string(100, 's');
  std::string bytes = Build(ShardKind::kTar, samples);
  bytes[bytes.size() - 20000] ^= 1;  // among the seek points, which stand last
  auto reader = Read(bytes);
  IndexSample sample;
  size_t failed = 0;
  for (uint64_t i = 0; i < 2000; ++i) {
    ASSERT_TRUE(reader->Get(i, &sample).ok()) << i;
    failed += !reader->SeekPoints(2 * i).ok();
  }
  EXPECT_GT(failed, 0u);
  EXPECT_LT(failed, 50u);
  EXPECT_EQ(reader->VerifyAll().code(), Code::kDataLoss);
}

// A mapped file as it is after its mount has gone.
class VanishingFile final : public MappedFile {
 public:
  VanishingFile(std::string content, const bool* gone)
      : content_(std::move(content)), zeros_(content_.size(), '\0'), gone_(gone) {}
  Bytes bytes() const override { return AsBytes(content_); }
  Status Check() const override {
    return *gone_ ? Error(Code::kIoError, "it cannot be read any more") : OkStatus();
  }
  void PutZerosInPlace() { std::copy(zeros_.begin(), zeros_.end(), content_.begin()); }

 private:
  std::string content_;
  const std::string zeros_;
  const bool* const gone_;
};

TEST(Index, AFileThatVanishesIsAnErrorAndNotZeros) {
  bool gone = false;
  auto mapped =
      std::make_unique<VanishingFile>(Build(ShardKind::kTar, SamplesWithSeekPoints()), &gone);
  VanishingFile* file = mapped.get();
  auto reader = IndexReader::Open(std::move(mapped), "name.hridx");
  ASSERT_TRUE(reader.ok()) << reader.status().ToString();
  IndexSample sample;
  ASSERT_TRUE((*reader)->Get(0, &sample).ok());
  ASSERT_TRUE((*reader)->VerifyAll().ok());  // all of it is checked by now
  gone = true;
  file->PutZerosInPlace();
  for (const Status& status :
       {(*reader)->Get(0, &sample), (*reader)->Find("a").status(),
        (*reader)->SeekPoints(0).status(), (*reader)->VerifyAll(), (*reader)->Check()}) {
    EXPECT_EQ(status.code(), Code::kIoError) << status.ToString();
    EXPECT_EQ(status.location().file, "name.hridx");
  }
  auto fresh = std::make_unique<VanishingFile>(std::string(1000, '\0'), &gone);
  EXPECT_EQ(IndexReader::Open(std::move(fresh), "name").status().code(), Code::kIoError);
}

TEST(Index, StaysSmallForSmallSamples) {
  constexpr size_t kSamples = 10000;
  std::string bytes = Build(ShardKind::kTar, SmallSamples(kSamples));
  EXPECT_LE((bytes.size() - 4096) / kSamples, 60u + 8u);
}

TEST(Index, EqualInputGivesEqualBytes) {
  EXPECT_EQ(Build(ShardKind::kTar, SmallSamples(100)), Build(ShardKind::kTar, SmallSamples(100)));
}

TEST(Index, RefusesWhatItCannotHold) {
  IndexBuilder builder(ShardKind::kTar);
  Status twice =
      AddTo(&builder, {"k", {{"jpg", 0, 1, {}, false, ""}, {"jpg", 1, 1, {}, false, ""}}});
  EXPECT_EQ(twice.code(), Code::kInvalidArgument);
  EXPECT_THAT(twice.ToString(), HasSubstr("'jpg' twice"));
  EXPECT_EQ(builder.Add(std::string(65536, 'k'), {}).code(), Code::kInvalidArgument);
  std::vector<std::string> names(4097);
  std::vector<IndexBuilder::Field> fields(4097);
  for (size_t i = 0; i < names.size(); ++i) fields[i].name = names[i] = std::to_string(i);
  EXPECT_EQ(builder.Add("k", fields).code(), Code::kInvalidArgument);
  EXPECT_EQ(builder.num_samples(), 0u);
  EXPECT_TRUE(builder.Add(std::string(65535, 'k'), std::span(fields).first(4096)).ok());
}

TEST(Index, FindsRepeatedKeys) {
  IndexBuilder builder(ShardKind::kTar);
  for (const char* key : {"a", "b", "c"}) ASSERT_TRUE(builder.Add(key, {}).ok());
  EXPECT_FALSE(builder.FindRepeatedKey().has_value());
  ASSERT_TRUE(builder.Add("b", {}).ok());
  EXPECT_EQ(builder.FindRepeatedKey(), (std::pair<uint64_t, uint64_t>(1, 3)));
  EXPECT_EQ(builder.KeyOf(3), "b");
}

TEST(Index, NewerVersionSaysSo) {
  std::string bytes = Build(ShardKind::kTar, SmallSamples(1));
  StoreLittle<uint32_t>(&bytes[index_format::kAtVersion], 3);
  StoreLittle<uint32_t>(&bytes[index_format::kAtHeaderCrc],
                        Crc32c(AsBytes(bytes).first(index_format::kAtHeaderCrc)));
  Status status = IndexReader::FromBytes(bytes, "x.hridx").status();
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_THAT(status.ToString(), HasSubstr("version 3"));
  EXPECT_THAT(status.ToString(), HasSubstr("newer headrace"));
}

// Adds a section of an unknown type that covers the first eight bytes of the body.
std::string WithUnknownSection(uint32_t flags) {
  std::string bytes = Build(ShardKind::kTar, SmallSamples(3));
  namespace f = index_format;
  uint32_t count = LoadLittle<uint32_t>(&bytes[f::kAtNumSections]);
  char* entry = &bytes[f::kAtSections + count * f::kSectionBytes];
  StoreLittle<uint32_t>(entry, 77);
  StoreLittle<uint32_t>(entry + 4, flags);
  StoreLittle<uint64_t>(entry + 8, f::kHeaderBytes);
  StoreLittle<uint64_t>(entry + 16, 8);
  StoreLittle<uint32_t>(&bytes[f::kAtNumSections], count + 1);
  StoreLittle<uint32_t>(&bytes[f::kAtHeaderCrc], Crc32c(AsBytes(bytes).first(f::kAtHeaderCrc)));
  return bytes;
}

TEST(Index, SkipsUnknownSectionsUnlessRequired) {
  EXPECT_TRUE(Read(WithUnknownSection(0))->VerifyAll().ok());
  Status status = IndexReader::FromBytes(WithUnknownSection(1), "x.hridx").status();
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_THAT(status.ToString(), HasSubstr("type 77"));
}

TEST(Index, DamageCostsOnlyTheChunkItHit) {
  std::string bytes = Build(ShardKind::kTar, SmallSamples(2000));
  size_t hit = bytes.size() - 20000;  // among the records
  bytes[hit] ^= 1;
  auto reader = Read(bytes);
  IndexSample sample;
  EXPECT_TRUE(reader->Get(0, &sample).ok());
  size_t failed = 0;
  Status last;
  for (uint64_t i = 0; i < 2000; ++i) {
    Status status = reader->Get(i, &sample);
    if (status.ok()) continue;
    ++failed;
    last = status;
  }
  EXPECT_GT(failed, 0u);
  EXPECT_LT(failed, 300u);
  EXPECT_EQ(last.code(), Code::kDataLoss);
  EXPECT_EQ(last.location().file, "test.hridx");
  EXPECT_EQ(last.location().offset, hit / 4096 * 4096);
  EXPECT_EQ(reader->VerifyAll().code(), Code::kDataLoss);
}

// Found by the fuzz target: one byte left where the length of a name should stand.
TEST(Index, ANameTableThatEndsInsideALengthIsRefused) {
  namespace f = index_format;
  std::string bytes = Build(ShardKind::kTar, SmallSamples(1));
  StoreLittle<uint64_t>(&bytes[f::kAtSections + 16], 5);
  StoreLittle<uint32_t>(&bytes[f::kAtHeaderCrc], Crc32c(AsBytes(bytes).first(f::kAtHeaderCrc)));
  Status status = IndexReader::FromBytes(bytes, "x.hridx").status();
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_THAT(status.ToString(), HasSubstr("field names"));
}

TEST(Index, ShortAndLongFilesAreRefused) {
  std::string bytes = Build(ShardKind::kTar, SmallSamples(100));
  for (size_t size : {size_t{0}, size_t{7}, size_t{4095}, size_t{4096}, bytes.size() - 1}) {
    Status status = IndexReader::FromBytes(bytes.substr(0, size), "x.hridx").status();
    EXPECT_EQ(status.code(), Code::kDataLoss) << size;
  }
  EXPECT_EQ(IndexReader::FromBytes(bytes + "x", "x").status().code(), Code::kDataLoss);
}

rc::Gen<ModelSample> GenSample(ShardKind kind) {
  return rc::gen::exec([kind] {
    ModelSample sample;
    sample.key = *rc::gen::arbitrary<std::string>();
    auto names = *rc::gen::unique<std::vector<std::string>>(
        rc::gen::nonEmpty(rc::gen::container<std::string>(rc::gen::inRange('a', 'e'))));
    for (const std::string& name : names) {
      ModelField f;
      f.name = name;
      f.in_index = *rc::gen::arbitrary<bool>();
      f.value = *rc::gen::arbitrary<std::string>();
      f.length = *rc::gen::arbitrary<uint64_t>();
      if (kind != ShardKind::kFiles) f.offset = *rc::gen::arbitrary<uint64_t>();
      if (kind != ShardKind::kFiles && !f.in_index) {
        f.value.clear();
        if (*rc::gen::arbitrary<bool>()) f.array_form = "\x0a\x02\x03\x04";
      }
      if (*rc::gen::arbitrary<bool>()) f.crc32c = *rc::gen::arbitrary<uint32_t>();
      if (f.in_index) {
        f.offset = 0;
        f.length = f.value.size();
        f.crc32c = Crc32c(AsBytes(f.value));
      }
      sample.fields.push_back(f);
    }
    if (kind == ShardKind::kRecords)
      sample.record = {*rc::gen::arbitrary<uint64_t>(), *rc::gen::arbitrary<uint64_t>(),
                       *rc::gen::arbitrary<uint32_t>()};
    return sample;
  });
}

void ExpectSame(const IndexReader& reader, const std::vector<ModelSample>& model) {
  RC_ASSERT(reader.num_samples() == model.size());
  uint64_t fields_before = 0;
  IndexSample got;
  for (uint64_t i = 0; i < model.size(); ++i) {
    uint64_t ordinal = 0;
    Status status = reader.Get(i, &got, &ordinal);
    RC_ASSERT(status.ok());
    RC_ASSERT(ordinal == fields_before);
    RC_ASSERT(got.key == model[i].key);
    RC_ASSERT(got.record == model[i].record);
    RC_ASSERT(got.fields.size() == model[i].fields.size());
    for (size_t k = 0; k < got.fields.size(); ++k) {
      const ModelField& f = model[i].fields[k];
      RC_ASSERT(reader.field_names()[got.fields[k].name] == f.name);
      const bool is_array = !f.array_form.empty();
      RC_ASSERT(got.fields[k] ==
                (IndexField{got.fields[k].name, f.offset, f.length, f.crc32c, f.in_index,
                            is_array ? f.array_form : f.value, is_array}));
    }
    fields_before += got.fields.size();
  }
  RC_ASSERT(reader.num_fields() == fields_before);
}

std::pair<ShardKind, std::vector<ModelSample>> ArbitraryShard() {
  ShardKind kind = *rc::gen::element(ShardKind::kTar, ShardKind::kFiles, ShardKind::kRecords);
  return {kind, *rc::gen::container<std::vector<ModelSample>>(GenSample(kind))};
}

RC_GTEST_PROP(IndexProperty, ReaderEqualsModel, ()) {
  auto [kind, model] = ArbitraryShard();
  auto reader = Read(Build(kind, model));
  ExpectSame(*reader, model);
  RC_ASSERT(reader->VerifyAll().ok());
  std::map<std::string, uint64_t> first;
  for (uint64_t i = 0; i < model.size(); ++i) first.emplace(model[i].key, i);
  for (const auto& [key, sample] : first) RC_ASSERT(reader->Find(key).value() == sample);
}

// Any change of any byte is either found or without effect (padding between sections is found too).
RC_GTEST_PROP(IndexProperty, FlippedBytesAreFound, ()) {
  auto [kind, model] = ArbitraryShard();
  std::string bytes = Build(kind, model);
  size_t at = *rc::gen::inRange<size_t>(0, bytes.size());
  bytes[at] ^= static_cast<char>(*rc::gen::inRange(1, 256));
  auto reader = IndexReader::FromBytes(bytes, "x");
  if (!reader.ok()) return;
  RC_ASSERT(!(*reader)->VerifyAll().ok());
}

}  // namespace
}  // namespace headrace::dataset
