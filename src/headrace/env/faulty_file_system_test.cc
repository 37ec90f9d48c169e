#include "headrace/env/testing/faulty_file_system.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headrace/env/testing/memory_file_system.h"

namespace headrace {
namespace {

class FaultyFileSystemTest : public ::testing::Test {
 protected:
  static Status Broken() { return Error(Code::kIoError, "the disk is broken"); }
  MutableBytes Out() { return std::as_writable_bytes(std::span(out_)); }

  MemoryFileSystem memory_;
  FaultyFileSystem files_{&memory_};
  std::string out_ = "????";
};

TEST_F(FaultyFileSystemTest, FailsTheNthCallOnly) {
  files_.FailNth(FileOperation::kStat, 2, Broken());
  EXPECT_TRUE(files_.Stat("/").ok());
  EXPECT_EQ(files_.Stat("/").status().message(), "the disk is broken");
  EXPECT_TRUE(files_.Stat("/").ok());
  files_.FailNth(FileOperation::kStat, 1, Broken(), 2);
  EXPECT_FALSE(files_.Stat("/").ok());
  EXPECT_FALSE(files_.Stat("/").ok());
  EXPECT_TRUE(files_.Stat("/").ok());
  EXPECT_EQ(files_.count(FileOperation::kStat), 6u);
  EXPECT_EQ(files_.count(FileOperation::kList), 0u);
}

TEST_F(FaultyFileSystemTest, EachOperationCanFail) {
  ASSERT_TRUE(files_.WriteAtomically("/f", AsBytes("F")).ok());
  for (size_t i = 0; i < kNumFileOperations; ++i)
    files_.FailNth(static_cast<FileOperation>(i), 1, Broken());
  EXPECT_EQ(files_.OpenForRead("/f").status().code(), Code::kIoError);
  EXPECT_EQ(files_.Map("/f").status().code(), Code::kIoError);
  EXPECT_EQ(files_.OpenSharedWords("/w", 1).status().code(), Code::kIoError);
  EXPECT_EQ(files_.ReadWhole("/f", 9).status().code(), Code::kIoError);
  EXPECT_EQ(files_.ReadInto("/f", Out()).status().code(), Code::kIoError);
  EXPECT_EQ(files_.Stat("/f").status().code(), Code::kIoError);
  EXPECT_EQ(files_.List("/").status().code(), Code::kIoError);
  EXPECT_EQ(files_.Create("/g").status().code(), Code::kIoError);
  EXPECT_EQ(files_.OpenForAppend("/f").status().code(), Code::kIoError);
  files_.FailNth(FileOperation::kCreate, 1, Broken());
  EXPECT_EQ(files_.CreateDirect("/g").status().code(), Code::kIoError);
  EXPECT_EQ(files_.WriteAtomically("/f", {}).code(), Code::kIoError);
  EXPECT_EQ(files_.Rename("/f", "/g").code(), Code::kIoError);
  EXPECT_EQ(files_.Remove("/f").code(), Code::kIoError);
  EXPECT_EQ(files_.RemoveTree("/f").code(), Code::kIoError);
  EXPECT_EQ(files_.MakeDirectories("/d").code(), Code::kIoError);
  EXPECT_EQ(files_.SyncDirectory("/").code(), Code::kIoError);
  EXPECT_EQ(files_.Lock("/l").status().code(), Code::kIoError);
  EXPECT_EQ(files_.FreeBytes("/").status().code(), Code::kIoError);
  EXPECT_EQ(*memory_.ReadWhole("/f", 9), "F");  // nothing was done
  EXPECT_EQ(memory_.List("/")->size(), 1u);

  auto reader = files_.OpenForRead("/f");
  ASSERT_TRUE(reader.ok());
  EXPECT_EQ((*reader)->ReadAt(0, Out().first(1), {}).code(), Code::kIoError);
  EXPECT_TRUE((*reader)->ReadAt(0, Out().first(1), {}).ok());
}

TEST_F(FaultyFileSystemTest, AFileThatFailedStaysFailed) {
  for (auto operation : {FileOperation::kAppend, FileOperation::kSync, FileOperation::kClose}) {
    files_.Heal();
    files_.FailNth(operation, 1, Broken());
    auto file = files_.Create("/f");
    ASSERT_TRUE(file.ok());
    Status append = (*file)->Append(AsBytes("x"));
    Status sync = (*file)->Sync();
    EXPECT_EQ(append.ok(), operation != FileOperation::kAppend) << FileOperationName(operation);
    EXPECT_EQ(sync.ok(), operation == FileOperation::kClose) << FileOperationName(operation);
    EXPECT_EQ((*file)->Close().code(), Code::kIoError) << FileOperationName(operation);
  }
}

TEST_F(FaultyFileSystemTest, AFullDiskTakesWhatFits) {
  files_.LimitBytes(5);
  EXPECT_EQ(*files_.FreeBytes("/"), 5u);
  auto file = files_.Create("/f");
  ASSERT_TRUE((*file)->Append(AsBytes("abc")).ok());
  Status full = (*file)->Append(AsBytes("def"));
  EXPECT_EQ(full.code(), Code::kResourceExhausted);
  EXPECT_THAT(full.ToString(), ::testing::HasSubstr("no space"));
  EXPECT_EQ((*file)->Sync().code(), Code::kResourceExhausted);
  EXPECT_EQ(*memory_.ReadWhole("/f", 9), "abcde");
  EXPECT_EQ(files_.WriteAtomically("/g", AsBytes("x")).code(), Code::kResourceExhausted);
  EXPECT_FALSE(files_.Exists("/g"));
  files_.Heal();
  EXPECT_TRUE(files_.WriteAtomically("/g", AsBytes("x")).ok());
}

TEST_F(FaultyFileSystemTest, AFileCutShortReadsToItsNewEnd) {
  ASSERT_TRUE(files_.WriteAtomically("/a.tar", AsBytes("0123456789")).ok());
  ASSERT_TRUE(files_.WriteAtomically("/a.idx", AsBytes("0123456789")).ok());
  files_.EndFilesAt(".tar", 6);
  auto file = files_.OpenForRead("/a.tar");
  EXPECT_EQ((*file)->size(), 10u);
  EXPECT_TRUE((*file)->ReadAt(2, Out(), {}).ok());
  EXPECT_EQ(out_, "2345");
  EXPECT_EQ((*file)->ReadAt(3, Out(), {}).code(), Code::kDataLoss);
  EXPECT_EQ((*file)->ReadAt(7, Out(), {}).code(), Code::kDataLoss);
  EXPECT_EQ(*(*file)->ReadSome(4, Out(), {}), 2u);
  EXPECT_EQ(*(*file)->ReadSome(6, Out(), {}), 0u);
  EXPECT_EQ(*files_.ReadWhole("/a.tar", 99), "012345");
  EXPECT_EQ((*files_.Map("/a.tar"))->bytes().size(), 6u);
  std::string large(20, '?');
  EXPECT_EQ(*files_.ReadInto("/a.tar", std::as_writable_bytes(std::span(large))), 6u);
  EXPECT_EQ(*files_.ReadWhole("/a.idx", 99), "0123456789");
}

TEST_F(FaultyFileSystemTest, AFlippedBitShowsInEveryWayToRead) {
  ASSERT_TRUE(files_.WriteAtomically("/f", AsBytes("0000")).ok());
  files_.FlipBit("f", 2);
  EXPECT_EQ(*files_.ReadWhole("/f", 9), "0010");
  EXPECT_EQ(AsText((*files_.Map("/f"))->bytes()), "0010");
  ASSERT_TRUE(files_.ReadInto("/f", Out()).ok());
  EXPECT_EQ(out_, "0010");
  auto file = files_.OpenForRead("/f");
  ASSERT_TRUE((*file)->ReadAt(1, Out().first(2), {}).ok());
  EXPECT_EQ(out_, "0110");
  EXPECT_EQ(*(*file)->ReadSome(2, Out(), {}), 2u);
  EXPECT_EQ(out_, "1010");
  ASSERT_TRUE((*file)->ReadAt(3, Out().first(1), {}).ok());
  EXPECT_EQ(out_, "0010");
  EXPECT_EQ(*memory_.ReadWhole("/f", 9), "0000");
}

TEST_F(FaultyFileSystemTest, LosesAnswersOfWhatIsDone) {
  ASSERT_TRUE(files_.WriteAtomically("/a", AsBytes("x")).ok());
  files_.LoseNth(FileOperation::kRename, 1, Error(Code::kNotFound, "asked twice"));
  EXPECT_EQ(files_.Rename("/a", "/b").code(), Code::kNotFound);
  EXPECT_TRUE(files_.Exists("/b"));
  files_.LoseNth(FileOperation::kRemove, 1, Error(Code::kNotFound, "asked twice"));
  EXPECT_EQ(files_.Remove("/b").code(), Code::kNotFound);
  EXPECT_FALSE(files_.Exists("/b"));
}

}  // namespace
}  // namespace headrace
