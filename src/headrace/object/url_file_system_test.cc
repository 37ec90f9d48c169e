// What needs no server: schemes, files by path and by URL, and that secrets stay where they belong.
#include "headrace/object/url_file_system.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headrace/env/testing/child_process.h"
#include "headrace/env/testing/temporary_directory.h"

namespace headrace::object {
namespace {

using ::testing::HasSubstr;

TEST(UrlFileSystem, FindsFilesByPathAndByUrl) {
  TemporaryDirectory dir;
  FileSystem* fs = UrlFileSystem({});
  ASSERT_TRUE(fs->WriteAtomically(dir / "f", AsBytes("content")).ok());
  EXPECT_EQ(*fs->ReadWhole(dir / "f", 10), "content");
  EXPECT_EQ(*fs->ReadWhole("file://" + (dir / "f"), 10), "content");
  EXPECT_EQ(*fs->ReadWhole("FILE://localhost" + (dir / "f"), 10), "content");
  EXPECT_EQ(fs->List("file://" + dir.path())->size(), 1u);
  ASSERT_TRUE(fs->Rename("file://" + (dir / "f"), dir / "g").ok());
  EXPECT_TRUE(fs->Exists(dir / "g"));
  EXPECT_TRUE(fs->FreeBytes("file://" + dir.path()).ok());
}

TEST(UrlFileSystem, RefusesOtherSchemes) {
  for (const char* url : {"gs://bucket/a", "hdfs://host/a", "s3a://bucket"}) {
    for (const Status& refused :
         {UrlFileSystem({})->Stat(url).status(), LocateUrl(url, {}).status()}) {
      EXPECT_EQ(refused.code(), Code::kInvalidArgument);
      EXPECT_THAT(refused.ToString(),
                  HasSubstr("there are file://, s3://, https://, http://, peer://"));
    }
  }
  EXPECT_EQ(LocateUrl("file://host/a", {}).status().code(), Code::kInvalidArgument);
}

TEST(UrlFileSystem, IsSharedBySettings) {
  UrlSettings one, two;
  two.s3.region = "eu-west-1";
  EXPECT_EQ(UrlFileSystem(one), UrlFileSystem(UrlSettings()));
  EXPECT_NE(UrlFileSystem(one), UrlFileSystem(two));
}

TEST(LocateUrl, MakesPathsOfWhatPeopleWrite) {
  EXPECT_EQ(LocateUrl("a/b", {})->path, "a/b");
  EXPECT_EQ(LocateUrl("file:///a/b", {})->path, "/a/b");
  EXPECT_EQ(LocateUrl("file://", {})->path, "/");
  EXPECT_EQ(LocateUrl("S3://bucket/a%20b", {})->path, "s3://bucket/a%20b") << "a key is as it is";
  EXPECT_EQ(LocateUrl("https://host/a%20b/", {})->path, "https://host/a b/");
  EXPECT_EQ(LocateUrl("https://host/a%zz", {}).status().code(), Code::kInvalidArgument);
}

TEST(LocateUrl, KeepsSecretsOutOfPaths) {
  auto place = LocateUrl("https://user:word@host/a?token=secret", {});
  ASSERT_TRUE(place.ok());
  EXPECT_EQ(place->path, "https://host/a");
  EXPECT_NE(place->fs, UrlFileSystem({}));
  EXPECT_EQ(place->fs, LocateUrl("https://user:word@host/b?token=secret", {})->fs);
  EXPECT_NE(place->fs, LocateUrl("https://host/a?token=other", {})->fs);
}

// Not even in the message that says that they are in the wrong place.
TEST(LocateUrl, KeepsSecretsOutOfMessages) {
  for (const char* url : {"s3://AKIA:secret@bucket/a", "file://user:secret@host/a",
                          "azure://account:secret@host/a?sig=secret"}) {
    auto place = LocateUrl(url, {});
    EXPECT_EQ(place.status().code(), Code::kInvalidArgument) << url;
    EXPECT_EQ(place.status().ToString().find("secret"), std::string::npos)
        << place.status().ToString();
  }
}

TEST(OpenStore, OpensFolders) {
  TemporaryDirectory dir;
  auto place = OpenStore("file://" + dir.path(), {});
  ASSERT_TRUE(place.ok()) << place.status().ToString();
  EXPECT_EQ(place->key, "");
  EXPECT_TRUE(place->store->Put("key", AsBytes("x"), {}, Context()).ok());
  EXPECT_TRUE(PosixFileSystem()->Exists(dir / "key"));
}

TEST(UrlFileSystem, WorksInAForkedChild) {
  TemporaryDirectory dir;
  FileSystem* fs = UrlFileSystem({});
  ASSERT_TRUE(fs->WriteAtomically(dir / "f", AsBytes("x")).ok());
  EXPECT_EQ(ExitOfChild([&] {
              bool same = fs->Exists("file://" + (dir / "f"));
              return same && UrlFileSystem({})->Exists(dir / "f") ? 0 : 1;
            }),
            0);
}

}  // namespace
}  // namespace headrace::object
