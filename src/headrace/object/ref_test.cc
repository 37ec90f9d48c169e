#include "headrace/object/ref.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headrace/env/testing/child_process.h"
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
