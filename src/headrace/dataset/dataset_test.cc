// Opening datasets and reading samples: what is right, and every kind of bad input.
#include "headrace/dataset/dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "headrace/base/crc32c.h"
#include "headrace/dataset/index_build.h"
#include "headrace/dataset/index_format.h"
#include "headrace/dataset/testing/tar_maker.h"
#include "headrace/env/testing/faulty_file_system.h"
#include "headrace/env/testing/memory_file_system.h"

namespace headrace::dataset {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

using Sample = std::map<std::string, std::string>;

std::shared_ptr<const Dataset> Open(FileSystem* fs, const std::string& path) {
  auto dataset = Dataset::Open(fs, path, OpenOptions());
  EXPECT_TRUE(dataset.ok()) << dataset.status().ToString();
  return dataset.ok() ? *dataset : nullptr;
}

Status OpenStatus(FileSystem* fs, const std::string& path) {
  return Dataset::Open(fs, path, OpenOptions()).status();
}

IndexReport Index(FileSystem* fs, const std::vector<std::string>& paths,
                  const IndexOptions& options = {}) {
  auto report = IndexDataset(fs, paths, options, Context());
  EXPECT_TRUE(report.ok()) << report.status().ToString();
  return report.ok() ? *report : IndexReport();
}

IndexOptions WithChecksums() {
  IndexOptions options;
  options.build.checksums = true;
  return options;
}

Sample ToSample(const Dataset& dataset, const SampleView& view) {
  Sample sample;
  for (const FieldView& field : view.fields)
    sample[dataset.fields()[field.field]] = std::string(AsText(field.data));
  return sample;
}

Result<Sample> ReadOne(std::shared_ptr<const Dataset> dataset, uint64_t id,
                       std::span<const FieldId> wanted = {}) {
  auto reader = SampleReader::Create(dataset, ReadOptions());
  auto view = reader->Read(id, wanted, Context());
  if (!view.ok()) return std::move(view).status();
  return ToSample(*dataset, *view);
}

void ExpectHolds(std::shared_ptr<const Dataset> dataset, const Members& members) {
  std::map<std::string, Sample> expected, found;
  for (const auto& [path, data] : members) {
    std::string_view key, field;
    ASSERT_TRUE(SplitMemberPath(path, &key, &field));
    expected[std::string(key)][std::string(field)] = data;
  }
  auto reader = SampleReader::Create(dataset, ReadOptions());
  for (uint64_t i = 0; i < dataset->num_samples(); ++i) {
    auto view = reader->Read(i, {}, Context());
    ASSERT_TRUE(view.ok()) << view.status().ToString();
    EXPECT_EQ(dataset->FindKey(view->key).value(), i);
    found[std::string(view->key)] = ToSample(*dataset, *view);
  }
  EXPECT_EQ(found, expected);
}

// Two shards of three samples under /d.
Members TwoShards(FileSystem* fs) {
  Members a = MakeSamples("a/", 3), b = MakeSamples("b/", 3);
  Put(fs, "/d/0.tar", MakeTar(a));
  Put(fs, "/d/1.tar", MakeTar(b));
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

void Flip(FileSystem* fs, const std::string& path, size_t at) {
  std::string bytes = fs->ReadWhole(path, 1 << 30).value();
  bytes.at(at) ^= 1;
  Put(fs, path, bytes);
}

TEST(DatasetTar, ReadsAFolderOfTarsWithAndWithoutIndex) {
  MemoryFileSystem fs;
  Members members = TwoShards(&fs);
  auto in_place = Open(&fs, "/d");
  EXPECT_EQ(in_place->kind(), "tar");
  EXPECT_THAT(in_place->fields(), ElementsAre("cls", "jpg"));
  EXPECT_EQ(in_place->num_samples(), 6u);
  EXPECT_EQ(in_place->first_sample(1), 3u);
  ExpectHolds(in_place, members);
  ExpectHolds(Open(&fs, "/d/0.tar"), Members(members.begin(), members.begin() + 6));

  IndexReport report = Index(&fs, {"/d"});
  EXPECT_EQ(report.manifest_path, "/d/headrace.json");
  auto indexed = Open(&fs, "/d");
  ExpectHolds(indexed, members);
  EXPECT_EQ(indexed->version(), in_place->version());
  ExpectHolds(Open(&fs, "/d/headrace.json"), members);

  Index(&fs, {"/d/0.tar", "/d/1.tar"}, WithChecksums());
  auto checked = Open(&fs, "/d");
  ExpectHolds(checked, members);
  EXPECT_TRUE(checked->Index(0).value()->fully_checksummed());
  EXPECT_EQ(checked->manifest().shards[0].crc32c,
            Crc32c(AsBytes(fs.ReadWhole("/d/0.tar", 1 << 20).value())));
  for (size_t shard : {0, 1}) EXPECT_TRUE(checked->CheckShard(shard, Context()).ok());
}

TEST(DatasetTar, OutputElsewhereLeavesTheDataAlone) {
  MemoryFileSystem fs;
  Members members = TwoShards(&fs);
  IndexOptions options;
  options.output = "/out/index";
  Index(&fs, {"/d/"}, options);
  EXPECT_EQ(fs.List("/d").value().size(), 2u);
  ExpectHolds(Open(&fs, "/out/index"), members);
}

TEST(DatasetTar, TarsOfSeveralFoldersNeedAnOutput) {
  MemoryFileSystem fs;
  Members a = MakeSamples("a", 2), b = MakeSamples("b", 2);
  Put(&fs, "/d/x/0.tar", MakeTar(a));
  Put(&fs, "/d/y/0.tar", MakeTar(b));
  std::vector<std::string> paths = {"/d/x/0.tar", "/d/y/0.tar"};
  EXPECT_EQ(IndexDataset(&fs, paths, {}, Context()).status().code(), Code::kFailedPrecondition);
  IndexOptions options;
  options.output = "/d/index";
  Index(&fs, paths, options);
  a.insert(a.end(), b.begin(), b.end());
  ExpectHolds(Open(&fs, "/d/index"), a);
}

TEST(DatasetTar, WantedFieldsOnlyAndInTheirOrder) {
  MemoryFileSystem fs;
  Members members = TwoShards(&fs);
  auto dataset = Open(&fs, "/d");
  FieldId cls = dataset->FindField("cls").value(), jpg = dataset->FindField("jpg").value();
  EXPECT_THAT(ReadOne(dataset, 4, std::vector<FieldId>{cls}).value(),
              ElementsAre(Pair("cls", "1")));
  auto reader = SampleReader::Create(dataset, ReadOptions());
  auto view = reader->Read(4, std::vector<FieldId>{jpg, cls}, Context());
  ASSERT_TRUE(view.ok());
  EXPECT_EQ(view->fields[0].field, jpg);
  EXPECT_EQ(AsText(view->Find(cls)->data), "1");
  EXPECT_EQ(view->shard, "1.tar");
  EXPECT_EQ(view->key, "b/00001");
  Status unknown = dataset->FindField("png").status();
  EXPECT_EQ(unknown.code(), Code::kNotFound);
  EXPECT_THAT(unknown.ToString(), HasSubstr("'cls', 'jpg'"));
  EXPECT_EQ(dataset->FindKey("nobody").status().code(), Code::kNotFound);
  EXPECT_EQ(reader->Read(6, {}, Context()).status().code(), Code::kOutOfRange);
}

TEST(DatasetTar, NearFieldsShareOneReadAndFarOnesDoNot) {
  MemoryFileSystem memory;
  FaultyFileSystem fs(&memory);
  Put(&fs, "/d/0.tar",
      MakeTar({{"k.a", "1"},
               {"k.b", std::string(5000, 'b')},
               {"k.c", "2"},
               {"k.d", std::string(100'000, 'd')},
               {"k.e", "3"}}));
  auto dataset = Open(&fs, "/d");
  auto reader = SampleReader::Create(dataset, ReadOptions());
  auto id = [&](const char* name) { return dataset->FindField(name).value(); };
  ASSERT_TRUE(reader->Read(0, {}, Context()).ok());  // opens the shard
  auto reads = [&](const std::vector<FieldId>& wanted) {
    uint64_t before = fs.count(FileOperation::kRead);
    auto view = reader->Read(0, wanted, Context());
    EXPECT_TRUE(view.ok());
    EXPECT_EQ(view->fields.size(), wanted.size());
    return fs.count(FileOperation::kRead) - before;
  };
  EXPECT_EQ(reads({id("a"), id("c")}), 1u);
  EXPECT_EQ(reads({id("a"), id("e")}), 2u);
  auto far = reader->Read(0, std::vector<FieldId>{id("e"), id("a")}, Context());
  EXPECT_EQ(AsText(far->fields[0].data), "3");
  EXPECT_EQ(AsText(far->fields[1].data), "1");
}

TEST(DatasetTar, ReadFieldFillsTheCallersBytes) {
  MemoryFileSystem fs;
  Members members = TwoShards(&fs);
  auto dataset = Open(&fs, "/d");
  auto reader = SampleReader::Create(dataset, ReadOptions());
  auto view = reader->Locate(1).value();
  ASSERT_EQ(view.entries.size(), 2u);
  FieldEntry entry = view.entries[0];
  std::string out(entry.length, '\0');
  MutableBytes bytes = std::as_writable_bytes(std::span(out));
  ASSERT_TRUE(reader->ReadField(entry, bytes, Context()).ok());
  EXPECT_EQ(out, members[2].second);
  EXPECT_GT(reader->last_cost().bytes, 0u);
  EXPECT_EQ(reader->ReadField(entry, bytes.first(1), Context()).code(), Code::kInvalidArgument);
  entry.offset += 512;
  EXPECT_EQ(reader->ReadField(entry, bytes, Context()).code(), Code::kInvalidArgument);
}

TEST(DatasetTar, KeysAreBytes) {
  MemoryFileSystem fs;
  Members members = {{std::string(4000, 'k') + ".jpg", "1"},
                     {"line\nbreak.jpg", "2"},
                     {"\xff\xfe.jpg", "3"},
                     {"../../up.jpg", "4"},
                     {"/abs.jpg", "5"},
                     {"\xe4\xb8\x80.jpg", "6"},
                     {"empty.jpg", ""}};
  Put(&fs, "/d/0.tar", MakeTar(members));
  ExpectHolds(Open(&fs, "/d"), members);
  Index(&fs, {"/d"}, WithChecksums());
  ExpectHolds(Open(&fs, "/d"), members);
}

TEST(DatasetChecksums, AWrongByteIsFoundAndNamed) {
  MemoryFileSystem fs;
  Members members;
  for (int i = 0; i < 3; ++i)
    members.emplace_back(fmt::format("k{}.jpg", i), std::string(10'000, 'x'));
  Put(&fs, "/d/0.tar", MakeTar(members));
  Index(&fs, {"/d"}, WithChecksums());
  auto dataset = Open(&fs, "/d");
  uint64_t offset = SampleReader::Create(dataset, {})->Locate(1).value().entries[0].offset;
  Flip(&fs, "/d/0.tar", offset + 5000);
  dataset = Open(&fs, "/d");
  EXPECT_TRUE(ReadOne(dataset, 0).ok());
  Status status = ReadOne(dataset, 1).status();
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_THAT(status.ToString(), HasSubstr("wrong checksum"));
  EXPECT_EQ(status.location().file, "0.tar");
  EXPECT_EQ(status.location().key, "k1");
  EXPECT_EQ(status.location().field, "jpg");
  EXPECT_EQ(status.location().offset, offset);
  EXPECT_TRUE(ReadOne(dataset, 2).ok());
  ReadOptions unchecked;
  unchecked.verify_checksums = false;
  EXPECT_TRUE(SampleReader::Create(dataset, unchecked)->Read(1, {}, Context()).ok());
}

TEST(DatasetChecksums, AreLearnedAtTheFirstReadAndKept) {
  MemoryFileSystem fs;
  Members members = {{"a.bin", std::string(20'000, 'a')}, {"b.bin", std::string(20'000, 'b')}};
  Put(&fs, "/d/0.tar", MakeTar(members));
  Index(&fs, {"/d"});
  auto dataset = Open(&fs, "/d");
  auto reader = SampleReader::Create(dataset, ReadOptions());
  FieldEntry entry = reader->Locate(0).value().entries[0];
  EXPECT_FALSE(entry.crc32c.has_value());
  ASSERT_TRUE(reader->Read(0, {}, Context()).ok());
  EXPECT_TRUE(fs.Exists("/d/0.tar.hrsum"));

  auto again = SampleReader::Create(Open(&fs, "/d"), ReadOptions());
  FieldEntry learned = again->Locate(0).value().entries[0];
  EXPECT_TRUE(learned.learned);
  EXPECT_EQ(learned.crc32c, Crc32c(AsBytes(members[0].second)));
  EXPECT_FALSE(again->Locate(1).value().entries[0].crc32c.has_value());

  Flip(&fs, "/d/0.tar", entry.offset + 9000);
  Status status = ReadOne(Open(&fs, "/d"), 0).status();
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_THAT(status.ToString(), HasSubstr("learned at its first read"));
}

TEST(DatasetChecksums, WhatWasLearnedWithAnotherIndexIsForgotten) {
  MemoryFileSystem fs;
  Put(&fs, "/d/0.tar", MakeTar({{"a.bin", std::string(100, 'a')}}));
  Index(&fs, {"/d"});
  ASSERT_TRUE(ReadOne(Open(&fs, "/d"), 0).ok());
  Put(&fs, "/d/0.tar", MakeTar({{"a.bin", std::string(100, 'b')}}));
  Index(&fs, {"/d"});
  for (int i = 0; i < 2; ++i) {
    auto sample = ReadOne(Open(&fs, "/d"), 0);
    ASSERT_TRUE(sample.ok()) << sample.status().ToString();
    EXPECT_EQ(sample->at("bin"), std::string(100, 'b'));
  }
}

TEST(DatasetChecksums, APlaceThatCannotBeWrittenIsNoError) {
  MemoryFileSystem memory;
  Put(&memory, "/d/0.tar", MakeTar(MakeSamples("k", 2)));
  Index(&memory, {"/d"});
  ASSERT_TRUE(ReadOne(Open(&memory, "/d"), 0).ok());
  FaultyFileSystem fs(&memory);
  fs.FailNth(FileOperation::kOpenSharedWords, 1, Error(Code::kPermissionDenied, "read-only"), 100);
  auto dataset = Open(&fs, "/d");
  auto reader = SampleReader::Create(dataset, ReadOptions());
  EXPECT_TRUE(reader->Locate(0).value().entries[0].learned);  // read from the file that is there
  EXPECT_FALSE(reader->Locate(1).value().entries[0].learned);
  ASSERT_TRUE(reader->Read(1, {}, Context()).ok());
  EXPECT_TRUE(reader->Locate(1).value().entries[0].learned);  // kept in this process
}

TEST(DatasetBadInput, NothingThere) {
  MemoryFileSystem fs;
  EXPECT_EQ(OpenStatus(&fs, "/nowhere").code(), Code::kNotFound);
  Status pattern = OpenStatus(&fs, "/d/shard-*.tar");
  EXPECT_EQ(pattern.code(), Code::kNotFound);
  EXPECT_THAT(pattern.ToString(), HasSubstr("patterns are not expanded"));
  ASSERT_TRUE(fs.MakeDirectories("/empty").ok());
  EXPECT_EQ(OpenStatus(&fs, "/empty").code(), Code::kInvalidArgument);
  Put(&fs, "/d/x.tar", MakeTar({{"README", "no sample"}}));
  EXPECT_THAT(OpenStatus(&fs, "/d").ToString(), HasSubstr("KEY.FIELD"));
}

TEST(DatasetBadInput, MissingShardOrIndex) {
  for (const char* gone : {"/d/1.tar", "/d/1.tar.hridx"}) {
    MemoryFileSystem fs;
    TwoShards(&fs);
    Index(&fs, {"/d"});
    ASSERT_TRUE(fs.Remove(gone).ok());
    Status status = OpenStatus(&fs, "/d");
    EXPECT_EQ(status.code(), Code::kFailedPrecondition);
    EXPECT_THAT(status.ToString(), HasSubstr(gone));
  }
  MemoryFileSystem fs;
  TwoShards(&fs);
  Index(&fs, {"/d"});
  auto dataset = Open(&fs, "/d");
  ASSERT_TRUE(fs.Remove("/d/1.tar").ok());
  EXPECT_TRUE(ReadOne(dataset, 0).ok());
  Status status = ReadOne(dataset, 3).status();
  EXPECT_EQ(status.code(), Code::kNotFound);
  EXPECT_EQ(status.location().key, "b/00000");
}

TEST(DatasetBadInput, ShardShorterThanItsIndex) {
  MemoryFileSystem fs;
  TwoShards(&fs);
  Index(&fs, {"/d"}, WithChecksums());
  std::string tar = fs.ReadWhole("/d/1.tar", 1 << 20).value();
  Put(&fs, "/d/1.tar", tar.substr(0, 3000));
  auto dataset = Open(&fs, "/d");
  for (uint64_t sample : {3, 4, 5}) {
    Status status = ReadOne(dataset, sample).status();
    EXPECT_EQ(status.code(), Code::kDataLoss);
    EXPECT_THAT(status.ToString(), HasSubstr("cut short"));
    EXPECT_THAT(status.ToString(), HasSubstr("3000"));
  }
  EXPECT_EQ(dataset->CheckShard(1, Context()).code(), Code::kDataLoss);
  EXPECT_TRUE(ReadOne(dataset, 0).ok());

  // Cut while it is open.
  FaultyFileSystem faulty(&fs);
  auto running = Open(&faulty, "/d");
  auto reader = SampleReader::Create(running, ReadOptions());
  ASSERT_TRUE(reader->Read(0, {}, Context()).ok());
  faulty.EndFilesAt("0.tar", 2000);
  Status status = reader->Read(2, {}, Context()).status();
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_EQ(status.location().key, "a/00002");
}

TEST(DatasetBadInput, IndexOfAnotherShard) {
  MemoryFileSystem fs;
  TwoShards(&fs);
  Index(&fs, {"/d"});
  std::string a = fs.ReadWhole("/d/0.tar", 1 << 20).value();
  std::string b = fs.ReadWhole("/d/1.tar", 1 << 20).value();
  Put(&fs, "/d/0.tar", b);  // same size, other content
  Status status = ReadOne(Open(&fs, "/d"), 0).status();
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_THAT(status.ToString(), HasSubstr("another shard"));
  Put(&fs, "/d/0.tar", a);
  Put(&fs, "/d/0.tar.hridx", fs.ReadWhole("/d/1.tar.hridx", 1 << 20).value());
  status = ReadOne(Open(&fs, "/d"), 0).status();
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_THAT(status.ToString(), HasSubstr("not the one that the manifest names"));
}

TEST(DatasetBadInput, DamagedOrNewerIndex) {
  MemoryFileSystem fs;
  TwoShards(&fs);
  Index(&fs, {"/d"});
  const std::string good = fs.ReadWhole("/d/0.tar.hridx", 1 << 20).value();
  Flip(&fs, "/d/0.tar.hridx", 4200);
  Status status = ReadOne(Open(&fs, "/d"), 0).status();
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_EQ(status.location().file, "/d/0.tar.hridx");
  EXPECT_TRUE(status.location().offset.has_value());

  std::string newer = good;
  StoreLittle<uint32_t>(&newer[8], 9);
  StoreLittle<uint32_t>(&newer[4092], Crc32c(AsBytes(newer).first(4092)));
  Put(&fs, "/d/0.tar.hridx", newer);
  EXPECT_EQ(ReadOne(Open(&fs, "/d"), 0).status().code(), Code::kFailedPrecondition);
  Put(&fs, "/d/0.tar.hridx", "");
  EXPECT_EQ(ReadOne(Open(&fs, "/d"), 0).status().code(), Code::kDataLoss);
}

// An index that is whole and lies: every place it names is held against the shard's size.
TEST(DatasetBadInput, IndexThatPointsOutsideTheShard) {
  MemoryFileSystem fs;
  std::string tar = MakeTar({{"a.jpg", "1"}});
  Put(&fs, "/d/0.tar", tar);
  auto identity = IdentifyShard(*fs.OpenForRead("/d/0.tar").value(), Context()).value();
  for (auto [offset, length] : {std::pair<uint64_t, uint64_t>{512, UINT64_MAX},
                                {UINT64_MAX, 1},
                                {uint64_t{1} << 63, uint64_t{1} << 62}}) {
    IndexBuilder builder(ShardKind::kTar);
    IndexBuilder::Field field;
    field.name = "jpg";
    field.offset = offset;
    field.length = length;
    ASSERT_TRUE(builder.Add("a", std::span(&field, 1)).ok());
    Put(&fs, "/d/0.tar.hridx", builder.Finish(identity).value());
    Status status = ReadOne(Open(&fs, "/d"), 0).status();
    EXPECT_EQ(status.code(), Code::kDataLoss);
    EXPECT_THAT(status.ToString(), HasSubstr("damaged"));
  }
}

TEST(DatasetBadInput, AFolderInPlaceOfAFile) {
  MemoryFileSystem fs;
  TwoShards(&fs);
  Index(&fs, {"/d"});
  ASSERT_TRUE(fs.Remove("/d/0.tar").ok());
  ASSERT_TRUE(fs.MakeDirectories("/d/0.tar").ok());
  Status status = ReadOne(Open(&fs, "/d"), 0).status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(status.ToString(), HasSubstr("0.tar"));
  EXPECT_THAT(status.ToString(), HasSubstr("directory"));
}

TEST(DatasetBadInput, UnreadableFiles) {
  MemoryFileSystem memory;
  TwoShards(&memory);
  Index(&memory, {"/d"});
  FaultyFileSystem fs(&memory);
  auto dataset = Open(&fs, "/d");
  fs.FailNth(FileOperation::kMap, 1, Error(Code::kPermissionDenied, "cannot read 0.tar.hridx"));
  EXPECT_EQ(ReadOne(dataset, 0).status().code(), Code::kPermissionDenied);
  fs.FailNth(FileOperation::kOpenForRead, 1, Error(Code::kPermissionDenied, "cannot read 0.tar"));
  Status status = ReadOne(dataset, 0).status();
  EXPECT_EQ(status.code(), Code::kPermissionDenied);
  EXPECT_EQ(status.location().file, "0.tar");
  EXPECT_TRUE(ReadOne(dataset, 0).ok());  // a fault that is gone leaves nothing behind
  fs.FailNth(FileOperation::kRead, 1, Error(Code::kIoError, "the disk is broken"));
  EXPECT_EQ(ReadOne(dataset, 0).status().code(), Code::kIoError);
}

TEST(DatasetBadInput, DamagedTarInPlace) {
  MemoryFileSystem fs;
  TwoShards(&fs);
  Flip(&fs, "/d/0.tar", 1024 + 150);
  Status status = OpenStatus(&fs, "/d");
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_EQ(status.location().offset, 1024u);
  EXPECT_THAT(status.ToString(), HasSubstr("--allow-damage"));
  IndexOptions options;
  options.build.allow_damage = true;
  IndexReport report = Index(&fs, {"/d"}, options);
  EXPECT_EQ(report.shards[0].scan.num_damaged, 1u);
  auto dataset = Open(&fs, "/d");
  EXPECT_EQ(dataset->num_samples(), 6u);
  EXPECT_THAT(ReadOne(dataset, 0).value(), ElementsAre(Pair("jpg", ::testing::_)));
}

TEST(DatasetOpen, TakesTimeByShardsAndNotBySamples) {
  MemoryFileSystem memory;
  Manifest manifest;
  manifest.fields = {"jpg"};
  for (int i = 0; i < 1000; ++i) {
    std::string name = fmt::format("{:04}.tar", i);
    manifest.shards.push_back({name, name + ".hridx", 10'000, 1 << 20, {}, 7});
    Put(&memory, "/d/" + name, "never touched");
    Put(&memory, "/d/" + name + ".hridx", "never touched");
  }
  Put(&memory, "/d/headrace.json", manifest.ToJson());
  FaultyFileSystem fs(&memory);
  auto dataset = Open(&fs, "/d");
  EXPECT_EQ(dataset->num_samples(), 10'000'000u);
  EXPECT_EQ(dataset->version(), manifest.ComputeVersion());
  EXPECT_EQ(fs.count(FileOperation::kMap), 0u);
  EXPECT_EQ(fs.count(FileOperation::kOpenForRead), 0u);
  EXPECT_LE(fs.count(FileOperation::kStat) + fs.count(FileOperation::kList), 4u);
}

// Entries of unknown samples, of shards that nobody read yet, and of a damaged table.
TEST(DatasetOpen, PrefetchIsOnlyAHint) {
  MemoryFileSystem memory;
  FaultyFileSystem fs(&memory);
  TwoShards(&memory);
  Index(&memory, {"/d"});
  const std::vector<uint64_t> ids = {5, 0, 6, 1000, UINT64_MAX, 2, 0, 3};
  auto dataset = Open(&fs, "/d");
  auto reader = SampleReader::Create(dataset, ReadOptions());
  reader->Prefetch(ids);
  reader->Prefetch({});
  EXPECT_EQ(fs.count(FileOperation::kMap), 0u);
  for (uint64_t id : {0, 5}) EXPECT_TRUE(reader->Locate(id).ok());
  EXPECT_EQ(fs.count(FileOperation::kMap), 2u);
  reader->Prefetch(ids);
  EXPECT_EQ(reader->Locate(5)->id, 5u);

  // The table of places stands behind the field names; its bytes are not checked yet.
  std::string bytes = memory.ReadWhole("/d/0.tar.hridx", 1 << 20).value();
  const size_t entry = index_format::kAtSections + index_format::kSectionBytes;
  ASSERT_EQ(LoadLittle<uint32_t>(&bytes[entry]), index_format::kOffsets);
  std::fill_n(bytes.begin() + static_cast<ptrdiff_t>(LoadLittle<uint64_t>(&bytes[entry + 8])),
              LoadLittle<uint64_t>(&bytes[entry + 16]), '\xff');
  Put(&memory, "/d/0.tar.hridx", bytes);
  auto damaged = SampleReader::Create(Open(&memory, "/d"), ReadOptions());
  EXPECT_EQ(damaged->Locate(0).status().code(), Code::kDataLoss);
  damaged->Prefetch(ids);
}

TEST(DatasetOpen, ClosesFilesThatWereNotUsedForLong) {
  MemoryFileSystem memory;
  FaultyFileSystem fs(&memory);
  for (int i = 0; i < 6; ++i)
    Put(&fs, fmt::format("/d/{}.tar", i), MakeTar(MakeSamples(fmt::format("s{}-", i), 1)));
  OpenOptions options;
  options.max_open_files = 2;
  auto dataset = Dataset::Open(&fs, "/d", options).value();
  auto reader = SampleReader::Create(dataset, ReadOptions());
  auto opens = [&](const std::vector<uint64_t>& samples) {
    uint64_t before = fs.count(FileOperation::kOpenForRead);
    for (uint64_t sample : samples) EXPECT_TRUE(reader->Read(sample, {}, Context()).ok());
    return fs.count(FileOperation::kOpenForRead) - before;
  };
  EXPECT_EQ(opens({0, 1, 0, 1, 1, 0}), 2u);
  EXPECT_EQ(opens({2, 0}), 1u);  // closes 1
  EXPECT_EQ(opens({1}), 1u);
  EXPECT_EQ(opens({0, 1}), 0u);
  fs.FailNth(FileOperation::kOpenForRead, 1,
             Error(Code::kResourceExhausted, "too many open files"));
  EXPECT_EQ(opens({5}), 2u);  // asked again after the others were closed
}

}  // namespace
}  // namespace headrace::dataset
