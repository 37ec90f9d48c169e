// Datasets in an object store: the same as on a file system, and what a store's faults become.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "headrace/dataset/dataset.h"
#include "headrace/dataset/index_build.h"
#include "headrace/dataset/testing/mds_maker.h"
#include "headrace/dataset/testing/tar_maker.h"
#include "headrace/dataset/testing/tfrecord_maker.h"
#include "headrace/dataset/verify.h"
#include "headrace/env/testing/memory_file_system.h"
#include "headrace/object/object_file_system.h"
#include "headrace/object/testing/faulty_store.h"
#include "headrace/object/testing/memory_store.h"

namespace headrace::dataset {
namespace {

using object::FaultyStore;
using object::StoreOperation;
using ::testing::HasSubstr;

// Puts all files below a folder into a store, with their paths as keys.
void Copy(FileSystem* fs, const std::string& folder, object::ObjectStore* store) {
  auto entries = fs->List(folder);
  ASSERT_TRUE(entries.ok()) << entries.status().ToString();
  for (const DirectoryEntry& entry : *entries) {
    std::string path = JoinPath(folder, entry.name);
    if (entry.kind == FileKind::kDirectory) {
      Copy(fs, path, store);
    } else {
      std::string content = fs->ReadWhole(path, 1 << 30).value();
      ASSERT_TRUE(store->Put(path.substr(1), AsBytes(content), {}, Context()).ok());
    }
  }
}

// What a dataset says and holds, as text.
std::string Describe(Result<std::shared_ptr<const Dataset>> dataset) {
  if (!dataset.ok()) return "error: " + std::string(CodeName(dataset.status().code()));
  std::string text = fmt::format("{} {} {}\n", (*dataset)->version(), (*dataset)->kind(),
                                 (*dataset)->num_samples());
  auto reader = SampleReader::Create(*dataset, {});
  for (uint64_t i = 0; i < (*dataset)->num_samples(); ++i) {
    auto sample = reader->Read(i, {}, Context());
    if (!sample.ok()) {
      text += "error: " + std::string(CodeName(sample.status().code())) + "\n";
      continue;
    }
    text += fmt::format("{} in {}:", sample->key, sample->shard);
    for (const FieldView& field : sample->fields)
      text += fmt::format(" {}={}", (*dataset)->fields()[field.field], AsText(field.data));
    text += "\n";
  }
  return text;
}

class ObjectDatasetTest : public ::testing::Test {
 protected:
  explicit ObjectDatasetTest(const object::MemoryStoreOptions& options = {})
      : memory_(object::MakeMemoryStore(options)),
        store_(std::make_shared<FaultyStore>(memory_)),
        bucket_(object::MakeObjectFileSystem(store_)) {}

  // Opens the same path of both, after copying.
  void ExpectSame(const std::string& path) {
    Copy(&files_, "/", memory_.get());
    std::string expected = Describe(Dataset::Open(&files_, path, {}));
    EXPECT_EQ(Describe(Dataset::Open(bucket_.get(), "mem://test" + path, {})), expected) << path;
  }
  // Two indexed shards of three samples each.
  void MakeTwoShards() {
    Put(&files_, "/d/0.tar", MakeTar(MakeSamples("a/", 3)));
    Put(&files_, "/d/1.tar", MakeTar(MakeSamples("b/", 3)));
    IndexOptions options;
    options.build.checksums = true;
    std::vector<std::string> paths = {"/d"};
    ASSERT_TRUE(IndexDataset(&files_, paths, options, Context()).ok());
    Copy(&files_, "/", memory_.get());
  }
  std::shared_ptr<const Dataset> Open() {
    auto dataset = Dataset::Open(bucket_.get(), "mem://test/d", {});
    EXPECT_TRUE(dataset.ok()) << dataset.status().ToString();
    return dataset.ok() ? *dataset : nullptr;
  }
  Status StatusOfRead(const std::shared_ptr<const Dataset>& dataset, uint64_t id) {
    return SampleReader::Create(dataset, {})->Read(id, {}, Context()).status();
  }

