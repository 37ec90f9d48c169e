#include "headrace/checkpoint/striped_store.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "headrace/checkpoint/prune.h"
#include "headrace/checkpoint/testing/test_tiers.h"

namespace headrace::checkpoint {
namespace {

class StripedStoreTest : public ::testing::Test {
 protected:
  Tier Open(const std::vector<std::string>& folders) {
    auto place = StoreInFolders(&disk_, folders);
    EXPECT_TRUE(place.ok()) << place.status().ToString();
    return Tier(Level::kLocal, *std::move(place), FilesInFolders(&disk_, folders));
  }
  size_t DataFilesIn(const std::string& folder) {
    auto entries = memory_.List(folder + "/data");
    return entries.ok() ? entries->size() : 0;
  }
  Status CompareAll(Tier* tier) {
    HR_ASSIGN_OR_RETURN(Catalog catalog, tier->store.Read({}));
    for (const CatalogEntry& entry : catalog.entries)
      HR_RETURN_IF_ERROR(CompareAt(tier, entry, StateOf(entry.id.step)));
    return OkStatus();
  }

  const std::vector<std::string> folders_{"/a", "/b", "/c"};
  MemoryFileSystem memory_;
  FaultyFileSystem disk_{&memory_};
};

TEST_F(StripedStoreTest, ASaveGoesToAllFoldersAndIsFoundInThem) {
  Tier tier = Open(folders_);
  auto epoch = tier.store.TakeOver("test", {});
  ASSERT_TRUE(epoch.ok());
  for (uint64_t step = 1; step <= 6; ++step)
    ASSERT_TRUE(SaveAt(&tier, *epoch, StateOf(step), step).ok());
  for (const std::string& folder : folders_) EXPECT_GT(DataFilesIn(folder), 0u) << folder;
  EXPECT_TRUE(memory_.Exists("/a/head"));
  EXPECT_FALSE(memory_.Exists("/b/head"));
  EXPECT_TRUE(CompareAll(&tier).ok());
  // Another program, with the other folders in another order.
  Tier other = Open({"/a", "/c", "/b"});
  EXPECT_EQ(CompareAll(&other).ToString(), "ok");
}

TEST_F(StripedStoreTest, PruneAndSweepReachAllFolders) {
  Tier tier = Open(folders_);
  auto epoch = tier.store.TakeOver("test", {});
  ASSERT_TRUE(epoch.ok());
  for (uint64_t step = 1; step <= 6; ++step)
    ASSERT_TRUE(SaveAt(&tier, *epoch, StateOf(step), step).ok());
  auto plan = PlanPrune(&tier.store, {.keep_last = 1}, {});
  ASSERT_TRUE(plan.ok());
  ASSERT_TRUE(Prune(&tier.store, *epoch, *plan, {}).ok());
  for (const std::string& folder : folders_) {
    auto file = memory_.Create(folder + "/data/left.safetensors");
    ASSERT_TRUE(file.ok() && (*file)->Close().ok());
  }
  auto swept = Sweep(&tier.store, *epoch, std::chrono::seconds(-3600), false, {});
  ASSERT_TRUE(swept.ok()) << swept.status().ToString();
  auto catalog = tier.store.Read({});
  ASSERT_TRUE(catalog.ok());
  ASSERT_EQ(catalog->entries.size(), 1u);
  auto manifest = tier.store.ReadManifest(catalog->entries[0], {});
  ASSERT_TRUE(manifest.ok());
  size_t files = 0;
  for (const std::string& folder : folders_) files += DataFilesIn(folder);
  EXPECT_EQ(files, 2 * manifest->files.size());
  EXPECT_EQ(CompareAll(&tier).ToString(), "ok");
}

TEST_F(StripedStoreTest, AFolderIsNamedOnce) {
  EXPECT_EQ(StoreInFolders(&memory_, {"/a", "/a"}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(StoreInFolders(&memory_, {}).status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace headrace::checkpoint
