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

}  // namespace
}  // namespace headrace
