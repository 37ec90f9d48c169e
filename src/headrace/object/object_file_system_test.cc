#include "headrace/object/object_file_system.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headrace/object/testing/faulty_store.h"
#include "headrace/object/testing/memory_store.h"

namespace headrace::object {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string Pattern(size_t bytes) {
  std::string content(bytes, '\0');
  for (size_t i = 0; i < bytes; ++i) content[i] = static_cast<char>(i * 31 >> 3);
  return content;
}

MutableBytes Writable(std::string* text) { return std::as_writable_bytes(std::span(*text)); }

class ObjectFileSystemTest : public ::testing::Test {
 protected:
  explicit ObjectFileSystemTest(const MemoryStoreOptions& options = {})
      : memory_(MakeMemoryStore(options)), store_(std::make_shared<FaultyStore>(memory_)) {
    ObjectFileSystemOptions small;
    small.part_bytes = 100;
    small.max_memory_bytes = 10'000;
    fs_ = MakeObjectFileSystem(store_, small);
  }
  void Put(const std::string& key, const std::string& content) {
    ASSERT_TRUE(memory_->Put(key, AsBytes(content), {}, Context()).ok());
  }
  std::vector<std::string> Names(const std::string& path) {
    auto entries = fs_->List(path);
    if (!entries.ok()) return {std::string(CodeName(entries.status().code()))};
    std::vector<std::string> names;
    for (const DirectoryEntry& entry : *entries)
      names.push_back(entry.name + (entry.kind == FileKind::kDirectory ? "/" : ""));
    return names;
  }
  Code CodeOf(const Status& status) { return status.code(); }

