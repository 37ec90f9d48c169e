#include "headrace/object/ref.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headrace/env/testing/child_process.h"
#include "headrace/env/testing/faulty_file_system.h"
#include "headrace/env/testing/memory_file_system.h"
#include "headrace/env/testing/temporary_directory.h"
#include "headrace/object/dir/dir_store.h"
#include "headrace/object/retrying_store.h"
#include "headrace/object/testing/faulty_store.h"
#include "headrace/object/testing/memory_store.h"
#include "headrace/object/testing/ref_suite.h"

namespace headrace::object {
namespace {

RefUnderTest FileRefs() {
  auto dir = std::make_shared<TemporaryDirectory>();
  return {[path = *dir / "latest"] { return MakeFileRef(PosixFileSystem(), path); }, dir};
}

RefUnderTest RefsIn(const std::shared_ptr<ObjectStore>& store, std::shared_ptr<void> owner = {}) {
  return {[store] { return MakeObjectRef(store, "refs/latest").value(); }, std::move(owner)};
}

RefUnderTest DirRefs() {
  auto dir = std::make_shared<TemporaryDirectory>();
  return RefsIn(OpenDirStore(dir->path(), {}).value(), dir);
}

const bool kRegistered = RegisterRefSuite("file", FileRefs) &&
                         RegisterRefSuite("memory", [] { return RefsIn(MakeMemoryStore()); }) &&
                         RegisterRefSuite("dir", DirRefs);

TEST(ObjectRef, NeedsConditions) {
  for (int missing = 0; missing < 3; ++missing) {
    MemoryStoreOptions options;
    options.abilities.put_if_absent = missing != 0;
    options.abilities.put_if_match = missing != 1;
    options.abilities.get_if_match = missing != 2;
    EXPECT_EQ(MakeObjectRef(MakeMemoryStore(options), "key").status().code(), Code::kUnimplemented);
  }
}

TEST(ObjectRef, GoesOnWhenAnswersAreLost) {
  auto faulty = std::make_shared<FaultyStore>(MakeMemoryStore());
  for (uint64_t nth = 1; nth < 100; nth += 3)
    faulty->LoseNth(StoreOperation::kPut, nth, Error(Code::kUnavailable, "cut"));
  RetryOptions options;
  options.first_pause = options.longest_pause = std::chrono::microseconds(10);
  auto ref = MakeObjectRef(MakeRetryingStore(faulty, options), "latest").value();
  std::string version;
  for (int i = 0; i < 20; ++i) {
    auto next = ref->Swap(version, AsBytes("value " + std::to_string(i)), Context());
    ASSERT_TRUE(next.ok()) << next.status().ToString();
    version = *next;
    EXPECT_EQ(ref->Read(Context())->version, version);
  }
}

TEST(ObjectRef, IsReadWhileItIsReplacedAgainAndAgain) {
  auto memory = MakeMemoryStore();
  auto faulty = std::make_shared<FaultyStore>(memory);
  ASSERT_TRUE(memory->Put("latest", AsBytes("0"), {}, Context()).ok());
  for (uint64_t i = 1; i <= 25; ++i)
    faulty->RunBeforeNth(StoreOperation::kGet, i, [memory, i] {
      ASSERT_TRUE(memory->Put("latest", AsBytes(std::to_string(i)), {}, Context()).ok());
    });
  auto value = MakeObjectRef(faulty, "latest").value()->Read(Context());
  ASSERT_TRUE(value.ok()) << value.status().ToString();
  EXPECT_EQ(value->content, "25");
}

TEST(ObjectRef, OneThatWasThereMayBlink) {
  auto faulty = std::make_shared<FaultyStore>(MakeMemoryStore());
  auto ref = MakeObjectRef(faulty, "latest").value();
  EXPECT_EQ(ref->Read(Context()).status().code(), Code::kNotFound);
  EXPECT_EQ(faulty->count(StoreOperation::kHead), 1u) << "it was never set";
  ASSERT_TRUE(ref->Swap("", AsBytes("one"), Context()).ok());
  ASSERT_TRUE(ref->Read(Context()).ok());
  faulty->FailNth(StoreOperation::kHead, 1, Error(Code::kNotFound, "just being replaced"), 2);
  EXPECT_EQ(ref->Read(Context())->content, "one");
}

RefUnderTest RefsWithLostAnswers() {
  auto faulty = std::make_shared<FaultyStore>(MakeMemoryStore());
  for (uint64_t nth = 2; nth < 1000; nth += 3)
    faulty->LoseNth(StoreOperation::kPut, nth, Error(Code::kUnavailable, "cut"));
  for (uint64_t nth = 3; nth < 1000; nth += 5)
    faulty->FailNth(StoreOperation::kPut, nth, Error(Code::kUnavailable, "busy"));
  RetryOptions options;
  options.first_pause = options.longest_pause = std::chrono::microseconds(10);
  RefUnderTest test = RefsIn(MakeRetryingStore(faulty, options));
  test.answers_may_be_lost = true;
  return test;
}
const bool kLostRegistered = RegisterRefSuite("lost_answers", RefsWithLostAnswers);

// A mount that remembers for some looks which file a name stood for: what it shows by that name is
// the old content, and a second name for the old file is refused by the server.
class RememberingFiles final : public FaultyFileSystem {
 public:
  RememberingFiles() : FaultyFileSystem(PosixFileSystem()) {}
  void Remember(const std::string& path, int looks) {
    path_ = path;
    content_ = PosixFileSystem()->ReadWhole(path, Ref::kMaxBytes);
    looks_ = looks;
  }
  Result<std::string> ReadWhole(const std::string& path, uint64_t limit_bytes) override {
    if (path != path_ || looks_ == 0) return FaultyFileSystem::ReadWhole(path, limit_bytes);
    --looks_;
    return content_;
  }
  Status Link(const std::string& from, const std::string& to) override {
    if (from != path_ || looks_ == 0) return FaultyFileSystem::Link(from, to);
    --looks_;
    return Error(Code::kNotFound, "no file has this handle");
  }

