// What power cuts, a full disk and faults leave of a pack, at every write boundary and every call.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headrace/dataset/pack.h"
#include "headrace/dataset/testing/small_pack.h"
#include "headrace/env/testing/faulty_file_system.h"
#include "headrace/env/testing/memory_file_system.h"

namespace headrace::dataset {
namespace {

using testing::HasSubstr;

struct CutCase {
  Survival survival;
  uint64_t seed;
};

// After the cut the old version (or nothing) or the new one is there, whole; and the same pack once
// more ends with what an undisturbed one gives, without a stray file.
void CutPowerEverywhere(bool overwrite, CutCase cut) {
  PackOptions options = SmallShards();
  options.overwrite = overwrite;
  auto prepare = [&](MemoryFileSystem* fs) {
    MakeSource(fs);
    if (!overwrite) return;
    WriteFile(fs, "/other/x/1.png", "old");
    WriteFile(fs, "/other/x/2.png", "old too");
    WriteFile(fs, "/other/y/3.png", "and this");
    ASSERT_TRUE(PackInto(fs, SmallShards(), "/other").ok());
  };
  MemoryFileSystem undisturbed;
  prepare(&undisturbed);
  Tree before = overwrite ? ReadSamples(&undisturbed, kTarget) : Tree();
  ASSERT_TRUE(PackInto(&undisturbed, options).ok());
  Tree after = Snapshot(&undisturbed, kTarget);
  uint64_t cuts = 0;
  for (uint64_t k = 1;; ++k) {
    MemoryFileSystem fs;
    prepare(&fs);
    uint64_t start = fs.boundaries();
    fs.CutPowerAt(start + k, cut.survival, cut.seed * 1000 + k);
    auto packed = PackInto(&fs, options);
    bool finished = !fs.power_is_off();
    fs.PowerOn();
    SCOPED_TRACE(testing::Message() << "cut before boundary " << k << ": "
                                    << (fs.boundary_log().empty() ? "" : fs.boundary_log().back()));
    if (packed.ok()) {
      EXPECT_TRUE(fs.Exists(kTarget + "/headrace.json")) << "acknowledged, then lost";
    }
    if (fs.Exists(kTarget + "/headrace.json")) {
      Tree samples = ReadSamples(&fs, kTarget);
      EXPECT_TRUE(samples == before || samples == ExpectedSamples());
    } else {
      EXPECT_FALSE(overwrite) << "the version before is gone";
    }
    bool published = fs.Exists(kTarget + "/headrace.json");
    auto again = PackInto(&fs, options);
    // When the cut left nothing but the published version, there is nothing to go on with.
    bool refused = !overwrite && published && again.status().code() == Code::kAlreadyExists;
    EXPECT_TRUE(again.ok() || refused) << again.status().ToString();
    EXPECT_TRUE(ReadSamples(&fs, kTarget) == ExpectedSamples());
    if (!overwrite) {
      EXPECT_EQ(Snapshot(&fs, kTarget), after);
    }
    EXPECT_EQ(Snapshot(&fs, kTarget).size(), after.size()) << "a stray file";
    if (finished) break;
    ++cuts;
    if (testing::Test::HasFailure()) break;
  }
  EXPECT_GT(cuts, 40u) << "the pack has that many write boundaries";
}

TEST(PackPowerCut, NewDatasetNothingSurvives) {
  CutPowerEverywhere(false, {Survival::kNothing, 0});
}
TEST(PackPowerCut, NewDatasetEverythingSurvives) {
  CutPowerEverywhere(false, {Survival::kEverything, 0});
}
TEST(PackPowerCut, NewDatasetSomeSurvives) {
  for (uint64_t seed = 1; seed <= 3; ++seed) CutPowerEverywhere(false, {Survival::kSome, seed});
}
TEST(PackPowerCut, OverwriteNothingSurvives) { CutPowerEverywhere(true, {Survival::kNothing, 0}); }
TEST(PackPowerCut, OverwriteEverythingSurvives) {
  CutPowerEverywhere(true, {Survival::kEverything, 0});
}
TEST(PackPowerCut, OverwriteSomeSurvives) {
  for (uint64_t seed = 1; seed <= 3; ++seed) CutPowerEverywhere(true, {Survival::kSome, seed});
}

// Prepares a target (empty or with a version), lets `spoil` set the fault, and checks that a pack
// which fails leaves the target as it was. Returns whether the pack failed.
template <typename Spoil>
bool FailsAndLeavesTargetAsBefore(bool overwrite, const Spoil& spoil) {
  MemoryFileSystem memory;
  MakeSource(&memory);
  WriteFile(&memory, "/other/x/1.png", "old");
  if (overwrite) {
    EXPECT_TRUE(PackInto(&memory, SmallShards(), "/other").ok());
  }
  Tree before = Snapshot(&memory, "/packed");
  FaultyFileSystem fs(&memory);
  spoil(&fs);
  PackOptions options = SmallShards();
  options.overwrite = overwrite;
  auto packed = PackInto(&fs, options);
  fs.Heal();
  if (!packed.ok()) {
    EXPECT_EQ(packed.status().code(), Code::kResourceExhausted) << packed.status().ToString();
    EXPECT_EQ(Snapshot(&memory, "/packed"), before) << packed.status().ToString();
    EXPECT_EQ(memory.Exists("/packed"), overwrite);
  }
  auto again = PackInto(&fs, options);
  if (!packed.ok()) {
    EXPECT_TRUE(again.ok()) << again.status().ToString();
  }
  EXPECT_EQ(ReadSamples(&memory, kTarget), ExpectedSamples());
  return !packed.ok();
}

TEST(PackFullDisk, AtEveryByteCountLeavesTargetAsBefore) {
  for (bool overwrite : {false, true}) {
    uint64_t limit = 0;
    while (FailsAndLeavesTargetAsBefore(overwrite,
                                        [&](FaultyFileSystem* fs) { fs->LimitBytes(limit); })) {
      ASSERT_FALSE(HasFailure()) << "limit " << limit;
      limit += 391;
    }
    EXPECT_GT(limit, 10000u);
  }
}

TEST(PackFullDisk, MessageSaysHowMuchIsMissing) {
  MemoryFileSystem memory;
  MakeSource(&memory);
  FaultyFileSystem fs(&memory);
  fs.LimitBytes(6000);
  auto packed = PackInto(&fs, SmallShards());
  EXPECT_THAT(packed.status().ToString(), HasSubstr("more are needed"));
}

TEST(PackFullDisk, AtEveryCallLeavesTargetAsBefore) {
  Status full = Error(Code::kResourceExhausted, "the disk is full");
  for (FileOperation operation :
       {FileOperation::kCreate, FileOperation::kAppend, FileOperation::kSync, FileOperation::kClose,
        FileOperation::kWriteAtomically, FileOperation::kRename, FileOperation::kMakeDirectories,
        FileOperation::kSyncDirectory, FileOperation::kLock}) {
    for (bool overwrite : {false, true}) {
      SCOPED_TRACE(testing::Message()
                   << FileOperationName(operation) << (overwrite ? ", overwriting" : ""));
      uint64_t nth = 1;
      while (FailsAndLeavesTargetAsBefore(
          overwrite, [&](FaultyFileSystem* fs) { fs->FailNth(operation, nth, full); })) {
        ASSERT_FALSE(HasFailure()) << "call " << nth;
        ++nth;
      }
    }
  }
}

// An I/O fault keeps finished shards; what readers see stays, and the next try gives the same
// bytes.
TEST(PackFault, AtEveryCallTheNextTryGivesTheSameBytes) {
  MemoryFileSystem undisturbed;
  MakeSource(&undisturbed);
  ASSERT_TRUE(PackInto(&undisturbed, SmallShards()).ok());
  Tree after = Snapshot(&undisturbed, kTarget);
  for (FileOperation operation :
       {FileOperation::kCreate, FileOperation::kAppend, FileOperation::kSync, FileOperation::kClose,
        FileOperation::kWriteAtomically, FileOperation::kRename, FileOperation::kReadInto,
        FileOperation::kOpenForRead, FileOperation::kReadWhole, FileOperation::kList,
        FileOperation::kStat, FileOperation::kSyncDirectory, FileOperation::kRead}) {
    for (uint64_t nth = 1;; ++nth) {
      MemoryFileSystem memory;
      MakeSource(&memory);
      FaultyFileSystem fs(&memory);
      fs.FailNth(operation, nth, Error(Code::kIoError, "the disk is broken"));
      auto packed = PackInto(&fs, SmallShards());
      bool reached = fs.count(operation) >= nth;
      fs.Heal();
      SCOPED_TRACE(testing::Message() << FileOperationName(operation) << " " << nth);
      if (!packed.ok()) {
        EXPECT_FALSE(memory.Exists(kTarget + "/headrace.json"));
        auto again = PackInto(&fs, SmallShards());
        EXPECT_TRUE(again.ok()) << again.status().ToString();
      } else if (memory.Exists(kTarget + "/.headrace-pack")) {
        // A fault in the tidying after the publication fails nothing; the next pack tidies.
        (void)PackInto(&fs, SmallShards());
      }
      EXPECT_EQ(Snapshot(&memory, kTarget), after);
      ASSERT_FALSE(HasFailure());
      if (!reached) break;
    }
  }
}

}  // namespace
}  // namespace headrace::dataset