  std::shared_ptr<ObjectStore> memory_;
  std::shared_ptr<FaultyStore> store_;
  std::shared_ptr<FileSystem> fs_;
};

TEST_F(ObjectFileSystemTest, ReadsAFile) {
  std::string content = Pattern(1234);
  Put("a/b", content);
  auto file = fs_->OpenForRead("mem://test/a/b");
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  EXPECT_EQ((*file)->size(), 1234u);
  EXPECT_EQ((*file)->path(), "mem://test/a/b");
  EXPECT_EQ((*file)->info().kind, FileKind::kRegular);
  for (auto [offset, bytes] : std::vector<std::pair<uint64_t, size_t>>{
           {0, 1234}, {0, 0}, {1234, 0}, {7, 99}, {99, 2}, {100, 100}, {1233, 1}, {333, 901}}) {
    std::string out(bytes, '?');
    ASSERT_TRUE((*file)->ReadAt(offset, Writable(&out), Context()).ok());
    EXPECT_EQ(out, content.substr(offset, bytes));
  }
  std::string out(500, '?');
  EXPECT_EQ(*(*file)->ReadSome(1000, Writable(&out), Context()), 234u);
  EXPECT_EQ(out.substr(0, 234), content.substr(1000));
  EXPECT_EQ(*(*file)->ReadSome(5000, Writable(&out), Context()), 0u);
  EXPECT_EQ(CodeOf((*file)->ReadAt(1000, Writable(&out), Context())), Code::kDataLoss);
  EXPECT_EQ(*fs_->ReadWhole("mem://test/a/b", 2000), content);
  EXPECT_EQ(CodeOf(fs_->ReadWhole("mem://test/a/b", 1233).status()), Code::kResourceExhausted);
  EXPECT_EQ(*fs_->ReadInto("mem://test/a/b", Writable(&out)), 500u);
  EXPECT_EQ(out, content.substr(0, 500));
  EXPECT_EQ(AsText((*fs_->Map("mem://test/a/b"))->bytes()), content);
}

TEST_F(ObjectFileSystemTest, ReadsEmptyFiles) {
  Put("empty", "");
  EXPECT_EQ((*fs_->OpenForRead("mem://test/empty"))->size(), 0u);
  EXPECT_EQ(*fs_->ReadWhole("mem://test/empty", 0), "");
  EXPECT_EQ((*fs_->Map("mem://test/empty"))->bytes().size(), 0u);
}

TEST_F(ObjectFileSystemTest, ALargeReadIsOneRequestAPart) {
  Put("key", Pattern(950));
  std::string out(950, '?');
  ASSERT_TRUE((*fs_->OpenForRead("mem://test/key"))->ReadAt(0, Writable(&out), Context()).ok());
  EXPECT_EQ(store_->count(StoreOperation::kGet), 10u);
  EXPECT_EQ(out, Pattern(950));
}

TEST_F(ObjectFileSystemTest, AFileThatIsReplacedIsNeverAMix) {
  Put("key", std::string(500, 'a'));
  auto file = fs_->OpenForRead("mem://test/key");
  ASSERT_TRUE(file.ok());
  // While the third of five parts is asked for.
  store_->RunBeforeNth(StoreOperation::kGet, 3, [&] { Put("key", std::string(500, 'b')); });
  std::string out(500, '?');
  Status mixed = (*file)->ReadAt(0, Writable(&out), Context());
  EXPECT_EQ(mixed.code(), Code::kFailedPrecondition);
  EXPECT_THAT(mixed.ToString(), HasSubstr("mem://test/key"));
  EXPECT_EQ(CodeOf((*file)->ReadAt(0, Writable(&out), Context())), Code::kFailedPrecondition);
  ASSERT_TRUE((*fs_->OpenForRead("mem://test/key"))->ReadAt(0, Writable(&out), Context()).ok());
  EXPECT_EQ(out, std::string(500, 'b'));
  ASSERT_TRUE(memory_->Delete("key", Context()).ok());
  EXPECT_EQ(CodeOf((*file)->ReadAt(0, Writable(&out), Context())), Code::kNotFound);
}

TEST_F(ObjectFileSystemTest, FailuresAreToldAsTheyAre) {
  Put("key", "x");
  for (Code code : {Code::kUnavailable, Code::kPermissionDenied, Code::kDataLoss}) {
    store_->FailNth(StoreOperation::kHead, 1, Error(code, "as it is"));
    EXPECT_EQ(CodeOf(fs_->OpenForRead("mem://test/key").status()), code);
    auto file = fs_->OpenForRead("mem://test/key");
    store_->FailNth(StoreOperation::kGet, 1, Error(code, "as it is"));
    std::string out(1, '?');
    EXPECT_EQ(CodeOf((*file)->ReadAt(0, Writable(&out), Context())), code);
  }
  store_->FailNth(StoreOperation::kHead, 1, Error(Code::kUnavailable, "503"));
  EXPECT_EQ(CodeOf(fs_->Stat("mem://test/none").status()), Code::kUnavailable);
  store_->FailNth(StoreOperation::kList, 1, Error(Code::kUnavailable, "503"));
  EXPECT_EQ(CodeOf(fs_->Stat("mem://test/none").status()), Code::kUnavailable);
}

TEST_F(ObjectFileSystemTest, TellsFilesFromDirectories) {
  Put("a/b/c", "12345");
  Put("a/b/d", "");
  FileInfo file = *fs_->Stat("mem://test/a/b/c");
  EXPECT_EQ(file.kind, FileKind::kRegular);
  EXPECT_EQ(file.size_bytes, 5u);
  for (const char* path : {"mem://test", "mem://test/", "mem://test/a", "mem://test/a/b/"})
    EXPECT_EQ(fs_->Stat(path)->kind, FileKind::kDirectory) << path;
  EXPECT_NE(fs_->Stat("mem://test/a")->inode, fs_->Stat("mem://test/a/b")->inode);
  EXPECT_NE(file.inode, fs_->Stat("mem://test/a/b/d")->inode);
  EXPECT_EQ(file.device, fs_->Stat("mem://test/a")->device);
  EXPECT_EQ(CodeOf(fs_->Stat("mem://test/a/c").status()), Code::kNotFound);
  EXPECT_EQ(CodeOf(fs_->Stat("mem://test/a/b/c/d").status()), Code::kNotFound);
  EXPECT_EQ(CodeOf(fs_->OpenForRead("mem://test/a").status()), Code::kInvalidArgument);
  EXPECT_EQ(CodeOf(fs_->OpenForRead("mem://test").status()), Code::kInvalidArgument);
  EXPECT_EQ(CodeOf(fs_->OpenForRead("mem://test/x").status()), Code::kNotFound);
}

TEST_F(ObjectFileSystemTest, Lists) {
  for (const char* key : {"a/1", "a/2", "a/b/3", "a-", "b", "b/c", "d//e", "d/./f", "d/g", "h/"})
    Put(key, "x");
  EXPECT_THAT(Names("mem://test"), ElementsAre("a/", "a-", "b", "d/", "h/"));
  EXPECT_THAT(Names("mem://test/a"), ElementsAre("1", "2", "b/"));
  EXPECT_THAT(Names("mem://test/a/"), ElementsAre("1", "2", "b/"));
  EXPECT_THAT(Names("mem://test/d"), ElementsAre("g"));
  EXPECT_THAT(Names("mem://test/h"), IsEmpty());
  EXPECT_THAT(Names("mem://test/none"), ElementsAre("not found"));
}

TEST_F(ObjectFileSystemTest, AListingTellsOfObjectsWhatStatDoes) {
  Put("a/1", "four");
  Put("a/b/3", "x");
  auto entries = fs_->List("mem://test/a");
  ASSERT_TRUE(entries.ok());
  ASSERT_EQ(entries->size(), 2u);
  auto stat = fs_->Stat("mem://test/a/1");
  ASSERT_TRUE((*entries)[0].info.has_value());
  EXPECT_EQ((*entries)[0].info->size_bytes, 4u);
  EXPECT_EQ((*entries)[0].info->inode, stat->inode);
  EXPECT_EQ((*entries)[0].info->mtime_ns, stat->mtime_ns);
  EXPECT_FALSE((*entries)[1].info.has_value());
}

TEST_F(ObjectFileSystemTest, AnEmptyBucketIsAnEmptyDirectory) {
  EXPECT_THAT(Names("mem://test"), IsEmpty());
}

TEST_F(ObjectFileSystemTest, ListsMoreThanAPage) {
  for (int i = 0; i < 2345; ++i) Put("dir/" + std::to_string(10'000 + i), "x");
  EXPECT_EQ(Names("mem://test/dir").size(), 2345u);
}

TEST_F(ObjectFileSystemTest, PathsStayBelowTheRoot) {
  Put("a/b", "x");
  for (const char* path : {"mem://test/a/b", "mem://test//a//b/", "mem://test/./a/x/../b"})
    EXPECT_TRUE(fs_->Exists(path)) << path;
  for (const char* path :
       {"mem://test/..", "mem://test/a/../../b", "mem://tests/a/b", "mem://tes", "/a/b", "a/b", ""})
    EXPECT_EQ(CodeOf(fs_->Stat(path).status()), Code::kInvalidArgument) << path;
}

TEST_F(ObjectFileSystemTest, MapIsBounded) {
  Put("large", Pattern(10'001));
  EXPECT_EQ(CodeOf(fs_->Map("mem://test/large").status()), Code::kResourceExhausted);
}

TEST_F(ObjectFileSystemTest, WritesFiles) {
  ASSERT_TRUE(fs_->MakeDirectories("mem://test/new").ok());
  ASSERT_TRUE(fs_->WriteAtomically("mem://test/new/file", AsBytes("one")).ok());
  ASSERT_TRUE(fs_->SyncDirectory("mem://test/new").ok());
  EXPECT_EQ(*fs_->ReadWhole("mem://test/new/file", 10), "one");
  ASSERT_TRUE(fs_->Rename("mem://test/new/file", "mem://test/new/other").ok());
  EXPECT_THAT(Names("mem://test/new"), ElementsAre("other"));
  EXPECT_EQ(*fs_->ReadWhole("mem://test/new/other", 10), "one");
  ASSERT_TRUE(fs_->Remove("mem://test/new/other").ok());
  EXPECT_EQ(CodeOf(fs_->Remove("mem://test/new/other")), Code::kNotFound);
  EXPECT_THAT(Names("mem://test"), IsEmpty());
}

TEST_F(ObjectFileSystemTest, SendsLargeFilesInParts) {
  for (size_t bytes : {0, 1, 99, 100, 101, 1000, 1234}) {
    std::string content = Pattern(bytes), path = "mem://test/f" + std::to_string(bytes);
    auto file = fs_->Create(path);
    ASSERT_TRUE(file.ok());
    for (size_t at = 0; at < bytes; at += 77)
      ASSERT_TRUE((*file)->Append(AsBytes(content.substr(at, 77))).ok());
    EXPECT_EQ((*file)->size(), bytes);
    EXPECT_TRUE((*file)->Sync().ok());
    EXPECT_FALSE(fs_->Exists(path)) << "before Close nothing is there";
    EXPECT_TRUE((*file)->Close().ok());
    EXPECT_TRUE((*file)->Close().ok());
    EXPECT_EQ(CodeOf((*file)->Append(AsBytes("x"))), Code::kFailedPrecondition);
    EXPECT_EQ(*fs_->ReadWhole(path, 10'000), content);
  }
  EXPECT_THAT(*memory_->ListUploads("", Context()), IsEmpty());
}

TEST_F(ObjectFileSystemTest, AFileThatIsNotClosedIsNotThere) {
  auto file = fs_->Create("mem://test/f");
  ASSERT_TRUE((*file)->Append(AsBytes(Pattern(1000))).ok());
  *file = nullptr;
  EXPECT_FALSE(fs_->Exists("mem://test/f"));
  EXPECT_THAT(*memory_->ListUploads("", Context()), IsEmpty());
}

TEST_F(ObjectFileSystemTest, AFailedWriteFailsTheFile) {
  store_->FailNth(StoreOperation::kPutPart, 2, Error(Code::kUnavailable, "503"));
  auto file = fs_->Create("mem://test/f");
  EXPECT_EQ(CodeOf((*file)->Append(AsBytes(Pattern(1000)))), Code::kUnavailable);
  EXPECT_EQ(CodeOf((*file)->Append(AsBytes("x"))), Code::kUnavailable);
  EXPECT_EQ(CodeOf((*file)->Sync()), Code::kUnavailable);
  EXPECT_EQ(CodeOf((*file)->Close()), Code::kUnavailable);
  EXPECT_FALSE(fs_->Exists("mem://test/f"));
}

TEST_F(ObjectFileSystemTest, RefusesWhatABucketCannotDo) {
  Put("f", "x");
  const std::string path = "mem://test/f";
  std::string name;
  for (const Status& refused :
       {fs_->OpenSharedWords(path, 1).status(), fs_->OpenForAppend(path).status(),
        fs_->Lock(path).status(), fs_->CreateTemporary("mem://test", &name).status(),
        fs_->RenameIfAbsent(path, path + "2"), fs_->RemoveTree(path)}) {
    EXPECT_EQ(refused.code(), Code::kUnimplemented) << refused.ToString();
    EXPECT_THAT(refused.ToString(), HasSubstr("mem://test"));
  }
  EXPECT_EQ(*fs_->ReadWhole(path, 10), "x");
}

// A store that only reads, and can neither list nor ask for a version: a web server.
class WebFileSystemTest : public ObjectFileSystemTest {
 protected:
  WebFileSystemTest()
      : ObjectFileSystemTest({.abilities = {.list = false, .write = true, .get_if_match = false}}) {
  }
};

TEST_F(WebFileSystemTest, ReadsWhatIsNamed) {
  Put("a/b", "content");
  EXPECT_EQ(*fs_->ReadWhole("mem://test/a/b", 10), "content");
  EXPECT_EQ(CodeOf(fs_->Stat("mem://test/a").status()), Code::kNotFound);
  EXPECT_EQ(CodeOf(fs_->List("mem://test/a").status()), Code::kUnimplemented);
}

TEST_F(WebFileSystemTest, NoticesAReplacedFileByWhatComesAlong) {
  Put("a", "content");
  auto file = fs_->OpenForRead("mem://test/a");
  Put("a", "another");
  std::string out(7, '?');
  EXPECT_EQ(CodeOf((*file)->ReadAt(0, Writable(&out), Context())), Code::kFailedPrecondition);
  Put("a", "short");
  EXPECT_EQ(CodeOf((*file)->ReadAt(0, Writable(&out), Context())), Code::kFailedPrecondition);
}

}  // namespace
}  // namespace headrace::object
