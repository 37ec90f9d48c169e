#include "headrace/checkpoint/data_files.h"

#include <gtest/gtest.h>

#include <string>

#include "headrace/env/testing/faulty_file_system.h"
#include "headrace/env/testing/memory_file_system.h"

namespace headrace::checkpoint {
namespace {

class FolderFilesTest : public ::testing::Test {
 protected:
  Result<bool> WriteThenName(std::string_view content, const LateKey& key) {
    const Bytes half = AsBytes(content).first(content.size() / 2);
    const Bytes parts[] = {half, AsBytes(content).subspan(half.size())};
    return files_->WriteThenName(parts, key, {});
  }
  size_t NumFiles() {
    auto entries = memory_.List("/ckpt/data");
    return entries.ok() ? entries->size() : 0;
  }

  MemoryFileSystem memory_;
  FaultyFileSystem faulty_{&memory_};
  const std::unique_ptr<DataFiles> files_ = FilesInFolder(&faulty_, "/ckpt");
};

LateKey Named(const std::string& name) {
  return [name]() -> Result<std::string> { return name; };
}

TEST_F(FolderFilesTest, AFileGetsItsNameOnceItIsWritten) {
  auto key = [this]() -> Result<std::string> {
    EXPECT_EQ(NumFiles(), 1u);
    return std::string("data/a.safetensors");
  };
  auto written = WriteThenName("content", key);
  ASSERT_TRUE(written.ok()) << written.status().ToString();
  EXPECT_TRUE(*written);
  EXPECT_EQ(*memory_.ReadWhole("/ckpt/data/a.safetensors", 100), "content");
  // It is there, and nothing else is left behind.
  written = WriteThenName("CONTENT", Named("data/a.safetensors"));
  ASSERT_TRUE(written.ok());
  EXPECT_FALSE(*written);
  EXPECT_EQ(*memory_.ReadWhole("/ckpt/data/a.safetensors", 100), "content");
  EXPECT_EQ(NumFiles(), 1u);
}

TEST_F(FolderFilesTest, ANamedFileSurvivesAPowerCutAfterASync) {
  ASSERT_TRUE(memory_.MakeDirectories("/ckpt").ok());
  ASSERT_TRUE(memory_.SyncDirectory("/").ok());
  ASSERT_TRUE(WriteThenName("content", Named("data/a.safetensors")).ok());
  ASSERT_TRUE(files_->Sync({}).ok());
  memory_.PowerCut();
  memory_.PowerOn();
  EXPECT_EQ(*memory_.ReadWhole("/ckpt/data/a.safetensors", 100), "content");
}

TEST_F(FolderFilesTest, FaultsLeaveNothingBehind) {
  const Status fault = Error(Code::kIoError, "the disk is broken");
  for (FileOperation operation : {FileOperation::kAppend, FileOperation::kSync,
                                  FileOperation::kClose, FileOperation::kRename}) {
    // Closing the file that only takes the name comes first.
    faulty_.FailNth(operation, operation == FileOperation::kClose ? 2 : 1, fault);
    EXPECT_EQ(WriteThenName("content", Named("data/a.safetensors")).status().code(), Code::kIoError)
        << FileOperationName(operation);
    EXPECT_EQ(NumFiles(), 0u) << FileOperationName(operation);
    faulty_.Heal();
  }
  auto no_key = [&fault]() -> Result<std::string> { return fault; };
  EXPECT_EQ(WriteThenName("content", no_key).status().code(), Code::kIoError);
  EXPECT_EQ(NumFiles(), 0u);
}

}  // namespace
}  // namespace headrace::checkpoint
