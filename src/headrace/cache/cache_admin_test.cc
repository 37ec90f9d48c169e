#include "headrace/cache/cache_admin.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headrace/cache/testing/counting_origin.h"
#include "headrace/env/testing/memory_file_system.h"

namespace headrace::cache {
namespace {

using ::testing::SizeIs;

constexpr uint32_t kBlock = kPageBytes;

class CacheAdminTest : public ::testing::Test {
 protected:
  CacheAdminTest() {
    NodeCacheOptions options;
    options.directory = "/cache";
    options.limit_bytes = 1 << 30;
    auto cache = NodeCache::Open(&files_, options, Context());
    EXPECT_TRUE(cache.ok());
    for (const char* key : {"train/a", "train/b", "val/c\n"})
      Admit(cache->get(), "s3://bucket", key);
  }
  static void Admit(NodeCache* cache, const std::string& store, const std::string& key) {
    for (uint64_t number = 0; number < 3; ++number) {
      ObjectVersion version{store, key, "v1", 3 * kBlock};
      BlockId id = BlockOf(IdentifyObject(version, kBlock), 3 * kBlock, kBlock, number);
      std::string content = CountingOrigin::Content(key, 1, number * kBlock, kBlock);
      EXPECT_TRUE((*cache->ClaimBlock(id))->Admit(version, kBlock, AsBytes(content), {}).ok());
    }
  }
  std::unique_ptr<CacheAdmin> Open() {
    auto admin = CacheAdmin::Open(&files_, "/cache");
    EXPECT_TRUE(admin.ok()) << admin.status().ToString();
    return *std::move(admin);
  }
  MemoryFileSystem files_;
};

TEST_F(CacheAdminTest, ListsObjectsByName) {
  auto list = Open()->List({});
  ASSERT_TRUE(list.ok());
  ASSERT_THAT(*list, SizeIs(3));
  EXPECT_EQ((*list)[0].Name(), "s3://bucket/train/a");
  EXPECT_EQ((*list)[2].Name(), "s3://bucket/val/c\\n");
  EXPECT_EQ((*list)[0].blocks, 3u);
  EXPECT_EQ((*list)[0].bytes, 3 * kBlock);
  EXPECT_FALSE((*list)[0].pinned);
}

TEST_F(CacheAdminTest, FindsByNamePrefixAndId) {
  auto admin = Open();
  EXPECT_THAT(*admin->Find("s3://bucket/train/*", {}), SizeIs(2));
  EXPECT_THAT(*admin->Find("s3://bucket/train/a", {}), SizeIs(1));
  std::string id = (*admin->Find("s3://bucket/train/b", {}))[0].id.Hex();
  EXPECT_EQ((*admin->Find(id, {}))[0].Name(), "s3://bucket/train/b");
  EXPECT_EQ(admin->Find("s3://bucket/train", {}).status().code(), Code::kNotFound);
}

TEST_F(CacheAdminTest, PinsRemovesAndClears) {
  auto admin = Open();
  ObjectId a = (*admin->Find("s3://bucket/train/a", {}))[0].id;
  ASSERT_TRUE(admin->Pin(a).ok());
  EXPECT_TRUE((*admin->List({}))[0].pinned);
  EXPECT_TRUE(admin->cache()->disks()[0]->MakeRoom(uint64_t{1} << 30).ok());
  EXPECT_THAT(*admin->List({}), SizeIs(1));  // all but the pinned one went
  ASSERT_TRUE(admin->Unpin(a).ok());
  ASSERT_TRUE(admin->Unpin(a).ok());
  EXPECT_EQ(*admin->Remove(a, {}), 3 * kBlock);
  EXPECT_THAT(*admin->List({}), SizeIs(0));
}

TEST_F(CacheAdminTest, WhereABucketIsStandsBehindItsUrl) {
  auto admin = Open();
  Admit(admin->cache()->disks()[0].get(), "s3://bucket at http://host:1", "train/a");
  Admit(admin->cache()->disks()[0].get(), "s3://bucket", "train/a at b");
  auto both = admin->Find("s3://bucket/train/a", {});
  ASSERT_TRUE(both.ok());
  ASSERT_THAT(*both, SizeIs(2));
  EXPECT_EQ((*both)[0].Name(), "s3://bucket/train/a");
  EXPECT_EQ((*both)[1].Name(), "s3://bucket/train/a at http://host:1");
  EXPECT_THAT(*admin->Find((*both)[1].Name(), {}), SizeIs(1));
  EXPECT_THAT(*admin->Find("s3://bucket/train/*", {}), SizeIs(4));
}

TEST_F(CacheAdminTest, ClearLeavesAnEmptyCache) {
  auto admin = Open();
  EXPECT_EQ(*admin->Clear({}), 9 * kBlock);
  EXPECT_THAT(*admin->List({}), SizeIs(0));
  EXPECT_EQ(admin->cache()->used_bytes(), 0u);
}

TEST_F(CacheAdminTest, VerifyRemovesWhatIsDamaged) {
  auto admin = Open();
  BlockId id = BlockOf((*admin->Find("s3://bucket/train/a", {}))[0].id, 3 * kBlock, kBlock, 1);
  std::string path = admin->cache()->disks()[0]->paths().Block(id, BlockFileKind::kBlock);
  std::string content = *files_.ReadWhole(path, 1 << 20);
  content.back() = static_cast<char>(content.back() ^ 1);
  ASSERT_TRUE(files_.WriteAtomically(path, AsBytes(content)).ok());
  CacheVerifyReport report;
  ASSERT_TRUE(admin->Verify(&report, {}).ok());
  EXPECT_EQ(report.blocks, 9u);
  EXPECT_EQ(report.damaged, 1u);
  CacheVerifyReport again;
  ASSERT_TRUE(admin->Verify(&again, {}).ok());
  EXPECT_EQ(again.blocks, 8u);
  EXPECT_EQ(again.damaged, 0u);
}

TEST_F(CacheAdminTest, ShowsAndChangesAllDirectories) {
  const ObjectVersion version{"s3://bucket", "both", "v1", 3 * kBlock};
  const ObjectId object = IdentifyObject(version, kBlock);
  NodeCacheOptions options;
  options.limit_bytes = 1 << 30;
  for (uint64_t number : {0, 1}) {
    options.directory = number == 0 ? "/cache" : "/second";
    auto cache = NodeCache::Open(&files_, options, Context());
    ASSERT_TRUE(cache.ok());
    BlockId id = BlockOf(object, 3 * kBlock, kBlock, number);
    std::string data(kBlock, 'x');
    ASSERT_TRUE((*(*cache)->ClaimBlock(id))->Admit(version, kBlock, AsBytes(data), {}).ok());
  }
  auto opened = CacheAdmin::Open(&files_, "/cache:/second");
  ASSERT_TRUE(opened.ok()) << opened.status().ToString();
  CacheAdmin& admin = **opened;
  EXPECT_THAT(*admin.List({}), SizeIs(4));
  auto both = admin.Find("s3://bucket/both", {});
  ASSERT_TRUE(both.ok());
  EXPECT_EQ((*both)[0].bytes, 2 * kBlock);
  CacheVerifyReport report;
  ASSERT_TRUE(admin.Verify(&report, {}).ok());
  EXPECT_EQ(report.blocks, 11u);
  ASSERT_TRUE(admin.Pin(object).ok());
  EXPECT_TRUE(files_.Exists(admin.cache()->disks()[1]->paths().Pin(object)));
  EXPECT_EQ(*admin.Remove(object, {}), 2 * kBlock);
  EXPECT_EQ(*admin.Clear({}), 9 * kBlock);
  EXPECT_EQ(admin.cache()->used_bytes(), 0u);
  EXPECT_EQ(CacheAdmin::Open(&files_, "/cache:/none").status().code(), Code::kNotFound);
}

TEST_F(CacheAdminTest, MakesNoCacheWhereNoneIs) {
  EXPECT_EQ(CacheAdmin::Open(&files_, "/none").status().code(), Code::kNotFound);
  EXPECT_FALSE(files_.Exists("/none"));
}

}  // namespace
}  // namespace headrace::cache
