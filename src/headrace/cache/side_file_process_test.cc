// Several processes on one side file, some of which are killed.
#include <gtest/gtest.h>

#include <csignal>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "headrace/base/fault_point.h"
#include "headrace/base/keyed_random.h"
#include "headrace/cache/side_file.h"
#include "headrace/env/testing/child_process.h"
#include "headrace/env/testing/temporary_directory.h"

namespace headrace::cache {
namespace {

constexpr uint64_t kSlots = 500;
const ObjectId kId = IdentifySideFile({"shared"});

std::string RecordOf(uint64_t slot) {
  KeyedRandom random(slot);
  std::string record(random.NextBelow(2000), '\0');
  for (char& c : record) c = static_cast<char>(random.Next());
  return record;
}

class SideFileProcessTest : public ::testing::Test {
 protected:
  struct Opened {
    std::unique_ptr<NodeCache> cache;
    std::unique_ptr<SideFile> file;
  };
  Opened Open() {
    Opened opened;
    NodeCacheOptions options;
    options.directory = dir_ / "cache";
    options.limit_bytes = 1 << 30;
    options.free_floor_bytes = 1;
    auto cache = NodeCache::Open(PosixFileSystem(), options, Context());
    if (!cache.ok()) return opened;
    opened.cache = *std::move(cache);
    auto file =
        SideFile::Open([node = opened.cache.get()](const ObjectId&) { return node; }, kId, kSlots);
    if (file.ok()) opened.file = *std::move(file);
    return opened;
  }
  // Finds or adds slots in an order of its own. 0 when nothing was wrong: for a child's exit code.
  static int Work(SideFile* file, uint64_t seed, uint64_t times) {
    KeyedRandom random(seed);
    for (uint64_t i = 0; i < times; ++i) {
      const uint64_t slot = random.NextBelow(kSlots);
      auto found = file->Find(slot);
      if (found && AsText(*found) != RecordOf(slot)) return 2;
      if (!found && !file->Add(slot, AsBytes(RecordOf(slot)))) return 3;
    }
    return 0;
  }
  void ExpectAllIsWell() {
    Opened opened = Open();
    ASSERT_TRUE(opened.file);
    EXPECT_EQ(Work(opened.file.get(), 1, 5000), 0);
    for (uint64_t slot = 0; slot < kSlots; ++slot) {
      auto found = opened.file->Find(slot);
      ASSERT_TRUE(found) << slot;
      EXPECT_EQ(AsText(*found), RecordOf(slot));
    }
    auto contents = ListCache(PosixFileSystem(), opened.cache->paths());
    ASSERT_TRUE(contents.ok());
    EXPECT_EQ(opened.cache->used_bytes(), contents->bytes);
  }

  TemporaryDirectory dir_;
};

TEST_F(SideFileProcessTest, SeveralWritersShareWhatTheyAdd) {
  std::vector<std::unique_ptr<ChildProcess>> children;
  for (uint64_t i = 0; i < 4; ++i)
    children.push_back(std::make_unique<ChildProcess>([this, i] {
      Opened opened = Open();
      return opened.file ? Work(opened.file.get(), i, 5000) : 1;
    }));
  for (auto& child : children) EXPECT_EQ(child->Wait(), 0);
  const std::string records = CachePaths(dir_ / "cache").Side(kId, "records");
  uint64_t once = 0;
  for (uint64_t slot = 0; slot < kSlots; ++slot) once += SideEntryBytes(RecordOf(slot).size());
  // Two may have added the same record at once; they did not add all of them each.
  EXPECT_GE(PosixFileSystem()->Stat(records)->size_bytes, once);
  EXPECT_LT(PosixFileSystem()->Stat(records)->size_bytes, 4 * once);
  ExpectAllIsWell();
}

TEST_F(SideFileProcessTest, AWriterThatIsKilledAtAnyStepHarmsNobody) {
  for (const char* point : {"cache.side.before_table", "cache.side.before_owner",
                            "cache.side.before_write", "cache.side.after_write"}) {
    SCOPED_TRACE(point);
    ChildProcess victim([this, point] {
      if (!ArmFaultsFromText(std::string(point) + "=kill").ok()) return 1;
      Opened opened = Open();
      return opened.file ? Work(opened.file.get(), 9, 100) : 1;
    });
    EXPECT_EQ(victim.Wait(), -SIGKILL);
    ExpectAllIsWell();
    ASSERT_TRUE(RemoveSideFile(PosixFileSystem(), CachePaths(dir_ / "cache"), kId));
  }
}

TEST_F(SideFileProcessTest, ManyKillsHarmNobody) {
  for (uint64_t round = 0; round < 8; ++round) {
    ChildProcess victim([this, round] {
      Opened opened = Open();
      if (!opened.file) return 1;
      while (true)
        if (int bad = Work(opened.file.get(), round, 100)) return bad;
    });
    Opened opened = Open();
    ASSERT_TRUE(opened.file);
    std::this_thread::sleep_for(std::chrono::milliseconds(3 + round));
    victim.Kill();
    EXPECT_EQ(Work(opened.file.get(), round + 100, 300), 0);
    EXPECT_EQ(victim.Wait(), -SIGKILL);
  }
  ExpectAllIsWell();
}

// Given up under its users' feet, again and again: they open it anew.
TEST_F(SideFileProcessTest, AFileThatIsTakenAwayIsBegunAgain) {
  ChildProcess user([this] {
    for (uint64_t i = 0, opens = 0; i < 3000 && opens < 20; ++opens) {
      Opened opened = Open();
      if (!opened.file) return 1;
      for (; i < 3000 && opened.file->usable(); ++i)
        if (Work(opened.file.get(), i, 5) == 2) return 2;
    }
    return 0;
  });
  for (int i = 0; i < 20; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    (void)RemoveSideFile(PosixFileSystem(), CachePaths(dir_ / "cache"), kId);
  }
  EXPECT_EQ(user.Wait(), 0);
  ExpectAllIsWell();
}

// A forked child may go on with a copy: nothing that two processes would move is shared.
TEST_F(SideFileProcessTest, AForkedChildUsesItsCopy) {
  Opened opened = Open();
  ASSERT_TRUE(opened.file);
  ASSERT_EQ(Work(opened.file.get(), 1, 200), 0);
  ChildProcess child([&] { return Work(opened.file.get(), 2, 3000); });
  EXPECT_EQ(Work(opened.file.get(), 3, 3000), 0);
  EXPECT_EQ(child.Wait(), 0);
  ExpectAllIsWell();
}

}  // namespace
}  // namespace headrace::cache
