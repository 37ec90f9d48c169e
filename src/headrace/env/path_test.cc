#include <gtest/gtest.h>

#include "headrace/env/file.h"

namespace headrace {
namespace {

TEST(Path, JoinPutsOneSlashBetween) {
  EXPECT_EQ(JoinPath("a", "b"), "a/b");
  EXPECT_EQ(JoinPath("a/", "b"), "a/b");
  EXPECT_EQ(JoinPath("a//", "//b"), "a/b");
  EXPECT_EQ(JoinPath("a", "/b"), "a/b");
  EXPECT_EQ(JoinPath("/", "b"), "/b");
  EXPECT_EQ(JoinPath("/", "/"), "/");
  EXPECT_EQ(JoinPath("a", "b/"), "a/b/");
}

TEST(Path, JoinWithAnEmptyPartAddsNothing) {
  EXPECT_EQ(JoinPath("", "b"), "b");
  EXPECT_EQ(JoinPath("", "/b"), "/b");
  EXPECT_EQ(JoinPath("a", ""), "a");
  EXPECT_EQ(JoinPath("", ""), "");
}

TEST(Path, BaseNameIsTheLastPart) {
  EXPECT_EQ(BaseName("a/b/c"), "c");
  EXPECT_EQ(BaseName("a/b/"), "b");
  EXPECT_EQ(BaseName("c"), "c");
  EXPECT_EQ(BaseName("/c"), "c");
  EXPECT_EQ(BaseName("/"), "/");
  EXPECT_EQ(BaseName("///"), "/");
  EXPECT_EQ(BaseName(""), "");
}

TEST(Path, DirectoryNameIsAllBeforeIt) {
  EXPECT_EQ(DirectoryName("a/b/c"), "a/b");
  EXPECT_EQ(DirectoryName("a/b/"), "a");
  EXPECT_EQ(DirectoryName("a//b"), "a");
  EXPECT_EQ(DirectoryName("c"), ".");
  EXPECT_EQ(DirectoryName("/c"), "/");
  EXPECT_EQ(DirectoryName("//c"), "/");
  EXPECT_EQ(DirectoryName("/"), "/");
  EXPECT_EQ(DirectoryName(""), ".");
}

TEST(Path, AUrlHasARoot) {
  EXPECT_EQ(JoinPath("s3://bucket", "a"), "s3://bucket/a");
  EXPECT_EQ(JoinPath("s3://bucket/", "a"), "s3://bucket/a");
  EXPECT_EQ(JoinPath("file://", "a"), "file:///a");
  EXPECT_EQ(DirectoryName("s3://bucket/a/b"), "s3://bucket/a");
  EXPECT_EQ(DirectoryName("s3://bucket/a"), "s3://bucket");
  EXPECT_EQ(DirectoryName("s3://bucket/"), "s3://bucket");
  EXPECT_EQ(DirectoryName("s3://bucket"), "s3://bucket");
  EXPECT_EQ(DirectoryName("file:///a"), "file://");
  EXPECT_EQ(BaseName("s3://bucket/a/b/"), "b");
  EXPECT_EQ(BaseName("s3://bucket"), "s3://bucket");
  EXPECT_EQ(UrlRoot("s3://bucket/a/b"), "s3://bucket");
  EXPECT_EQ(UrlRoot("s3://bucket"), "s3://bucket");
  EXPECT_EQ(UrlRoot("/a/b"), "");
}

TEST(Path, TellsUrlsFromFiles) {
  for (const char* url : {"s3://bucket", "https://host/a", "x-y+z.1://a", "s3://"}) {
    EXPECT_TRUE(IsUrl(url)) << url;
    EXPECT_TRUE(IsAbsolutePath(url)) << url;
  }
  for (const char* path : {"", "a", "/a://b", "://a", "a/b://c", "a:/b", "a b://c", "s3:"})
    EXPECT_FALSE(IsUrl(path)) << path;
  EXPECT_TRUE(IsAbsolutePath("/a"));
  EXPECT_FALSE(IsAbsolutePath("a"));
  EXPECT_FALSE(IsAbsolutePath(""));
}

}  // namespace
}  // namespace headrace