  MemoryFileSystem files_;
  std::shared_ptr<object::ObjectStore> memory_;
  std::shared_ptr<FaultyStore> store_;
  std::shared_ptr<FileSystem> bucket_;
};

TEST_F(ObjectDatasetTest, ReadsTarsInPlaceAndIndexed) {
  Put(&files_, "/d/0.tar", MakeTar(MakeSamples("a/", 40)));
  Put(&files_, "/d/1.tar", MakeTar(MakeSamples("b/", 3)));
  ExpectSame("/d");
  ExpectSame("/d/1.tar");
  std::vector<std::string> paths = {"/d"};
  for (bool checksums : {false, true}) {
    IndexOptions options;
    options.build.checksums = checksums;
    ASSERT_TRUE(IndexDataset(&files_, paths, options, Context()).ok());
    ExpectSame("/d");
    ExpectSame("/d/");
    ExpectSame("/d/headrace.json");
  }
}

TEST_F(ObjectDatasetTest, ReadsFoldersAndLists) {
  for (const char* name : {"cat/1.jpg", "cat/2.jpg", "cat/2.json", "dog/1.jpg", "dog/deep/3.jpg"})
    Put(&files_, JoinPath("/photos", name), std::string("bytes of ") + name);
  ExpectSame("/photos");
  Put(&files_, "/list.csv", "path,label\nphotos/cat/1.jpg,0\nphotos/dog/1.jpg,1\n");
  ExpectSame("/list.csv");
  Put(&files_, "/list.jsonl", "{\"path\": \"photos/cat/2.jpg\", \"label\": 3}\n");
  ExpectSame("/list.jsonl");
  for (const char* source : {"/photos", "/list.csv"}) {
    std::vector<std::string> paths = {source};
    ASSERT_TRUE(IndexDataset(&files_, paths, {}, Context()).ok());
    ExpectSame(source);
  }
}

TEST_F(ObjectDatasetTest, ReadsTarsOfOtherPrograms) {
  const std::string golden = HEADRACE_GOLDEN_DIR;
  auto entries = PosixFileSystem()->List(golden);
  ASSERT_TRUE(entries.ok());
  for (const DirectoryEntry& entry : *entries) {
    if (!entry.name.ends_with(".tar")) continue;
    Put(&files_, "/" + entry.name,
        PosixFileSystem()->ReadWhole(JoinPath(golden, entry.name), 1 << 20).value());
    ExpectSame("/" + entry.name);
  }
}

TEST_F(ObjectDatasetTest, NothingThereIsNotFound) {
  ExpectSame("/none");
  Put(&files_, "/d/readme", "no samples");
  ExpectSame("/d");
  ExpectSame("/d/readme");
}

TEST_F(ObjectDatasetTest, IndexesInTheBucket) {
  Put(&files_, "/d/0.tar", MakeTar(MakeSamples("a/", 5)));
  Copy(&files_, "/", memory_.get());
  std::vector<std::string> paths = {"mem://test/d"};
  IndexOptions options;
  options.build.checksums = true;
  auto report = IndexDataset(bucket_.get(), paths, options, Context());
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  EXPECT_EQ(report->manifest_path, "mem://test/d/headrace.json");
  std::vector<std::string> local = {"/d"};
  ASSERT_TRUE(IndexDataset(&files_, local, options, Context()).ok());
  EXPECT_EQ(Describe(Dataset::Open(bucket_.get(), "mem://test/d", {})),
            Describe(Dataset::Open(&files_, "/d", {})));
  // Into another folder of the bucket, named by an absolute place.
  options.output = "mem://test/indexes";
  ASSERT_TRUE(IndexDataset(bucket_.get(), paths, options, Context()).ok());
  EXPECT_EQ(Describe(Dataset::Open(bucket_.get(), "mem://test/indexes", {})),
            Describe(Dataset::Open(&files_, "/d", {})));
}

TEST_F(ObjectDatasetTest, ReadsTfRecordsAndMdsInPlaceAndIndexed) {
  auto example = [](int64_t label) {
    return MakeExample({{"label", Int64Feature({label})}, {"x", BytesFeature({"text"})}});
  };
  Put(&files_, "/t/a.tfrecord-00000-of-00002", MakeTfRecord({example(1), example(2)}));
  Put(&files_, "/t/a.tfrecord-00001-of-00002", MakeTfRecord({example(3)}));
  const std::vector<MdsTestColumn> columns = {{"label", "uint8", 1}, {"text", "str"}};
  const std::string shard = MakeMdsShard(columns, {{"\1", "one"}, {"\2", "two"}});
  Put(&files_, "/m/shard.00000.mds", shard);
  Put(&files_, "/m/index.json", MakeMdsIndex(columns, {{.samples = 2, .bytes = shard.size()}}));
  for (const char* path : {"/t", "/t/a.tfrecord-00001-of-00002", "/m", "/m/index.json"})
    ExpectSame(path);
  for (const char* path : {"/t", "/m"}) {
    std::vector<std::string> paths = {path};
    ASSERT_TRUE(IndexDataset(&files_, paths, {}, Context()).ok());
    ExpectSame(path);
  }
}

TEST_F(ObjectDatasetTest, VerifiesEverything) {
  MakeTwoShards();
  auto report = Verify(Open(), {}, Context());
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  EXPECT_EQ(report->num_faults, 0u);
  store_->FlipBit("1.tar", 700);
  report = Verify(Open(), {}, Context());
  ASSERT_TRUE(report.ok());
  EXPECT_GT(report->num_faults, 0u);
}

TEST_F(ObjectDatasetTest, AManifestThatCannotBeReadIsNotPassedOver) {
  MakeTwoShards();
  for (Code code : {Code::kUnavailable, Code::kIoError}) {
    store_->FailNth(StoreOperation::kHead, 1, Error(code, "busy"));
    EXPECT_EQ(Dataset::Open(bucket_.get(), "mem://test/d", {}).status().code(), code);
  }
  store_->FailNth(StoreOperation::kHead, 1, Error(Code::kPermissionDenied, "no"), 1000);
  EXPECT_EQ(Dataset::Open(bucket_.get(), "mem://test/d", {}).status().code(),
            Code::kPermissionDenied);
}

// As of a bucket that may be read and not listed: what is not there is "not allowed".
TEST_F(ObjectDatasetTest, WithoutTheRightToListTheManifestIsEnough) {
  MakeTwoShards();
  store_->FailNth(StoreOperation::kList, 1, Error(Code::kPermissionDenied, "no listing"), 1000);
  EXPECT_EQ(Open()->num_samples(), 6u);
}

TEST_F(ObjectDatasetTest, FaultsNameTheObject) {
  MakeTwoShards();
  auto dataset = Open();
  ASSERT_TRUE(StatusOfRead(dataset, 0).ok());
  ASSERT_TRUE(StatusOfRead(dataset, 3).ok());
  store_->FailNth(StoreOperation::kGet, 1, Error(Code::kUnavailable, "503"));
  EXPECT_EQ(StatusOfRead(dataset, 0).code(), Code::kUnavailable);
  EXPECT_TRUE(StatusOfRead(dataset, 0).ok());
  store_->FlipBit("0.tar", 600);
  Status damaged = StatusOfRead(dataset, 0);
  EXPECT_EQ(damaged.code(), Code::kDataLoss);
  EXPECT_EQ(damaged.location().file, "0.tar");
  EXPECT_EQ(damaged.location().key, "a/00000");
}

TEST_F(ObjectDatasetTest, AShardReplacedWhileItIsReadIsAnError) {
  MakeTwoShards();
  auto dataset = Open();
  ASSERT_TRUE(StatusOfRead(dataset, 0).ok());
  std::string other = MakeTar(MakeSamples("c/", 3));
  ASSERT_TRUE(memory_->Put("d/0.tar", AsBytes(other), {}, Context()).ok());
  Status replaced = StatusOfRead(dataset, 1);
  EXPECT_EQ(replaced.code(), Code::kFailedPrecondition);
  EXPECT_THAT(replaced.ToString(), HasSubstr("mem://test/d/0.tar"));
  ASSERT_TRUE(memory_->Delete("d/0.tar", Context()).ok());
  EXPECT_EQ(StatusOfRead(dataset, 1).code(), Code::kNotFound);
  EXPECT_TRUE(StatusOfRead(dataset, 4).ok()) << "the other shard goes on";
}

TEST_F(ObjectDatasetTest, AShardThatIsMissingIsToldAtOpening) {
  MakeTwoShards();
  ASSERT_TRUE(memory_->Delete("d/1.tar", Context()).ok());
  Status missing = Dataset::Open(bucket_.get(), "mem://test/d", {}).status();
  EXPECT_EQ(missing.code(), Code::kFailedPrecondition);
  EXPECT_THAT(missing.ToString(), HasSubstr("mem://test/d/1.tar"));
}

TEST_F(ObjectDatasetTest, AManifestFromAfarNamesNothingElsewhere) {
  MakeTwoShards();
  Manifest manifest = Manifest::Load(&files_, "/d/headrace.json").value();
  for (const char* base : {"/etc", "s3://other/bucket", "file:///etc", "mem://tests"}) {
    manifest.base = base;
    ASSERT_TRUE(memory_->Put("d/headrace.json", AsBytes(manifest.ToJson()), {}, Context()).ok());
    EXPECT_EQ(Dataset::Open(bucket_.get(), "mem://test/d", {}).status().code(),
              Code::kInvalidArgument)
        << base;
  }
  manifest.base = "../../..";
  ASSERT_TRUE(memory_->Put("d/headrace.json", AsBytes(manifest.ToJson()), {}, Context()).ok());
  EXPECT_EQ(Dataset::Open(bucket_.get(), "mem://test/d", {}).status().code(),
            Code::kInvalidArgument);
  manifest.base = "mem://test/d";
  EXPECT_EQ(*manifest.DataFolder("/local"), "mem://test/d") << "a person's own may";
}

// A web server: no listing, no writing, no asking for a version.
class WebDatasetTest : public ObjectDatasetTest {
 protected:
  WebDatasetTest()
      : ObjectDatasetTest({.abilities = {.list = false, .write = true, .get_if_match = false}}) {}
};

TEST_F(WebDatasetTest, AManifestIsEnough) {
  MakeTwoShards();
  auto dataset = Open();
  ASSERT_NE(dataset, nullptr);
  EXPECT_EQ(Describe(dataset), Describe(Dataset::Open(&files_, "/d", {})));
  EXPECT_EQ(Describe(Dataset::Open(bucket_.get(), "mem://test/d/0.tar", {})),
            Describe(Dataset::Open(&files_, "/d/0.tar", {})));
}

TEST_F(WebDatasetTest, WithoutOneItSaysWhatIsMissing) {
  Put(&files_, "/d/0.tar", MakeTar(MakeSamples("a/", 3)));
  Copy(&files_, "/", memory_.get());
  EXPECT_EQ(Dataset::Open(bucket_.get(), "mem://test/d", {}).status().code(), Code::kNotFound);
}

}  // namespace
}  // namespace headrace::dataset
