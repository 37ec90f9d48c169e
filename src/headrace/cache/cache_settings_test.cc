#include "headrace/cache/cache_settings.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <set>
#include <vector>

#include "headrace/cache/testing/counting_origin.h"
#include "headrace/env/testing/temporary_directory.h"

namespace headrace::cache {
namespace {

TEST(CacheSettings, NamesWinOverTheEnvironment) {
  ::setenv("HEADRACE_CACHE_DIR", "/from/environment", 1);
  ::setenv("HEADRACE_CACHE_BYTES", "3GiB", 1);
  auto options = ReadCacheSettings({{"cache_memory_bytes", "1MiB"}});
  ASSERT_TRUE(options.ok()) << options.status().ToString();
  EXPECT_EQ(options->node.directory, "/from/environment");
  EXPECT_EQ(options->node.limit_bytes, uint64_t{3} << 30);
  EXPECT_EQ(options->memory_bytes, 1u << 20);
  options = ReadCacheSettings({{"cache_dir", "/named"}, {"cache_bytes", "10k"}});
  EXPECT_EQ(options->node.directory, "/named");
  EXPECT_EQ(options->node.limit_bytes, 10'000u);
  EXPECT_TRUE(options->keep_seek_points);
  ::setenv("HEADRACE_CACHE_SEEK_POINTS", "false", 1);
  EXPECT_FALSE(ReadCacheSettings({})->keep_seek_points);
  EXPECT_TRUE(ReadCacheSettings({{"cache_seek_points", "true"}})->keep_seek_points);
  ::unsetenv("HEADRACE_CACHE_SEEK_POINTS");
  EXPECT_EQ(ReadCacheSettings({{"cache_seek_points", "8"}}).status().code(),
            Code::kInvalidArgument);
  ::setenv("HEADRACE_CACHE_MEMORY_BYTES", "5MiB", 1);
  EXPECT_EQ(ReadCacheSettings({})->memory_bytes, uint64_t{5} << 20);
  EXPECT_EQ(ReadCacheSettings({{"cache_memory_bytes", "0"}})->memory_bytes, 0u);
  ::unsetenv("HEADRACE_CACHE_MEMORY_BYTES");
  ::setenv("HEADRACE_CACHE_BYTES", "much", 1);
  EXPECT_EQ(ReadCacheSettings({}).status().code(), Code::kInvalidArgument);
  ::unsetenv("HEADRACE_CACHE_DIR");
  ::unsetenv("HEADRACE_CACHE_BYTES");
  EXPECT_TRUE(ReadCacheSettings({})->node.directory.empty());
  EXPECT_EQ(ReadCacheSettings({{"cache_size", "1"}}).status().code(), Code::kInvalidArgument);
}

// A store's reads through `settings`, all of it and as it should be.
void ExpectRead(const object::UrlSettings& settings,
                const std::shared_ptr<CountingOrigin>& origin) {
  auto store = (*settings.wrap)(origin);
  ASSERT_TRUE(store.ok()) << store.status().ToString();
  std::string out(1000, '\0');
  auto read = (*store)->Get(
      {.key = "k", .offset = 0, .out = std::as_writable_bytes(std::span(out)), .if_match = ""}, {});
  EXPECT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(out, CountingOrigin::Content("k", 1, 0, 1000));
}

std::map<std::string, std::string> Named(const TemporaryDirectory& dir) {
  return {{"cache_dir", dir / "cache"}, {"cache_bytes", "1MiB"}};
}

TEST(StorageSettings, GiveTheNodeToThoseWhoKeepSideFiles) {
  TemporaryDirectory dir;
  auto named = Named(dir);
  auto settings = ReadStorageSettings(named, nullptr).value();
  const ObjectId id = IdentifySideFile({"a"});
  ASSERT_TRUE(settings.side);
  NodeCache* node = settings.side(id);
  ASSERT_NE(node, nullptr);
  EXPECT_EQ(node->paths().root(), dir / "cache");
  EXPECT_EQ(settings.side(id), node);
  named["cache_seek_points"] = "false";
  EXPECT_FALSE(ReadStorageSettings(named, nullptr)->side);
  EXPECT_FALSE(ReadStorageSettings({}, nullptr)->side);
  // Of several each side file has one of them, always the same.
  named["cache_dir"] = (dir / "cache") + ":" + (dir / "other");
  named.erase("cache_seek_points");
  settings = ReadStorageSettings(named, nullptr).value();
  std::set<std::string> roots;
  for (int i = 0; i < 20; ++i) {
    const ObjectId one = IdentifySideFile({std::to_string(i)});
    roots.insert(settings.side(one)->paths().root());
    EXPECT_EQ(settings.side(one), settings.side(one));
  }
  EXPECT_EQ(roots.size(), 2u);
  // A folder that is none: told once, and no failure.
  ASSERT_TRUE(PosixFileSystem()->MakeDirectories(dir / "full").ok());
  ASSERT_TRUE(PosixFileSystem()->WriteAtomically(dir / "full/file", {}).ok());
  named = {{"cache_dir", dir / "full"}};
  std::vector<std::string> told;
  settings =
      ReadStorageSettings(named, [&](const std::string& line) { told.push_back(line); }).value();
  EXPECT_EQ(settings.side(id), nullptr);
  EXPECT_EQ(settings.side(id), nullptr);
  EXPECT_EQ(told.size(), 1u);
}

TEST(StorageSettings, TheSameSettingsShareACache) {
  TemporaryDirectory dir;
  auto a = ReadStorageSettings(Named(dir), nullptr), b = ReadStorageSettings(Named(dir), nullptr);
  ASSERT_TRUE(a.ok()) << a.status().ToString();
  EXPECT_EQ(a->cache, b->cache);
  EXPECT_EQ(a->url.wrap, b->url.wrap);
  EXPECT_EQ(a->url.Fingerprint(), b->url.Fingerprint());
  auto named = Named(dir);
  named["endpoint"] = "http://127.0.0.1:1";
  auto elsewhere = ReadStorageSettings(named, nullptr);
  EXPECT_EQ(elsewhere->cache, a->cache);
  EXPECT_NE(elsewhere->url.wrap, a->url.wrap);
  auto origin = std::make_shared<CountingOrigin>();
  origin->Add("k", 1000);
  ExpectRead(a->url, origin);
  ExpectRead(b->url, origin);
  EXPECT_EQ(origin->bytes(), 1000u);
  EXPECT_EQ(a->cache->counters().origin_bytes, 1000u);
  EXPECT_TRUE(WaitForCaches(std::chrono::minutes(1)));
  EXPECT_EQ(a->cache->counters().node.admitted_bytes, 1000u);
}

TEST(StorageSettings, EachDirectoryCountsItsOwnReads) {
  TemporaryDirectory dir;
  auto named = Named(dir);
  const std::vector<std::string> roots = {dir / "one", dir / "two"};
  named["cache_dir"] = roots[0] + ":" + roots[1];
  named["cache_memory_bytes"] = "0";
  auto settings = ReadStorageSettings(named, nullptr);
  ASSERT_TRUE(settings.ok()) << settings.status().ToString();
  auto origin = std::make_shared<CountingOrigin>();
  origin->Add("k", 1000);
  ExpectRead(settings->url, origin);
  ASSERT_TRUE(WaitForCaches(std::chrono::minutes(1)));
  ExpectRead(settings->url, origin);
  std::map<std::string, NodeCacheCounters> disks = CountersOfAllDisks();
  ASSERT_EQ(disks.count(roots[0]) + disks.count(roots[1]), 2u);
  // The block belongs to one of them.
  const NodeCacheCounters &one = disks[roots[0]], &two = disks[roots[1]];
  EXPECT_EQ(one.reads + two.reads, 1u);
  EXPECT_EQ(one.read_bytes + two.read_bytes, 1000u);
  EXPECT_EQ(one.read_ns > 0, one.reads > 0);
  EXPECT_EQ(two.read_ns > 0, two.reads > 0);
}

TEST(StorageSettings, WithoutADirectoryThereIsMemoryForPlansAlone) {
  auto settings = ReadStorageSettings({{"region", "here-1"}, {"cache_bytes", "1GiB"}}, nullptr);
  ASSERT_TRUE(settings.ok()) << settings.status().ToString();
  EXPECT_EQ(settings->url.s3.region, "here-1");
  EXPECT_EQ(settings->cache, nullptr);
  EXPECT_FALSE(settings->side);
  ASSERT_NE(settings->url.wrap, nullptr);
  EXPECT_EQ(ReadStorageSettings({}, nullptr)->url.wrap, settings->url.wrap);
  EXPECT_NE(ReadStorageSettings({{"cache_memory_bytes", "1MiB"}}, nullptr)->url.wrap,
            settings->url.wrap);
  auto origin = std::make_shared<CountingOrigin>();
  origin->Add("k", 1000);
  const CacheCounters before = CountersOfAllCaches();
  ExpectRead(settings->url, origin);
  ExpectRead(settings->url, origin);
  EXPECT_EQ(origin->bytes(), 2000u);
  EXPECT_EQ(CountersOfAllCaches().origin_bytes, before.origin_bytes.value());
  EXPECT_EQ(ReadStorageSettings({{"cache_memory_bytes", "0"}}, nullptr)->url.wrap, nullptr);
  for (const char* name : {"cachedir", "cache_size", "regoin"})
    EXPECT_EQ(ReadStorageSettings({{name, "x"}}, nullptr).status().code(), Code::kInvalidArgument);
}

TEST(StorageSettings, ACacheIsMadeWhenAStoreIsOpened) {
  TemporaryDirectory dir;
  auto settings = ReadStorageSettings(Named(dir), nullptr);
  ASSERT_TRUE(settings.ok());
  EXPECT_FALSE(PosixFileSystem()->Exists(dir / "cache"));
  EXPECT_EQ(settings->cache->counters().misses, 0u);
  // Somebody's own files are in the way; once they are gone, the next try works.
  ASSERT_TRUE(PosixFileSystem()->MakeDirectories(dir / "cache/mine").ok());
  auto origin = std::make_shared<CountingOrigin>();
  origin->Add("k", 1000);
  EXPECT_EQ((*settings->url.wrap)(origin).status().code(), Code::kFailedPrecondition);
  ASSERT_TRUE(PosixFileSystem()->RemoveTree(dir / "cache").ok());
  ExpectRead(settings->url, origin);
}

// Two servers may have a bucket of the same name; the same server is the same place for all.
TEST(StorageSettings, BucketsOfTheSameNameAreTwoPlaces) {
  TemporaryDirectory dir;
  auto origin = std::make_shared<CountingOrigin>(kPageBytes, "s3://bucket");
  origin->Add("k", 1000);
  for (const char* endpoint : {"http://127.0.0.1:1", "http://127.0.0.1:2", "http://127.0.0.1:1"}) {
    auto named = Named(dir);
    named["endpoint"] = endpoint;
    auto settings = ReadStorageSettings(named, nullptr);
    ASSERT_TRUE(settings.ok());
    ExpectRead(settings->url, origin);
  }
  EXPECT_EQ(origin->bytes(), 2000u);
}

TEST(StorageSettings, AWarningGoesToWhoAskedForIt) {
  std::vector<std::string> lines;
  auto settings = ReadStorageSettings({{"cache_dir", "/proc/no-folder-can-be-made-here"}},
                                      [&lines](const std::string& line) { lines.push_back(line); });
  ASSERT_TRUE(settings.ok());
  auto origin = std::make_shared<CountingOrigin>();
  origin->Add("k", 1000);
  ExpectRead(settings->url, origin);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_NE(lines[0].find("/proc/no-folder"), std::string::npos);
}

}  // namespace
}  // namespace headrace::cache