 private:
  std::string path_;
  Result<std::string> content_ = std::string();
  int looks_ = 0;
};

TEST(FileRef, GoesByWhatTheServerHasAndNotByWhatItRemembers) {
  TemporaryDirectory dir;
  RememberingFiles files;
  auto here = MakeFileRef(&files, dir / "latest"),
       there = MakeFileRef(PosixFileSystem(), dir / "latest");
  auto first = there->Swap("", AsBytes("one"), Context());
  ASSERT_TRUE(first.ok()) << first.status().ToString();
  files.Remember(dir / "latest", 3);
  ASSERT_TRUE(there->Swap(*first, AsBytes("two"), Context()).ok());
  auto seen = here->Read(Context());
  ASSERT_TRUE(seen.ok());
  EXPECT_EQ(seen->content, "one") << "a read may be late";
  EXPECT_EQ(here->Swap(seen->version, AsBytes("three"), Context()).status().code(),
            Code::kFailedPrecondition);
  EXPECT_EQ(there->Read(Context())->content, "two");
  EXPECT_FALSE(PosixFileSystem()->Exists(dir / "latest.seen"));
}

TEST(FileRef, AFirstSwapThatComesLateIsRefused) {
  // The other machine's name shows late, so this one looks for it in vain.
  class LateFiles final : public FaultyFileSystem {
   public:
    LateFiles() : FaultyFileSystem(PosixFileSystem()) {}
    Result<FileInfo> Stat(const std::string& path) override {
      return Error(Code::kNotFound, "{} does not show yet", path);
    }
  };
  TemporaryDirectory dir;
  LateFiles files;
  ASSERT_TRUE(MakeFileRef(PosixFileSystem(), dir / "latest")->Swap("", AsBytes("one"), {}).ok());
  EXPECT_EQ(MakeFileRef(&files, dir / "latest")->Swap("", AsBytes("two"), {}).status().code(),
            Code::kFailedPrecondition);
  EXPECT_EQ(MakeFileRef(PosixFileSystem(), dir / "latest")->Read({})->content, "one");
}

// A name is found and its file is not, since it is being replaced.
TEST(FileRef, AFileThatIsReplacedWhileItIsOpenedIsLookedForAgain) {
  for (Code told : {Code::kNotFound, Code::kUnavailable}) {
    TemporaryDirectory dir;
    FaultyFileSystem files(PosixFileSystem());
    auto ref = MakeFileRef(&files, dir / "latest");
    auto first = ref->Swap("", AsBytes("one"), Context());
    ASSERT_TRUE(first.ok()) << first.status().ToString();
    files.FailNth(FileOperation::kReadWhole, 1, Error(told, "stale"), 2);
    auto value = ref->Read(Context());
    ASSERT_TRUE(value.ok()) << value.status().ToString();
    EXPECT_EQ(value->content, "one");
    files.FailNth(FileOperation::kReadWhole, 1, Error(told, "stale"), 1);
    EXPECT_TRUE(ref->Swap(*first, AsBytes("two"), Context()).ok());
  }
}

TEST(FileRef, APowerCutLeavesTheOldOrTheNewValue) {
  for (Survival survival : {Survival::kNothing, Survival::kEverything, Survival::kSome}) {
    for (uint64_t k = 1;; ++k) {
      MemoryFileSystem files;
      auto first = MakeFileRef(&files, "/latest")->Swap("", AsBytes("old"), Context());
      ASSERT_TRUE(first.ok());
      files.CutPowerAt(files.boundaries() + k, survival, k);
      bool swapped = MakeFileRef(&files, "/latest")->Swap(*first, AsBytes("new"), Context()).ok();
      bool finished = !files.power_is_off();
      files.PowerCut(survival, k);
      files.PowerOn();
      auto value = MakeFileRef(&files, "/latest")->Read(Context());
      ASSERT_TRUE(value.ok()) << value.status().ToString();
      EXPECT_TRUE(value->content == "new" || (!swapped && value->content == "old")) << k;
      if (finished) break;
    }
  }
}

TEST(FileRef, ADeadProcessHoldsNoLock) {
  TemporaryDirectory dir;
  ChildProcess holder([&] {
    auto lock = PosixFileSystem()->Lock(dir / "latest.lock");
    return lock.ok() ? 0 : 1;  // it ends with the lock in its hands
  });
  EXPECT_EQ(holder.Wait(), 0);
  EXPECT_TRUE(MakeFileRef(PosixFileSystem(), dir / "latest")->Swap("", AsBytes("x"), {}).ok());
}

}  // namespace
}  // namespace headrace::object
