#include "headrace/cache/cache_settings.h"

#include <gtest/gtest.h>

#include <cstdlib>

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
  ::setenv("HEADRACE_CACHE_BYTES", "much", 1);
  EXPECT_EQ(ReadCacheSettings({}).status().code(), Code::kInvalidArgument);
  ::unsetenv("HEADRACE_CACHE_DIR");
  ::unsetenv("HEADRACE_CACHE_BYTES");
  EXPECT_TRUE(ReadCacheSettings({})->node.directory.empty());
  EXPECT_EQ(ReadCacheSettings({{"cache_size", "1"}}).status().code(), Code::kInvalidArgument);
}

TEST(CacheSettings, TheSameSettingsShareACache) {
  TemporaryDirectory dir;
  BlockCacheOptions options;
  EXPECT_EQ(*WrapWithCache(options, ""), nullptr);
  options.node.directory = dir / "cache";
  options.node.limit_bytes = 1 << 20;
  auto a = WrapWithCache(options, "one"), b = WrapWithCache(options, "one"),
       c = WrapWithCache(options, "two");
  ASSERT_TRUE(a.ok()) << a.status().ToString();
  EXPECT_EQ(*a, *b);
  EXPECT_NE(*a, *c);
  auto origin = std::make_shared<CountingOrigin>();
  origin->Add("k", 1000);
  for (int i = 0; i < 2; ++i) {
    auto store = (**a)(origin);
    ASSERT_TRUE(store.ok());
    std::string out(1000, '\0');
    auto read = (*store)->Get(
        {.key = "k", .offset = 0, .out = std::as_writable_bytes(std::span(out)), .if_match = ""},
        {});
    EXPECT_TRUE(read.ok());
    EXPECT_EQ(out, CountingOrigin::Content("k", 1, 0, 1000));
  }
  EXPECT_EQ(origin->bytes(), 1000u);
}

}  // namespace
}  // namespace headrace::cache
