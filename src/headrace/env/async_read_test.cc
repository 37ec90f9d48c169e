// What both drivers of AsyncReader must do, and how one is chosen.
#include "headrace/env/async_read.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "headrace/base/keyed_random.h"
#include "headrace/base/mutex.h"
#include "headrace/env/process.h"
#include "headrace/env/testing/memory_file_system.h"
#include "headrace/env/testing/temporary_directory.h"

namespace headrace {
namespace {

using ::testing::HasSubstr;

std::string RandomText(size_t bytes) {
  KeyedRandom random(7);
  std::string text(bytes, '\0');
  for (char& c : text) c = static_cast<char>(random.NextBelow(256));
  return text;
}

MutableBytes Writable(std::string* text) { return std::as_writable_bytes(std::span(*text)); }

struct FreeMemory {
  void operator()(std::byte* p) const { std::free(p); }
};
using AlignedMemory = std::unique_ptr<std::byte, FreeMemory>;
AlignedMemory Aligned(size_t bytes) {
  return AlignedMemory(static_cast<std::byte*>(std::aligned_alloc(kDirectAlignment, bytes)));
}

// Waits for reads and keeps what became of each.
class Outcomes {
 public:
  std::function<void(Status)> Next() {
    MutexLock lock(&mu_);
    size_t place = statuses_.size();
    statuses_.emplace_back();
    ++pending_;
    return [this, place](Status status) {
      MutexLock done(&mu_);
      statuses_[place] = std::move(status);
      if (--pending_ == 0) changed_.NotifyAll();
    };
  }
  std::vector<Status> Wait() {
    MutexLock lock(&mu_);
    while (pending_ > 0) changed_.Wait(&mu_);
    return statuses_;
  }

