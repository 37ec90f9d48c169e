// The power fails at each write boundary of each change of a store; and processes change one at the
// same time, and die in the midst of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headrace/checkpoint/catalog.h"
#include "headrace/checkpoint/testing/tiny_store.h"
#include "headrace/env/testing/child_process.h"
#include "headrace/env/testing/memory_file_system.h"
#include "headrace/env/testing/temporary_directory.h"

namespace headrace::checkpoint {
namespace {

using Act = std::function<Status(CatalogStore*)>;

constexpr SaveId kFirst{100, 1, 1}, kSecond{200, 1, 1};

// One checkpoint published, the files of a second one there.
void Prepare(MemoryFileSystem* files) {
  CatalogStore store(StoreInFolder(files, "/runs/ckpt").value());
  ASSERT_EQ(store.TakeOver("me", {}).value(), 1u);
  ASSERT_TRUE(PublishTiny(&store, kFirst).ok());
  ASSERT_TRUE(PutTinyFiles(store.place(), TinyManifest(kSecond)).ok());
}

// Lets the power fail at each boundary of `act`: the list is then `before` or `after`, `after` when
// `act` had returned; and doing it again succeeds. Returns how many cuts there were.
uint64_t CutEverywhere(const Act& act, const std::string& before, const std::string& after,
                       Survival survival) {
  for (uint64_t k = 1;; ++k) {
    MemoryFileSystem files;
    Prepare(&files);
    files.CutPowerAt(files.boundaries() + k, survival, k);
    bool done = false;
    if (auto place = StoreInFolder(&files, "/runs/ckpt"); place.ok()) {
      CatalogStore store(*std::move(place));
      done = act(&store).ok();
    }
    const bool finished = !files.power_is_off();
    files.PowerCut(survival, k);
    files.PowerOn();
    CatalogStore store(StoreInFolder(&files, "/runs/ckpt").value());
    const std::string line = CatalogLine(&store);
    EXPECT_TRUE(line == after || (!done && line == before)) << k << ": " << line;
    auto catalog = store.Read({});
    for (size_t i = 0; catalog.ok() && i < catalog->entries.size(); ++i) {
      auto manifest = store.ReadManifest(catalog->entries[i], {});
      EXPECT_TRUE(manifest.ok()) << manifest.status().ToString();
      for (const FileEntry& file : manifest->files)
        EXPECT_EQ(store.place().store->Head(file.DataKey(), {})->size_bytes, file.bytes);
    }
    const Status again = act(&store);
    EXPECT_TRUE(again.ok()) << k << ": " << again.ToString();
    EXPECT_EQ(CatalogLine(&store), after);
    if (finished || testing::Test::HasFailure()) return k - 1;
  }
}

class PowerCutTest : public testing::TestWithParam<Survival> {};
INSTANTIATE_TEST_SUITE_P(All, PowerCutTest,
                         testing::Values(Survival::kNothing, Survival::kEverything,
                                         Survival::kSome));

TEST_P(PowerCutTest, InPublish) {
  auto publish = [](CatalogStore* store) {
    return store->Publish(1, TinyManifest(kSecond), Level::kLocal, {});
  };
  EXPECT_GE(CutEverywhere(publish, "100/1/1 local", "100/1/1 local, 200/1/1 local", GetParam()),
            9u);
}

TEST_P(PowerCutTest, InRaiseLevel) {
  auto raise = [](CatalogStore* store) { return store->RaiseLevel(1, kFirst, Level::kRemote, {}); };
  EXPECT_GE(CutEverywhere(raise, "100/1/1 local", "100/1/1 remote", GetParam()), 5u);
}

TEST_P(PowerCutTest, InRemove) {
  auto remove = [](CatalogStore* store) {
    const std::vector<SaveId> ids = {kFirst};
    return store->Remove(1, ids, {});
  };
  EXPECT_GE(CutEverywhere(remove, "100/1/1 local", "", GetParam()), 5u);
}

TEST_P(PowerCutTest, InTakeOver) {
  for (uint64_t k = 1;; ++k) {
    MemoryFileSystem files;
    Prepare(&files);
    files.CutPowerAt(files.boundaries() + k, GetParam(), k);
    bool done = false;
    if (auto place = StoreInFolder(&files, "/runs/ckpt"); place.ok())
      done = CatalogStore(*std::move(place)).TakeOver("heir", {}).ok();
    const bool finished = !files.power_is_off();
    files.PowerCut(GetParam(), k);
    files.PowerOn();
    CatalogStore store(StoreInFolder(&files, "/runs/ckpt").value());
    auto head = store.ReadHead({});
    ASSERT_TRUE(head.ok()) << head.status().ToString();
    EXPECT_TRUE(head->epoch == 2 || (!done && head->epoch == 1));
    EXPECT_EQ(CatalogLine(&store), "100/1/1 local");
    if (finished) break;
  }
}

TEST(PowerCut, InTheVeryFirstSteps) {
  for (uint64_t k = 1;; ++k) {
    MemoryFileSystem files;
    files.CutPowerAt(k);
    uint64_t epoch = 0;
    if (auto place = StoreInFolder(&files, "/runs/ckpt"); place.ok())
      epoch = CatalogStore(*std::move(place)).TakeOver("me", {}).ok() ? 1 : 0;
    const bool finished = !files.power_is_off();
    files.PowerCut();
    files.PowerOn();
    CatalogStore store(StoreInFolder(&files, "/runs/ckpt").value());
    EXPECT_GE(store.ReadHead({})->epoch, epoch);
    EXPECT_TRUE(PublishTiny(&store, {1, store.TakeOver("me", {}).value(), 1}).ok());
    if (finished) break;
  }
}

StorePlace FolderOf(const TemporaryDirectory& dir) {
  return StoreInFolder(PosixFileSystem(), dir / "ckpt").value();
}

TEST(Processes, LoseNothingToEachOther) {
  TemporaryDirectory dir;
  ASSERT_TRUE(CatalogStore(FolderOf(dir)).TakeOver("all", {}).ok());
  std::vector<std::unique_ptr<ChildProcess>> children;
  for (uint64_t child = 0; child < 3; ++child) {
    children.push_back(std::make_unique<ChildProcess>([&dir, child] {
      CatalogStore store(FolderOf(dir));
      for (uint64_t i = 0; i < 6; ++i)
        if (!PublishTiny(&store, {child * 100 + i, 1, 1}).ok()) return 1;
      return 0;
    }));
  }
  for (auto& child : children) EXPECT_EQ(child->Wait(), 0);
  CatalogStore store(FolderOf(dir));
  EXPECT_EQ(store.Read({})->entries.size(), 18u);
}

// Two trainers on one store, each taking it from the other: whoever lost it changes nothing.
TEST(Processes, OneOfTwoTrainersIsShutOut) {
  TemporaryDirectory dir;
  auto train = [&dir](uint64_t first_step) {
    CatalogStore store(FolderOf(dir));
    auto epoch = store.TakeOver("trainer", {});
    if (!epoch.ok()) return 1;
    for (uint64_t i = 0; i < 12; ++i) {
      const Status status = PublishTiny(&store, {first_step + i, *epoch, 1});
      if (status.code() == Code::kFailedPrecondition) return 7;
      if (!status.ok()) return 1;
    }
    return 0;
  };
  ChildProcess a([&] { return train(0); }), b([&] { return train(1000); });
  const int exits[] = {a.Wait(), b.Wait()};
  const Catalog catalog = *CatalogStore(FolderOf(dir)).Read({});
  uint64_t of_last = 0;
  for (const CatalogEntry& entry : catalog.entries) of_last += entry.id.epoch == 2 ? 1 : 0;
  EXPECT_EQ(of_last, 12u);  // the one that came last was disturbed by no one
  for (int exit : exits) EXPECT_TRUE(exit == 0 || exit == 7) << exit;
}

TEST(Processes, AKillLeavesTheOldListOrTheNewOne) {
  TemporaryDirectory dir;
  ASSERT_TRUE(CatalogStore(FolderOf(dir)).TakeOver("me", {}).ok());
  uint64_t published = 0;
  for (int round = 0; round < 5; ++round) {
    ChildProcess child([&dir, round] {
      CatalogStore store(FolderOf(dir));
      for (uint64_t i = 0; i < 1000; ++i)
        if (!PublishTiny(&store, {static_cast<uint64_t>(round) * 1000 + i, 1, 1}).ok()) return 1;
      return 0;
    });
    // Killed at any point, once it has published something.
    CatalogStore store(FolderOf(dir));
    uint64_t now = published;
    while (now < published + 1 + static_cast<uint64_t>(round)) {
      auto catalog = store.Read({});
      ASSERT_TRUE(catalog.ok()) << catalog.status().ToString();
      now = catalog->entries.size();
    }
    child.Kill();
    child.Wait();
    auto catalog = store.Read({});
    ASSERT_TRUE(catalog.ok()) << catalog.status().ToString();
    EXPECT_GE(catalog->entries.size(), now);
    EXPECT_TRUE(store.ReadManifest(*catalog->Latest(), {}).ok());
    published = catalog->entries.size();
  }
  CatalogStore store(FolderOf(dir));
  EXPECT_TRUE(PublishTiny(&store, {100'000, 1, 1}).ok());
}

}  // namespace
}  // namespace headrace::checkpoint
