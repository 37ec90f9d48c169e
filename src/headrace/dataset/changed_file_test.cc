// Shards that change, go stale or are put anew while a dataset is open: what is read is of the file
// that the index was made of, or an error.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>

#include "headrace/dataset/dataset.h"
#include "headrace/dataset/index_build.h"
#include "headrace/dataset/testing/tar_maker.h"
#include "headrace/env/testing/faulty_file_system.h"
#include "headrace/env/testing/memory_file_system.h"

namespace headrace::dataset {
namespace {

using ::testing::HasSubstr;

class ChangedFileTest : public ::testing::Test {
 protected:
  ChangedFileTest() {
    Put(&memory_, "/d/0.tar", MakeTar(MakeSamples("a/", 3)));
    Put(&memory_, "/d/1.tar", MakeTar(MakeSamples("b/", 3)));
    std::vector<std::string> paths = {"/d"};
    // Without checksums: only what is known of the file itself can tell.
    EXPECT_TRUE(IndexDataset(&memory_, paths, {}, Context()).ok());
  }
  void Open(uint32_t max_open_files) {
    OpenOptions options;
    options.max_open_files = max_open_files;
    dataset_ = Dataset::Open(&files_, "/d", options).value();
    ReadOptions read;
    read.learn_checksums = false;
    reader_ = SampleReader::Create(dataset_, read);
  }
  Status Read(uint64_t sample) { return reader_->Read(sample, {}, Context()).status(); }

  const Status stale_ = ErrnoError(ESTALE, "cannot read");
  MemoryFileSystem memory_;
  FaultyFileSystem files_{&memory_};
  std::shared_ptr<const Dataset> dataset_;
  std::unique_ptr<SampleReader> reader_;
};

TEST_F(ChangedFileTest, AStaleHandleIsOpenedAnewOnce) {
  Open(10);
  ASSERT_TRUE(Read(0).ok());
  const uint64_t opened = files_.count(FileOperation::kOpenForRead);
  files_.FailNth(FileOperation::kRead, 1, stale_);
  EXPECT_TRUE(Read(1).ok());
  EXPECT_EQ(files_.count(FileOperation::kOpenForRead), opened + 1);
  files_.FailNth(FileOperation::kRead, 1, stale_, 2);
  EXPECT_EQ(Read(1).code(), Code::kUnavailable);
  EXPECT_TRUE(Read(1).ok());
}

TEST_F(ChangedFileTest, AStaleHandleOfAFileThatWasReplacedIsAnError) {
  Open(10);
  ASSERT_TRUE(Read(0).ok());
  Put(&memory_, "/d/0.tar", MakeTar(MakeSamples("c/", 3)));
  EXPECT_TRUE(Read(1).ok()) << "what is open is what it was";
  files_.FailNth(FileOperation::kRead, 1, stale_);
  Status replaced = Read(1);
  EXPECT_EQ(replaced.code(), Code::kFailedPrecondition);
  EXPECT_THAT(replaced.ToString(), HasSubstr("/d/0.tar"));
  EXPECT_THAT(replaced.ToString(), HasSubstr("headrace index"));
}

// The table of open files may have closed it in between.
TEST_F(ChangedFileTest, AFileIsHeldAgainstItsIndexAgainWhenItIsAnotherOne) {
  Open(1);
  ASSERT_TRUE(Read(0).ok());
  ASSERT_TRUE(Read(3).ok());  // closes the first shard
  Put(&memory_, "/d/0.tar", MakeTar(MakeSamples("c/", 3)));
  EXPECT_EQ(Read(1).code(), Code::kFailedPrecondition);
  Put(&memory_, "/d/0.tar", MakeTar(MakeSamples("a/", 3)));
  EXPECT_TRUE(Read(1).ok()) << "the same bytes, copied again";
}

TEST_F(ChangedFileTest, FilesOfTheirOwnAreReadAgainTooWhenAHandleGoesStale) {
  Put(&memory_, "/p/cat/1.jpg", "bytes");
  auto dataset = Dataset::Open(&files_, "/p", {}).value();
  auto reader = SampleReader::Create(dataset, {});
  files_.FailNth(FileOperation::kReadInto, 1, stale_);
  EXPECT_TRUE(reader->Read(0, {}, Context()).ok());
  files_.FailNth(FileOperation::kReadInto, 1, stale_, 2);
  EXPECT_EQ(reader->Read(0, {}, Context()).status().code(), Code::kUnavailable);
}

}  // namespace
}  // namespace headrace::dataset
