#include "headrace/dataset/pack_upload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headrace/dataset/dataset.h"
#include "headrace/dataset/pack.h"
#include "headrace/dataset/testing/tar_maker.h"
#include "headrace/env/testing/memory_file_system.h"
#include "headrace/object/object_file_system.h"
#include "headrace/object/testing/faulty_store.h"
#include "headrace/object/testing/memory_store.h"

namespace headrace::dataset {
namespace {

using object::FaultyStore;
using object::StoreOperation;
using ::testing::HasSubstr;

class UploadDatasetTest : public ::testing::Test {
 protected:
  UploadDatasetTest() {
    for (int i = 0; i < 20; ++i)
      Put(&files_, fmt::format("/source/{:02}.txt", i), std::string(100 * i, 'x'));
    PackOptions options;
    options.shard_samples = 6;
    options.threads = 1;
    auto packed = Pack(&files_, {"/source"}, "/packed", options, Context());
    EXPECT_TRUE(packed.ok()) << packed.status().ToString();
  }
  Status Upload(const std::string& to = "mem://test/set") {
    return UploadDataset(&files_, "/packed", bucket_.get(), to, {.threads = 2}, Context());
  }
  bool IsThere() { return Dataset::Open(bucket_.get(), "mem://test/set", {}).ok(); }

  MemoryFileSystem files_;
  std::shared_ptr<FaultyStore> store_ = std::make_shared<FaultyStore>(object::MakeMemoryStore());
  std::shared_ptr<FileSystem> bucket_ = object::MakeObjectFileSystem(store_);
};

TEST_F(UploadDatasetTest, TheSetIsThereAsItWas) {
  EXPECT_TRUE(CheckUploadPlace(bucket_.get(), "mem://test/set").ok());
  ASSERT_TRUE(Upload().ok());
  auto here = Dataset::Open(&files_, "/packed", {}).value();
  auto there = Dataset::Open(bucket_.get(), "mem://test/set", {});
  ASSERT_TRUE(there.ok()) << there.status().ToString();
  EXPECT_EQ((*there)->version(), here->version());
  auto a = SampleReader::Create(here, {}), b = SampleReader::Create(*there, {});
  for (uint64_t i = 0; i < here->num_samples(); ++i)
    EXPECT_EQ(AsText(a->Read(i, {}, Context())->fields[0].data),
              AsText(b->Read(i, {}, Context())->fields[0].data));
  EXPECT_EQ(CheckUploadPlace(bucket_.get(), "mem://test/set").code(), Code::kAlreadyExists);
  EXPECT_EQ(Upload().code(), Code::kAlreadyExists);
}

// At each write: nothing is there after it, and the same call brings it to an end.
TEST_F(UploadDatasetTest, BrokenOffThereIsNoSet) {
  const Status busy = Error(Code::kUnavailable, "503");
  for (uint64_t nth = 1;; ++nth) {
    store_->Heal();
    store_->FailNth(StoreOperation::kPut, nth, busy);
    Status sent = Upload();
    if (sent.ok()) break;
    EXPECT_EQ(sent.code(), Code::kUnavailable);
    EXPECT_FALSE(IsThere());
    if (nth > 1) {
      EXPECT_EQ(Dataset::Open(bucket_.get(), "mem://test/set", {}).status().code(),
                Code::kFailedPrecondition);
    }
    ASSERT_LT(nth, 20u);
  }
  EXPECT_TRUE(IsThere());
}

// A killed run leaves parts that no listing shows.
TEST_F(UploadDatasetTest, PartsThatWereLeftAreGivenUp) {
  std::vector<std::unique_ptr<object::Upload>> killed;  // neither ended nor given up
  auto leave = [&](const std::string& key) {
    auto upload = store_->StartUpload(key, {});
    ASSERT_TRUE(upload.ok());
    ASSERT_TRUE((*upload)->PutPart(1, AsBytes("part"), {}).ok());
    killed.push_back(*std::move(upload));
  };
  for (const char* key : {"set/shard-000000.tar", "set/shard-000000.tar", "set/of-others.tar"})
    leave(key);
  ASSERT_TRUE(Upload().ok());
  auto left = store_->ListUploads("", {});
  ASSERT_TRUE(left.ok());
  ASSERT_EQ(left->size(), 1u);
  EXPECT_EQ((*left)[0].key, "set/of-others.tar");
  // Where it is not allowed the set is there all the same.
  leave("more/shard-000000.tar");
  store_->FailNth(StoreOperation::kListUploads, 1, Error(Code::kPermissionDenied, "not allowed"));
  EXPECT_TRUE(Upload("mem://test/more").ok());
}

TEST_F(UploadDatasetTest, NothingOfOthersIsReplaced) {
  Put(bucket_.get(), "mem://test/set/notes.txt", "mine");
  Status refused = Upload();
  EXPECT_EQ(refused.code(), Code::kAlreadyExists);
  EXPECT_THAT(refused.ToString(), HasSubstr("notes.txt"));
}

TEST_F(UploadDatasetTest, DamageIsNotSent) {
  std::string tar = files_.ReadWhole("/packed/shard-000001.tar", 1 << 20).value();
  tar[700] ^= 1;
  Put(&files_, "/packed/shard-000001.tar", tar);
  Status refused = Upload();
  EXPECT_EQ(refused.code(), Code::kFailedPrecondition);
  EXPECT_THAT(refused.ToString(), HasSubstr("shard-000001.tar"));
  EXPECT_FALSE(IsThere());
  EXPECT_EQ(UploadDataset(&files_, "/source", bucket_.get(), "mem://test/x", {}, Context()).code(),
            Code::kFailedPrecondition);
}

}  // namespace
}  // namespace headrace::dataset
