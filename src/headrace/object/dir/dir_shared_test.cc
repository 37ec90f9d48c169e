// A folder on a file system that several machines share: handles that go stale, names that show
// late, answers that are lost, other machines that write. What they do is played by a second store,
// or by faults; there is no such file system here.
#include <gtest/gtest.h>

#include <cerrno>
#include <optional>

#include "headrace/env/testing/faulty_file_system.h"
#include "headrace/env/testing/memory_file_system.h"
#include "headrace/object/dir/dir_store.h"

namespace headrace::object {
namespace {

class DirSharedTest : public ::testing::Test {
 protected:
  DirSharedTest() { EXPECT_TRUE(memory_.MakeDirectories("/store").ok()); }

  std::shared_ptr<ObjectStore> Open(std::chrono::nanoseconds believed = std::chrono::hours(1),
                                    uint32_t open_files = 16) {
    return OpenDirStore(
               "/store",
               {.fs = &files_, .threads = 2, .open_files = open_files, .believed = believed})
        .value();
  }
  // Another machine's view of the folder.
  std::shared_ptr<ObjectStore> Elsewhere() {
    return OpenDirStore("/store", {.fs = &memory_, .threads = 2}).value();
  }
  static std::string Put(ObjectStore& store, const std::string& key, const std::string& content,
                         const PutOptions& options = {}) {
    auto etag = store.Put(key, AsBytes(content), options, Context());
    return etag.ok() ? *etag : "error: " + std::string(CodeName(etag.status().code()));
  }
  static std::string Read(ObjectStore& store, const std::string& key, size_t bytes,
                          const std::string& if_match = "") {
    std::string out(bytes, '?');
    auto got = store.Get({.key = key,
                          .offset = 0,
                          .out = std::as_writable_bytes(std::span(out)),
                          .if_match = if_match},
                         Context());
    return got.ok() ? out : "error: " + std::string(CodeName(got.status().code()));
  }
  uint64_t count(FileOperation operation) const { return files_.count(operation); }

  const Status stale_ = ErrnoError(ESTALE, "cannot read");
  MemoryFileSystem memory_;
  FaultyFileSystem files_{&memory_};
};

// A mount that remembers which file "key" stood for; the server gives no second name to that.
class RememberingFiles final : public FaultyFileSystem {
 public:
  using FaultyFileSystem::FaultyFileSystem;
  void Remember(const FileInfo& file) { remembered_ = file; }
  Result<FileInfo> Stat(const std::string& path) override {
    if (remembered_ && path.ends_with("/key")) return *remembered_;
    return FaultyFileSystem::Stat(path);
  }
  Status Link(const std::string& from, const std::string&) override {
    return Error(Code::kNotFound, "{} is not there", from);
  }