 private:
  Mutex mu_;
  CondVar changed_;
  size_t pending_ HR_GUARDED_BY(mu_) = 0;
  std::vector<Status> statuses_ HR_GUARDED_BY(mu_);
};

class AsyncReadTest : public ::testing::TestWithParam<AsyncReader::Driver> {
 protected:
  void SetUp() override {
    options_.driver = GetParam();
    if (AsyncReader::Create(options_).status().code() == Code::kUnimplemented)
      GTEST_SKIP() << "no io_uring here";
    ASSERT_TRUE(PosixFileSystem()->WriteAtomically(path_, AsBytes(content_)).ok());
    file_ = Open();
  }
  std::unique_ptr<RandomAccessFile> Open() {
    auto file = PosixFileSystem()->OpenForRead(path_);
    EXPECT_TRUE(file.ok());
    return *std::move(file);
  }
  std::unique_ptr<AsyncReader> Make() {
    auto reader = AsyncReader::Create(options_);
    EXPECT_TRUE(reader.ok()) << reader.status().ToString();
    EXPECT_EQ((*reader)->driver(), GetParam());
    return *std::move(reader);
  }
  Status ReadOne(AsyncReader* reader, const RandomAccessFile* file, uint64_t offset,
                 MutableBytes out, size_t needed = AsyncRead::kAll) {
    Outcomes outcomes;
    std::vector<AsyncRead> reads(1);
    reads[0] = {file, offset, {out}, needed, outcomes.Next()};
    reader->Submit(std::move(reads));
    return outcomes.Wait()[0];
  }
  // Many ranges at once, each in up to three parts.
  void ExpectRandomReads(AsyncReader* reader, const RandomAccessFile* file, int count) {
    KeyedRandom random(3);
    Outcomes outcomes;
    std::vector<AsyncRead> reads;
    std::vector<std::string> texts(static_cast<size_t>(count));
    std::vector<uint64_t> offsets;
    for (std::string& text : texts) {
      uint64_t offset = random.NextBelow(content_.size());
      text.resize(random.NextBelow(std::min<uint64_t>(content_.size() - offset, 50'000)) + 1);
      text.resize(std::min(text.size(), content_.size() - offset));
      size_t a = random.NextBelow(text.size() + 1), b = a + random.NextBelow(text.size() - a + 1);
      MutableBytes all = Writable(&text);
      reads.push_back({file,
                       offset,
                       {all.first(a), all.subspan(a, b - a), all.subspan(b)},
                       AsyncRead::kAll,
                       outcomes.Next()});
      offsets.push_back(offset);
    }
    reader->Submit(std::move(reads));
    std::vector<Status> statuses = outcomes.Wait();
    for (size_t i = 0; i < texts.size(); ++i) {
      ASSERT_TRUE(statuses[i].ok()) << statuses[i].ToString();
      ASSERT_TRUE(texts[i] == content_.substr(offsets[i], texts[i].size())) << i;
    }
  }

  AsyncReader::Options options_;
  TemporaryDirectory directory_;
  const std::string path_ = directory_ / "file";
  const std::string content_ = RandomText(300'001);
  std::unique_ptr<RandomAccessFile> file_;
};

TEST_P(AsyncReadTest, ReadsManyRangesAtOnce) {
  auto reader = Make();
  ExpectRandomReads(reader.get(), file_.get(), 300);
}

TEST_P(AsyncReadTest, ReadsMoreThanItsDepth) {
  options_.depth = 1;
  options_.threads = 1;
  auto reader = Make();
  ExpectRandomReads(reader.get(), file_.get(), 100);
  ExpectRandomReads(reader.get(), file_.get(), 100);
}

TEST_P(AsyncReadTest, GoesOnAfterAShortAnswer) {
  std::atomic<int> answers{0};
  options_.alter_answer = [&](int64_t answer) {
    return answers++ % 3 != 2 && answer > 100 ? answer / 2 : answer;
  };
  auto reader = Make();
  ExpectRandomReads(reader.get(), file_.get(), 100);
  EXPECT_GT(answers, 100);
}

TEST_P(AsyncReadTest, AsksAgainWhatWasPutOff) {
  std::atomic<int> answers{0};
  options_.alter_answer = [&](int64_t answer) {
    int n = answers++ % 3;
    return n == 0 ? -EAGAIN : n == 1 ? -EINTR : answer;
  };
  auto reader = Make();
  ExpectRandomReads(reader.get(), file_.get(), 30);
}

TEST_P(AsyncReadTest, GivesUpWhatIsPutOffForEver) {
  options_.alter_answer = [](int64_t) { return -EAGAIN; };
  std::string out(10, '\0');
  EXPECT_EQ(ReadOne(Make().get(), file_.get(), 0, Writable(&out)).code(), Code::kUnavailable);
}

TEST_P(AsyncReadTest, TellsAFaultOfTheDisk) {
  std::atomic<int> answers{0};
  options_.alter_answer = [&](int64_t answer) { return answers++ == 1 ? -EIO : answer; };
  auto reader = Make();
  std::string out(10, '\0');
  EXPECT_TRUE(ReadOne(reader.get(), file_.get(), 5, Writable(&out)).ok());
  Status status = ReadOne(reader.get(), file_.get(), 5, Writable(&out));
  EXPECT_EQ(status.code(), Code::kIoError);
  EXPECT_THAT(status.ToString(), HasSubstr(path_));
  EXPECT_TRUE(ReadOne(reader.get(), file_.get(), 5, Writable(&out)).ok());
}

TEST_P(AsyncReadTest, AFileThatEndsEarlyIsDataLoss) {
  auto reader = Make();
  std::string out(1000, '\0');
  for (uint64_t offset : {content_.size() - 999, content_.size(), content_.size() + 5000}) {
    Status status = ReadOne(reader.get(), file_.get(), offset, Writable(&out));
    EXPECT_EQ(status.code(), Code::kDataLoss) << offset;
    EXPECT_EQ(status.location().file, path_);
  }
  uint64_t offset = content_.size() - 900;
  EXPECT_TRUE(ReadOne(reader.get(), file_.get(), offset, Writable(&out), 900).ok());
  EXPECT_EQ(out.substr(0, 900), content_.substr(offset));
  EXPECT_FALSE(ReadOne(reader.get(), file_.get(), offset, Writable(&out), 901).ok());
}

TEST_P(AsyncReadTest, ReadsNothing) { EXPECT_TRUE(ReadOne(Make().get(), file_.get(), 7, {}).ok()); }

TEST_P(AsyncReadTest, ReadsAroundThePageCacheToTheFilesEnd) {
  auto reader = Make();
  auto file = PosixFileSystem()->OpenDirect(path_);
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  const size_t bytes = 256 << 10;
  AlignedMemory memory = Aligned(bytes);
  MutableBytes out(memory.get(), bytes);
  ASSERT_TRUE(ReadOne(reader.get(), file->get(), 4096, out).ok());
  EXPECT_TRUE(AsText(out) == content_.substr(4096, bytes));
  uint64_t offset = 200 << 10;
  ASSERT_TRUE(ReadOne(reader.get(), file->get(), offset, out, content_.size() - offset).ok());
  EXPECT_TRUE(AsText(out).substr(0, content_.size() - offset) == content_.substr(offset));
  EXPECT_EQ(ReadOne(reader.get(), file->get(), offset, out).code(), Code::kDataLoss);
}

TEST_P(AsyncReadTest, GoesOnAfterAShortDirectAnswer) {
  std::atomic<int> answers{0};
  options_.alter_answer = [&](int64_t answer) {
    return answers++ == 0 && answer > 10'000 ? answer - 10'000 : answer;
  };
  auto reader = Make();
  auto file = PosixFileSystem()->OpenDirect(path_);
  ASSERT_TRUE(file.ok());
  const size_t bytes = 128 << 10;
  AlignedMemory memory = Aligned(bytes);
  MutableBytes out(memory.get(), bytes);
  ASSERT_TRUE(ReadOne(reader.get(), file->get(), 0, out).ok());
  EXPECT_TRUE(AsText(out) == content_.substr(0, bytes));
}

TEST_P(AsyncReadTest, ADirectReadThatIsNotAlignedTakesTheUsualWay) {
  auto reader = Make();
  auto file = PosixFileSystem()->OpenDirect(path_);
  ASSERT_TRUE(file.ok());
  std::string out(10'001, '\0');
  Status status = ReadOne(reader.get(), file->get(), 4001, Writable(&out));
  ASSERT_TRUE(status.ok()) << status.ToString();
  EXPECT_TRUE(out == content_.substr(4001, out.size()));
  ASSERT_TRUE((*file)->ReadAt(3, Writable(&out), Context()).ok());
  EXPECT_TRUE(out == content_.substr(3, out.size()));
}

TEST_P(AsyncReadTest, ReadsFilesThatAreNotTheSystems) {
  MemoryFileSystem memory;
  ASSERT_TRUE(memory.WriteAtomically("/f", AsBytes(content_)).ok());
  auto file = memory.OpenForRead("/f");
  ASSERT_TRUE(file.ok());
  auto reader = Make();
  ExpectRandomReads(reader.get(), file->get(), 50);
  std::string out(10, '\0');
  EXPECT_EQ(ReadOne(reader.get(), file->get(), content_.size() - 5, Writable(&out)).code(),
            Code::kDataLoss);
  EXPECT_TRUE(ReadOne(reader.get(), file->get(), content_.size() - 5, Writable(&out), 5).ok());
}

TEST_P(AsyncReadTest, ADoneMaySubmitAndTheEndWaitsForAll) {
  std::atomic<int> left{200}, wrong{0};
  std::string out(500, '\0');
  std::function<void()> submit;
  {
    auto reader = Make();
    submit = [&, r = reader.get()] {
      std::vector<AsyncRead> reads(1);
      reads[0] = {file_.get(), 1000, {Writable(&out)}, AsyncRead::kAll, [&](const Status& status) {
                    wrong += !status.ok();
                    if (--left > 0) submit();
                  }};
      r->Submit(std::move(reads));
    };
    submit();
  }
  EXPECT_EQ(left, 0);
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(out, content_.substr(1000, 500));
}

TEST_P(AsyncReadTest, ManyThreadsMaySubmitAndEnd) {
  auto reader = Make();
  std::vector<std::unique_ptr<Thread>> threads;
  for (int i = 0; i < 4; ++i)
    threads.push_back(
        *Thread::Start("reads", [&] { ExpectRandomReads(reader.get(), file_.get(), 100); }));
  threads.clear();
}

INSTANTIATE_TEST_SUITE_P(Drivers, AsyncReadTest,
                         ::testing::Values(AsyncReader::Driver::kUring,
                                           AsyncReader::Driver::kThreads),
                         [](const auto& info) { return std::string(DriverName(info.param)); });

class AsyncReaderChoice : public ::testing::Test {
 protected:
  ~AsyncReaderChoice() override { ::unsetenv("HEADRACE_IO"); }
};

TEST_F(AsyncReaderChoice, TheEnvironmentForcesADriver) {
  ::setenv("HEADRACE_IO", "threads", 1);
  auto reader = AsyncReader::Create();
  ASSERT_TRUE(reader.ok());
  EXPECT_EQ((*reader)->driver(), AsyncReader::Driver::kThreads);
  ::setenv("HEADRACE_IO", "uring", 1);
  reader = AsyncReader::Create();
  if (reader.ok()) {
    EXPECT_EQ((*reader)->driver(), AsyncReader::Driver::kUring);
  } else {
    EXPECT_EQ(reader.status().code(), Code::kUnimplemented);
  }
  ::setenv("HEADRACE_IO", "fast", 1);
  EXPECT_EQ(AsyncReader::Create().status().code(), Code::kInvalidArgument);
  ::unsetenv("HEADRACE_IO");
  EXPECT_TRUE(AsyncReader::Create().ok());
}

TEST_F(AsyncReaderChoice, RefusesDepthsThatCannotBe) {
  AsyncReader::Options options;
  options.depth = 0;
  EXPECT_EQ(AsyncReader::Create(options).status().code(), Code::kInvalidArgument);
  options.depth = 1 << 20;
  EXPECT_EQ(AsyncReader::Create(options).status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace headrace
