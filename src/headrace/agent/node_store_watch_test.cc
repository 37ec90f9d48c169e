#include "headrace/agent/node_store_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headrace/cache/testing/counting_origin.h"
#include "headrace/checkpoint/testing/tiny_store.h"
#include "headrace/env/testing/faulty_file_system.h"
#include "headrace/env/testing/memory_file_system.h"
#include "headrace/env/testing/temporary_directory.h"

namespace headrace::agent {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

class NodeStoreWatchTest : public ::testing::Test {
 protected:
  // A cache of three blocks.
  void FillCache() {
    constexpr uint32_t kBlock = cache::kPageBytes;
    cache::NodeCacheOptions options;
    options.directory = "/cache";
    options.limit_bytes = 1 << 30;
    options.free_floor_bytes = 1 << 20;
    auto opened = cache::NodeCache::Open(&files_, options, Context());
    ASSERT_TRUE(opened.ok()) << opened.status().ToString();
    const cache::ObjectVersion version{"s3://bucket", "key", "v1", 3 * kBlock};
    for (uint64_t number = 0; number < 3; ++number) {
      const cache::BlockId id =
          cache::BlockOf(cache::IdentifyObject(version, kBlock), 3 * kBlock, kBlock, number);
      const std::string content = cache::CountingOrigin::Content("key", 1, number * kBlock, kBlock);
      auto claim = (*opened)->ClaimBlock(id);
      ASSERT_TRUE(claim.ok());
      ASSERT_TRUE((*claim)->Admit(version, kBlock, AsBytes(content), {}).ok());
    }
  }
  NodeStoreWatch Watch(const std::string& cache, const std::vector<std::string>& stores = {}) {
    return NodeStoreWatch({&files_, {}, cache, stores});
  }

  MemoryFileSystem memory_;
  FaultyFileSystem files_{&memory_};
};

TEST_F(NodeStoreWatchTest, ACacheThatIsNotThereYetComes) {
  NodeStoreWatch watch = Watch("/cache");
  EXPECT_NE(watch.LookAtCaches().Find("error"), nullptr);
  EXPECT_THAT(watch.CacheMetrics(), IsEmpty());
  FillCache();
  const Json caches = watch.LookAtCaches();
  EXPECT_EQ(caches.Find("error"), nullptr);
  ASSERT_THAT(caches.Find("directories")->items(), SizeIs(1));
  const Json& one = caches.Find("directories")->items()[0];
  EXPECT_EQ(one.Find("directory")->AsString(), "/cache");
  EXPECT_GT(one.Find("used_bytes")->AsUint(), 3u * cache::kPageBytes);
  EXPECT_EQ(one.Find("limit_bytes")->AsUint(), 1u << 30);
  EXPECT_THAT(watch.CacheMetrics(), SizeIs(2));
  EXPECT_THAT(Watch("").LookAtCaches().Find("directories")->items(), IsEmpty());
}

TEST_F(NodeStoreWatchTest, BlocksGoWhenOthersFillTheDisk) {
  FillCache();
  NodeStoreWatch watch = Watch("/cache");
  const uint64_t used =
      watch.LookAtCaches().Find("directories")->items()[0].Find("used_bytes")->AsUint();
  const uint64_t again =
      watch.LookAtCaches().Find("directories")->items()[0].Find("used_bytes")->AsUint();
  EXPECT_EQ(again, used);            // there is room
  files_.LimitBytes((1 << 20) - 1);  // below the floor
  const Json caches = watch.LookAtCaches();
  const Json& one = caches.Find("directories")->items()[0];
  EXPECT_LT(one.Find("used_bytes")->AsUint(), used);
  EXPECT_GT(one.Find("given_up_bytes")->AsUint(), 0u);
}

TEST_F(NodeStoreWatchTest, TellsTheNewestCheckpointsAndWhereTheyAre) {
  TemporaryDirectory dir;
  const std::string folder = dir / "ckpt", missing = dir / "missing";
  auto place = checkpoint::StoreInFolder(PosixFileSystem(), folder);
  ASSERT_TRUE(place.ok());
  checkpoint::CatalogStore store(*place);
  ASSERT_TRUE(store.TakeOver("me", {}).ok());
  for (uint64_t step : {10, 20}) ASSERT_TRUE(PublishTiny(&store, {step, 1, 1}).ok());
  NodeStoreWatch watch({PosixFileSystem(), {}, "", {folder, missing}});
  const Json checkpoints = watch.LookAtCheckpoints({});
  const Json::Array& stores = checkpoints.Find("stores")->items();
  ASSERT_THAT(stores, SizeIs(2));
  const Json::Array& list = stores[0].Find("checkpoints")->items();
  ASSERT_THAT(list, SizeIs(2));
  EXPECT_EQ(list[0].Find("step")->AsUint(), 20u);  // the newest first
  const Json& safe = list[0].Find("places")->items()[0];
  EXPECT_EQ(safe.Find("level")->AsString(), "local");
  EXPECT_GT(safe.Find("published_unix_ns")->AsInt(), 0);
  // Looking makes nothing.
  EXPECT_THAT(std::string(stores[1].Find("error")->AsString()), HasSubstr("nothing is at"));
  EXPECT_FALSE(PosixFileSystem()->Exists(missing));
}

TEST_F(NodeStoreWatchTest, NoSecretOfAUrlIsTold) {
  NodeStoreWatch watch = Watch("", {"https://user:hunter2@127.0.0.1:9/x?signature=abcdef"});
  const std::string text = watch.LookAtCheckpoints({}).Dump();
  EXPECT_THAT(text, HasSubstr("error"));
  EXPECT_THAT(text, Not(HasSubstr("hunter2")));
  EXPECT_THAT(text, Not(HasSubstr("abcdef")));
}

TEST_F(NodeStoreWatchTest, DatasetsWithoutAManifestHaveNoFacts) {
  ASSERT_TRUE(files_.MakeDirectories("/data/plain").ok());
  NodeStoreWatch watch = Watch("");
  EXPECT_THAT(watch.LookAtDatasets({"/data/plain", "relative", "/data/missing"}), IsEmpty());
}

}  // namespace
}  // namespace headrace::agent
