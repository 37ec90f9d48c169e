#include "headrace/object/upload_sweep.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "headrace/object/testing/faulty_store.h"
#include "headrace/object/testing/memory_store.h"

namespace headrace::object {
namespace {

class UploadSweepTest : public ::testing::Test {
 protected:
  // As a writer leaves it that is killed: begun, and neither ended nor given up.
  void Leave(const std::string& key) {
    auto upload = store_->StartUpload(key, {});
    ASSERT_TRUE(upload.ok());
    ASSERT_TRUE((*upload)->PutPart(1, AsBytes("part"), {}).ok());
    writers_.push_back(*std::move(upload));
  }
  std::multiset<std::string> Left() {
    std::multiset<std::string> keys;
    auto left = store_->ListUploads("", {});
    EXPECT_TRUE(left.ok());
    for (const PendingUpload& upload : *left) keys.insert(upload.key);
    return keys;
  }

  std::shared_ptr<FaultyStore> store_ = std::make_shared<FaultyStore>(MakeMemoryStore());
  std::vector<std::unique_ptr<Upload>> writers_;
};

TEST_F(UploadSweepTest, GivesUpWhatIsNamedAndNothingElse) {
  for (const char* key : {"set/a", "set/a", "set/b", "other/a"}) Leave(key);
  ASSERT_EQ(Left().size(), 4u);
  auto is_a = [](const PendingUpload& upload) { return upload.key.ends_with("/a"); };
  auto swept = SweepUploads(store_.get(), "set/", is_a, {});
  ASSERT_TRUE(swept.ok()) << swept.status().ToString();
  EXPECT_EQ(*swept, 2u);
  EXPECT_EQ(Left(), (std::multiset<std::string>{"other/a", "set/b"}));
}

TEST_F(UploadSweepTest, OneThatIsGoneIsNoFailureAndAFailureEndsNothing) {
  for (const char* key : {"set/a", "set/b", "set/c"}) Leave(key);
  auto all = [](const PendingUpload&) { return true; };
  store_->FailNth(StoreOperation::kAbortUpload, 1, Error(Code::kNotFound, "gone"));
  store_->FailNth(StoreOperation::kAbortUpload, 2, Error(Code::kPermissionDenied, "not allowed"));
  EXPECT_EQ(SweepUploads(store_.get(), "set/", all, {}).status().code(), Code::kPermissionDenied);
  EXPECT_EQ(Left().size(), 2u);
  store_->FailNth(StoreOperation::kListUploads, 1, Error(Code::kUnavailable, "away"));
  EXPECT_EQ(SweepUploads(store_.get(), "set/", all, {}).status().code(), Code::kUnavailable);
  EXPECT_EQ(*SweepUploads(store_.get(), "set/", all, {}), 2u);
}

}  // namespace
}  // namespace headrace::object