 private:
  std::optional<FileInfo> remembered_;
};

TEST_F(DirSharedTest, AMatchWithWhatWasReplacedElsewhereIsRefused) {
  RememberingFiles files(&memory_);
  auto store = OpenDirStore("/store", {.fs = &files, .threads = 2}).value();
  std::string first = Put(*store, "key", "one");
  files.Remember(*memory_.Stat("/store/key"));
  Put(*Elsewhere(), "key", "two");
  EXPECT_EQ(store->Head("key", Context())->etag, first) << "what it remembers";
  EXPECT_EQ(Put(*store, "key", "three", {.if_absent = false, .if_match = first}),
            "error: failed precondition");
  EXPECT_EQ(Read(*Elsewhere(), "key", 3), "two");
}

TEST_F(DirSharedTest, AFileIsOpenedOnceForAllReadsOfAVersion) {
  auto store = Open();
  std::string etag = Put(*store, "a/key", "content");
  files_.Heal();  // counts from here
  for (int i = 0; i < 5; ++i) EXPECT_EQ(Read(*store, "a/key", 7, etag), "content");
  EXPECT_EQ(count(FileOperation::kOpenForRead), 1u);
  EXPECT_EQ(count(FileOperation::kStat), 0u);
  EXPECT_EQ(count(FileOperation::kList), 0u);
}

TEST_F(DirSharedTest, WhoNamesNoVersionGetsTheOneThatIsThere) {
  auto store = Open();
  Put(*store, "key", "first");
  EXPECT_EQ(Read(*store, "key", 5), "first");
  Put(*Elsewhere(), "key", "second");
  EXPECT_EQ(Read(*store, "key", 6), "second");
  ASSERT_TRUE(Elsewhere()->Delete("key", Context()).ok());
  EXPECT_EQ(Read(*store, "key", 6), "error: not found");
}

TEST_F(DirSharedTest, AnOpenVersionStaysWholeWhenItsNameGoesToAnother) {
  auto store = Open();
  std::string etag = Put(*store, "key", "first");
  EXPECT_EQ(Read(*store, "key", 5, etag), "first");
  Put(*Elsewhere(), "key", "other");
  EXPECT_EQ(Read(*store, "key", 5, etag), "first") << "open, and believed for an hour";
  auto strict = Open(std::chrono::nanoseconds(0));
  EXPECT_EQ(Read(*strict, "key", 5, etag), "error: failed precondition");
  EXPECT_EQ(Read(*strict, "key", 5), "other");
}

TEST_F(DirSharedTest, WhatOneWritesOrDeletesOneselfShowsAtOnce) {
  auto store = Open();
  std::string first = Put(*store, "key", "first");
  EXPECT_EQ(Read(*store, "key", 5, first), "first");
  std::string second = Put(*store, "key", "other");
  EXPECT_EQ(Read(*store, "key", 5, first), "error: failed precondition");
  EXPECT_EQ(Read(*store, "key", 5, second), "other");
  ASSERT_TRUE(store->Delete("key", Context()).ok());
  EXPECT_EQ(Read(*store, "key", 5, second), "error: not found");
  auto upload = store->StartUpload("key", Context()).value();
  ASSERT_TRUE(upload->PutPart(1, AsBytes("parts"), Context()).ok());
  ASSERT_TRUE(upload->Complete(1, Context()).ok());
  EXPECT_EQ(Read(*store, "key", 5), "parts");
}

TEST_F(DirSharedTest, AKeptHandleThatGoesStaleIsOpenedAnew) {
  auto store = Open();
  std::string etag = Put(*store, "key", "content");
  EXPECT_EQ(Read(*store, "key", 7, etag), "content");
  files_.Heal();
  files_.FailNth(FileOperation::kRead, 1, stale_);
  EXPECT_EQ(Read(*store, "key", 7, etag), "content");
  EXPECT_EQ(count(FileOperation::kOpenForRead), 1u);
  // What has the name by now is another version: an error, never its bytes.
  Put(*Elsewhere(), "key", "another");
  files_.FailNth(FileOperation::kRead, 1, stale_);
  EXPECT_EQ(Read(*store, "key", 7, etag), "error: failed precondition");
}

TEST_F(DirSharedTest, AServerThatDoesNotAnswerInTimeIsNotTheCallersDeadline) {
  auto store = Open();
  Put(*store, "key", "content");
  const Status late = ErrnoError(ETIMEDOUT, "cannot read");
  files_.FailNth(FileOperation::kRead, 1, late);
  EXPECT_EQ(Read(*store, "key", 7), "content");
  files_.FailNth(FileOperation::kRead, 1, late, 2);
  EXPECT_EQ(Read(*store, "key", 7), "error: unavailable");
}

TEST_F(DirSharedTest, ANameThatShowsLateIsNotFoundUntilThen) {
  auto store = Open();
  Put(*Elsewhere(), "key", "content");
  const Status unseen = Error(Code::kNotFound, "not seen yet");
  files_.FailNth(FileOperation::kOpenForRead, 1, unseen, 2);
  EXPECT_EQ(Read(*store, "key", 7), "error: not found");
  EXPECT_EQ(Read(*store, "key", 7), "error: not found");
  EXPECT_EQ(Read(*store, "key", 7), "content");
}

TEST_F(DirSharedTest, AFolderThatShowsLateIsWaitedFor) {
  auto store = Open();
  files_.FailNth(FileOperation::kCreate, 1, Error(Code::kNotFound, "not seen yet"), 5);
  std::string etag = Put(*store, "new/key", "content");
  EXPECT_EQ(Read(*store, "new/key", 7, etag), "content");
}

TEST_F(DirSharedTest, AServerThatDoesARenameTwiceHasDoneIt) {
  auto store = Open();
  const PutOptions absent{.if_absent = true, .if_match = {}};
  files_.LoseNth(FileOperation::kRename, 1, Error(Code::kAlreadyExists, "asked twice"));
  std::string etag = Put(*store, "link", "mine", absent);
  EXPECT_EQ(Read(*store, "link", 4, etag), "mine");
  for (const char* key : {"link", "new"}) {
    files_.LoseNth(FileOperation::kRename, 1, Error(Code::kNotFound, "asked twice"));
    etag = Put(*store, key, "again");
    EXPECT_EQ(Read(*store, key, 5, etag), "again");
  }
  EXPECT_EQ(Put(*store, "link", "theirs", absent), "error: already exists");
  files_.FailNth(FileOperation::kRename, 1, Error(Code::kNotFound, "the folder is gone"));
  EXPECT_EQ(Put(*store, "link", "lost"), "error: not found");
  EXPECT_EQ(Read(*store, "link", 5), "again");
  files_.LoseNth(FileOperation::kRemove, 1, Error(Code::kNotFound, "asked twice"));
  EXPECT_TRUE(store->Delete("link", Context()).ok());
  EXPECT_EQ(Read(*store, "link", 5), "error: not found");
}

TEST_F(DirSharedTest, KeepsNoMoreFilesOpenThanItMay) {
  auto store = Open(std::chrono::hours(1), 2);
  std::vector<std::string> etags;
  for (const char* key : {"a", "b", "c"}) etags.push_back(Put(*store, key, key));
  files_.Heal();
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(Read(*store, "a", 1, etags[0]), "a");
    EXPECT_EQ(Read(*store, "b", 1, etags[1]), "b");
  }
  EXPECT_EQ(count(FileOperation::kOpenForRead), 2u);
  EXPECT_EQ(Read(*store, "c", 1, etags[2]), "c");
  EXPECT_EQ(Read(*store, "a", 1, etags[0]), "a");
  EXPECT_EQ(count(FileOperation::kOpenForRead), 4u);
}

}  // namespace
}  // namespace headrace::object
