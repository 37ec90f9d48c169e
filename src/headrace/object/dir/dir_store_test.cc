// What a folder as a store must do beyond the suite: power cuts, handles gone stale, files of
// others.
#include "headrace/object/dir/dir_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>

#include "headrace/env/testing/child_process.h"
#include "headrace/env/testing/faulty_file_system.h"
#include "headrace/env/testing/memory_file_system.h"
#include "headrace/env/testing/temporary_directory.h"

namespace headrace::object {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::shared_ptr<ObjectStore> Open(FileSystem* fs, const std::string& folder) {
  auto store = OpenDirStore(folder, {.fs = fs, .threads = 2});
  EXPECT_TRUE(store.ok()) << store.status().ToString();
  return store.ok() ? *store : nullptr;
}

// The content, or "error: not found" and the like.
std::string Read(ObjectStore* store, const std::string& key) {
  auto info = store->Head(key, Context());
  if (!info.ok()) return "error: " + std::string(CodeName(info.status().code()));
  std::string content(info->size_bytes, '?');
  auto got = store->Get(
      {.key = key, .offset = 0, .out = std::as_writable_bytes(std::span(content)), .if_match = {}},
      Context());
  return got.ok() ? content : "error: " + std::string(CodeName(got.status().code()));
}

std::vector<std::string> Keys(ObjectStore* store) {
  auto page = store->List({}, Context());
  std::vector<std::string> keys;
  if (!page.ok()) return {page.status().ToString()};
  for (const ObjectInfo& info : page->objects) keys.push_back(info.key);
  return keys;
}

void WriteFile(FileSystem* fs, const std::string& path, std::string_view content) {
  ASSERT_TRUE(fs->MakeDirectories(std::string(DirectoryName(path))).ok());
  ASSERT_TRUE(fs->WriteAtomically(path, AsBytes(content)).ok());
}

TEST(DirStore, AFolderOfFilesIsAStore) {
  TemporaryDirectory dir;
  WriteFile(PosixFileSystem(), dir / "train/0.tar", "zero");
  WriteFile(PosixFileSystem(), dir / "train/100%.txt", "percent");
  WriteFile(PosixFileSystem(), dir / "README", "read me");
  ASSERT_TRUE(PosixFileSystem()->MakeDirectories(dir / "empty").ok());
  auto store = Open(PosixFileSystem(), dir.path());
  EXPECT_EQ(store->name(), "file://" + dir.path());
  EXPECT_THAT(Keys(store.get()), ElementsAre("README", "train/0.tar", "train/100%.txt"));
  EXPECT_EQ(Read(store.get(), "train/0.tar"), "zero");
  EXPECT_EQ(Read(store.get(), "train"), "error: not found");
  EXPECT_EQ(Read(store.get(), "empty"), "error: not found");
  EXPECT_EQ(Read(store.get(), "README/x"), "error: not found");
}

TEST(DirStore, FilesOfItsOwnAreNoObjects) {
  TemporaryDirectory dir;
  auto store = Open(PosixFileSystem(), dir.path());
  ASSERT_TRUE(store->Put("a/b", AsBytes("x"), {}, Context()).ok());
  WriteFile(PosixFileSystem(), dir / "a/.headrace-tmp-1-1", "left behind");
  WriteFile(PosixFileSystem(), dir / "a/%=%41", "not how it is written");
  auto upload = store->StartUpload("c", Context());
  ASSERT_TRUE(upload.ok());
  ASSERT_TRUE((*upload)->PutPart(1, AsBytes("part"), Context()).ok());
  EXPECT_THAT(Keys(store.get()), ElementsAre("a/b"));
  EXPECT_EQ(Read(store.get(), "a/.headrace-tmp-1-1"), "error: not found");
}

TEST(DirStore, KeysThatCannotBothBeKeptAreRefused) {
  TemporaryDirectory dir;
  auto store = Open(PosixFileSystem(), dir.path());
  ASSERT_TRUE(store->Put("a", AsBytes("x"), {}, Context()).ok());
  EXPECT_EQ(store->Put("a/b", AsBytes("y"), {}, Context()).status().code(), Code::kInvalidArgument);
  ASSERT_TRUE(store->Put("c/d", AsBytes("x"), {}, Context()).ok());
  for (bool if_absent : {false, true})
    EXPECT_EQ(store->Put("c", AsBytes("y"), {.if_absent = if_absent, .if_match = {}}, Context())
                  .status()
                  .code(),
              Code::kInvalidArgument);
  EXPECT_THAT(Keys(store.get()), ElementsAre("a", "c/d"));
  // The last object of a folder takes the folder with it.
  ASSERT_TRUE(store->Delete("c/d", Context()).ok());
  EXPECT_TRUE(store->Put("c", AsBytes("y"), {}, Context()).ok());
}

TEST(DirStore, OpeningNeedsAFolder) {
  TemporaryDirectory dir;
  WriteFile(PosixFileSystem(), dir / "file", "x");
  EXPECT_EQ(OpenDirStore(dir / "none", {}).status().code(), Code::kNotFound);
  EXPECT_EQ(OpenDirStore(dir / "file", {}).status().code(), Code::kInvalidArgument);
}

// Runs `change` once for each write boundary with the power failing there, and `check` after it.
void CutAtEachBoundary(const std::function<Status(ObjectStore*)>& prepare,
                       const std::function<Status(ObjectStore*)>& change,
                       const std::function<void(ObjectStore*, bool acknowledged)>& check) {
  for (Survival survival : {Survival::kNothing, Survival::kEverything, Survival::kSome}) {
    for (uint64_t k = 1;; ++k) {
      SCOPED_TRACE(testing::Message() << "boundary " << k);
      MemoryFileSystem files;
      ASSERT_TRUE(files.MakeDirectories("/store").ok());
      ASSERT_TRUE(files.SyncDirectory("/").ok());
      ASSERT_TRUE(prepare(Open(&files, "/store").get()).ok());
      files.CutPowerAt(files.boundaries() + k, survival, k);
      bool acknowledged = change(Open(&files, "/store").get()).ok();
      bool finished = !files.power_is_off();
      files.PowerCut(survival, k);
      files.PowerOn();
      check(Open(&files, "/store").get(), acknowledged);
      if (finished) {
        EXPECT_TRUE(acknowledged);
        break;
      }
    }
  }
}

TEST(DirStorePower, APutIsOldOrNewAndStaysOnceAcknowledged) {
  for (bool there : {false, true}) {
    CutAtEachBoundary(
        [there](ObjectStore* store) {
          return there ? store->Put("a/b/key", AsBytes("old"), {}, Context()).status() : OkStatus();
        },
        [](ObjectStore* store) {
          return store->Put("a/b/key", AsBytes("new"), {}, Context()).status();
        },
        [there](ObjectStore* store, bool acknowledged) {
          std::string found = Read(store, "a/b/key");
          if (acknowledged) {
            EXPECT_EQ(found, "new");
          } else {
            EXPECT_TRUE(found == "new" || found == (there ? "old" : "error: not found")) << found;
          }
          EXPECT_TRUE(store->Put("a/b/key", AsBytes("again"), {}, Context()).ok());
        });
  }
}

TEST(DirStorePower, APutIfAbsentIsNothingOrWhole) {
  PutOptions absent{.if_absent = true, .if_match = {}};
  CutAtEachBoundary([](ObjectStore*) { return OkStatus(); },
                    [absent](ObjectStore* store) {
                      return store->Put("key", AsBytes("mine"), absent, Context()).status();
                    },
                    [](ObjectStore* store, bool acknowledged) {
                      std::string found = Read(store, "key");
                      EXPECT_TRUE(found == "mine" || (!acknowledged && found == "error: not found"))
                          << found;
                    });
}

TEST(DirStorePower, ADeleteStaysOnceAcknowledged) {
  CutAtEachBoundary(
      [](ObjectStore* store) {
        HR_RETURN_IF_ERROR(store->Put("a/other", AsBytes("x"), {}, Context()).status());
        return store->Put("a/key", AsBytes("x"), {}, Context()).status();
      },
      [](ObjectStore* store) { return store->Delete("a/key", Context()); },
      [](ObjectStore* store, bool acknowledged) {
        std::string found = Read(store, "a/key");
        EXPECT_TRUE(found == "error: not found" || (!acknowledged && found == "x")) << found;
        EXPECT_EQ(Read(store, "a/other"), "x");
      });
}

TEST(DirStorePower, AnUploadIsNothingOrWhole) {
  CutAtEachBoundary(
      [](ObjectStore*) { return OkStatus(); },
      [](ObjectStore* store) -> Status {
        HR_ASSIGN_OR_RETURN(auto upload, store->StartUpload("big", Context()));
        HR_RETURN_IF_ERROR(upload->PutPart(2, AsBytes("two"), Context()));
        HR_RETURN_IF_ERROR(upload->PutPart(1, AsBytes("one"), Context()));
        return upload->Complete(2, Context()).status();
      },
      [](ObjectStore* store, bool acknowledged) {
        std::string found = Read(store, "big");
        EXPECT_TRUE(found == "onetwo" || (!acknowledged && found == "error: not found")) << found;
        // What was left behind can be swept.
        auto pending = store->ListUploads("", Context());
        ASSERT_TRUE(pending.ok());
        for (const PendingUpload& upload : *pending)
          EXPECT_TRUE(store->AbortUpload(upload, Context()).ok());
        EXPECT_THAT(*store->ListUploads("", Context()), IsEmpty());
      });
}

TEST(DirStoreFaults, AStaleHandleIsOpenedAgainOnce) {
  MemoryFileSystem memory;
  FaultyFileSystem files(&memory);
  ASSERT_TRUE(files.MakeDirectories("/store").ok());
  auto store = OpenDirStore("/store", {.fs = &files, .threads = 2, .open_files = 0}).value();
  ASSERT_TRUE(store->Put("key", AsBytes("content"), {}, Context()).ok());
  const Status stale = ErrnoError(ESTALE, "cannot read");
  for (FileOperation operation : {FileOperation::kOpenForRead, FileOperation::kRead}) {
    files.FailNth(operation, 1, stale);
    EXPECT_EQ(Read(store.get(), "key"), "content");
    files.FailNth(operation, 1, stale, 2);
    EXPECT_EQ(Read(store.get(), "key"), "error: unavailable");
  }
  files.FailNth(FileOperation::kStat, 1, stale);
  EXPECT_TRUE(store->Head("key", Context()).ok());
}

TEST(DirStoreFaults, AFailedPutLeavesNothing) {
  MemoryFileSystem memory;
  FaultyFileSystem files(&memory);
  ASSERT_TRUE(files.MakeDirectories("/store").ok());
  auto store = Open(&files, "/store");
  ASSERT_TRUE(store->Put("key", AsBytes("old"), {}, Context()).ok());
  for (FileOperation operation :
       {FileOperation::kCreate, FileOperation::kAppend, FileOperation::kSync, FileOperation::kClose,
        FileOperation::kRename}) {
    files.FailNth(operation, 1, Error(Code::kIoError, "the disk is broken"));
    EXPECT_EQ(store->Put("key", AsBytes("new"), {}, Context()).status().code(), Code::kIoError);
    EXPECT_EQ(Read(store.get(), "key"), "old");
  }
  auto names = memory.List("/store");
  ASSERT_TRUE(names.ok());
  EXPECT_EQ(names->size(), 1u);
}

TEST(DirStoreFaults, ListingsAreNotNeededForAnythingElse) {
  MemoryFileSystem memory;
  FaultyFileSystem files(&memory);
  ASSERT_TRUE(files.MakeDirectories("/store").ok());
  auto store = Open(&files, "/store");
  files.FailNth(FileOperation::kList, 1, Error(Code::kIoError, "no listing"), 1000);
  ASSERT_TRUE(store->Put("a/b", AsBytes("x"), {}, Context()).ok());
  EXPECT_EQ(Read(store.get(), "a/b"), "x");
  EXPECT_TRUE(store->Delete("a/b", Context()).ok());
  EXPECT_EQ(store->List({}, Context()).status().code(), Code::kIoError) << "never a short one";
}

TEST(DirStore, ReadsAroundThePageCacheWhenItIsAskedTo) {
  TemporaryDirectory dir;
  std::string content(3 * 4096 + 100, '\0');
  for (size_t i = 0; i < content.size(); ++i) content[i] = static_cast<char>(i * 7 >> 2);
  auto store = OpenDirStore(dir.path(), {.direct = true}).value();
  ASSERT_TRUE(store->Put("key", AsBytes(content), {}, Context()).ok());
  const size_t size = content.size();
  for (auto [offset, bytes] : std::vector<std::pair<size_t, size_t>>{{0, size},
                                                                     {0, 4096},
                                                                     {4096, 4096},
                                                                     {1, 1},
                                                                     {4095, 2},
                                                                     {100, 8192},
                                                                     {size - 1, 1},
                                                                     {size - 100, 100},
                                                                     {size - 101, 101}}) {
    std::string out(bytes, '?');
    auto got = store->Get({.key = "key",
                           .offset = offset,
                           .out = std::as_writable_bytes(std::span(out)),
                           .if_match = {}},
                          Context());
    ASSERT_TRUE(got.ok()) << got.status().ToString();
    EXPECT_TRUE(out == content.substr(offset, bytes)) << offset << " " << bytes;
  }
}

TEST(DirStore, WorksInAForkedChild) {
  TemporaryDirectory dir;
  auto store = Open(PosixFileSystem(), dir.path());
  ASSERT_TRUE(store->Put("key", AsBytes("content"), {}, Context()).ok());
  EXPECT_EQ(Read(store.get(), "key"), "content");
  EXPECT_EQ(ExitOfChild([&] { return Read(store.get(), "key") == "content" ? 0 : 1; }), 0);
  EXPECT_EQ(Read(store.get(), "key"), "content");
}

TEST(DirStore, WritersOfSeveralProcessesHaveOneWinner) {
  TemporaryDirectory dir;
  for (int round = 0; round < 5; ++round) {
    std::string key = "race" + std::to_string(round);
    auto put = [&] {
      auto store = Open(PosixFileSystem(), dir.path());
      PutOptions absent{.if_absent = true, .if_match = {}};
      auto etag = store->Put(key, AsBytes("x"), absent, Context());
      if (etag.ok()) return 1;
      return etag.status().code() == Code::kAlreadyExists ? 0 : 2;
    };
    ChildProcess one(put), two(put), three(put);
    std::vector<int> codes = {one.Wait(), two.Wait(), three.Wait()};
    std::sort(codes.begin(), codes.end());
    EXPECT_THAT(codes, ElementsAre(0, 0, 1));
  }
}

}  // namespace
}  // namespace headrace::object
