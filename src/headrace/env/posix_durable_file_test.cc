// What a durable write does with memory of all kinds, and with what the system may answer.
#include "headrace/env/posix_durable_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "headrace/base/keyed_random.h"
#include "headrace/base/mutex.h"
#include "headrace/env/direct_memory.h"
#include "headrace/env/durable_write.h"
#include "headrace/env/testing/child_process.h"
#include "headrace/env/testing/memory_file_system.h"
#include "headrace/env/testing/temporary_directory.h"

namespace headrace {
namespace {

using ::testing::HasSubstr;

constexpr WriteShape kSmall{64 << 10, 3};

// Memory with known content that begins at a multiple of kDirectAlignment.
class Content {
 public:
  explicit Content(size_t bytes) : memory_(AllocateDirectMemory(bytes)), bytes_(bytes) {
    constexpr size_t kPeriod = 65'537;  // of no block
    KeyedRandom random(bytes);
    for (size_t i = 0; i < bytes; ++i)
      memory_.get()[i] =
          i < kPeriod ? static_cast<std::byte>(random.Next()) : memory_.get()[i - kPeriod];
  }
  Bytes all() const { return {memory_.get(), bytes_}; }

 private:
  const DirectMemory memory_;
  const size_t bytes_;
};

class DurableFileTest : public ::testing::Test {
 protected:
  Status Write(const std::vector<Bytes>& parts, const DurableWriteOptions& options = {kSmall, {}},
               const Context& ctx = {}) {
    return WritePosixDurably(path_, parts, options, ctx);
  }
  void ExpectFile(const std::vector<Bytes>& parts) {
    std::string expected;
    for (Bytes part : parts) expected += AsText(part);
    auto found = PosixFileSystem()->ReadWhole(path_, 100 << 20);
    ASSERT_TRUE(found.ok()) << found.status().ToString();
    EXPECT_EQ(found->size(), expected.size());
    EXPECT_TRUE(*found == expected);
  }

  TemporaryDirectory dir_;
  const std::string path_ = dir_ / "f";
  const Content content_{1'000'000};
  const Bytes all_ = content_.all();
};

TEST_F(DurableFileTest, WritesMemoryOfAnyKind) {
  KeyedRandom random(3);
  for (int turn = 0; turn < 60; ++turn) {
    std::vector<Bytes> parts;
    for (uint64_t i = random.NextBelow(8); i > 0; --i) {
      // Some lie in memory as in the file, others do not; some follow each other in both.
      uint64_t from = random.NextBelow(all_.size());
      uint64_t bytes = random.NextBelow(all_.size() - from);
      if (random.NextBelow(2) == 0) {
        from -= from % kDirectAlignment;
        bytes -= bytes % kDirectAlignment;
      }
      const Bytes part = all_.subspan(from, bytes);
      const uint64_t cut = random.NextBelow(bytes + 1);
      parts.push_back(part.first(cut));
      parts.push_back(part.subspan(cut));
    }
    const WriteShape shape{uint64_t{64 << 10} << random.NextBelow(7),
                           1 + static_cast<uint32_t>(random.NextBelow(5))};
    Status status = Write(parts, {shape, {}});
    ASSERT_TRUE(status.ok()) << status.ToString();
    ExpectFile(parts);
  }
}

TEST_F(DurableFileTest, FindsTheShapeWhileItWrites) {
  const Content large((66 << 20) + 5);
  ASSERT_TRUE(Write({large.all()}, {}).ok());
  ExpectFile({large.all()});
}

TEST_F(DurableFileTest, GoesOnAfterShortWrites) {
  for (int64_t most : {1000, 4096, 5000, 20'000}) {
    Status status =
        Write({all_}, {kSmall, [most](int64_t answer) { return std::min(answer, most); }});
    EXPECT_TRUE(status.ok()) << status.ToString();
    ExpectFile({all_});
  }
}

TEST_F(DurableFileTest, TakesTheUsualWayWhereDirectWritesAreRefused) {
  // All threads find it out at once.
  Mutex mu;
  std::set<std::thread::id> refused;
  Status status = Write({all_.subspan(1), all_},
                        {kSmall, [&](int64_t answer) -> int64_t {
                           MutexLock lock(&mu);
                           const bool first = refused.insert(std::this_thread::get_id()).second;
                           return first ? -EINVAL : answer;
                         }});
  EXPECT_TRUE(status.ok()) << status.ToString();
  ExpectFile({all_.subspan(1), all_});
  // One that is refused again is a fault.
  status = Write({all_}, {kSmall, [](int64_t) -> int64_t { return -EINVAL; }});
  EXPECT_EQ(status.code(), Code::kInvalidArgument) << status.ToString();
}

TEST_F(DurableFileTest, AnInterruptedWriteIsDoneAgain) {
  std::atomic<int> calls{0};
  Status status = Write({all_}, {kSmall, [&calls](int64_t answer) -> int64_t {
                                   return calls++ % 2 == 0 ? -EINTR : answer;
                                 }});
  EXPECT_TRUE(status.ok()) << status.ToString();
  ExpectFile({all_});
}

TEST_F(DurableFileTest, AFaultInTheMiddleIsToldAndEndsIt) {
  for (auto [error, code] :
       {std::pair(EIO, Code::kIoError), std::pair(ENOSPC, Code::kResourceExhausted)}) {
    std::atomic<int> calls{0};
    Status status = Write(
        {all_}, {WriteShape{64 << 10, 1},
                 [&, e = error](int64_t answer) -> int64_t { return calls++ == 5 ? -e : answer; }});
    EXPECT_EQ(status.code(), code) << status.ToString();
    EXPECT_THAT(status.ToString(), HasSubstr(path_));
    EXPECT_EQ(status.location().offset, uint64_t{5} * (64 << 10));
    EXPECT_EQ(calls.load(), 6);
  }
  // With several threads those under way end, and no more are begun than there are threads.
  std::atomic<int> calls{0};
  Status status = Write({all_}, {kSmall, [&](int64_t) -> int64_t {
                                   ++calls;
                                   return -EIO;
                                 }});
  EXPECT_EQ(status.code(), Code::kIoError);
  EXPECT_LE(calls.load(), 3);
}

TEST_F(DurableFileTest, NothingWrittenIsAFault) {
  Status status = Write({all_}, {kSmall, [](int64_t) -> int64_t { return 0; }});
  EXPECT_EQ(status.code(), Code::kIoError) << status.ToString();
}

// By a limit of the process, which the system tells of when room is reserved.
TEST_F(DurableFileTest, AFullDiskIsKnownBeforeTheFirstByte) {
  const Content large(8 << 20);
  EXPECT_EQ(ExitOfChild([&] {
              std::signal(SIGXFSZ, SIG_IGN);
              rlimit limit{4 << 20, 4 << 20};
              if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return 2;
              return Write({large.all()}).code() == Code::kResourceExhausted ? 0 : 3;
            }),
            0);
  // Where room cannot be reserved it is found out on the way.
  const uint64_t bytes = PosixFileSystem()->Stat(path_)->size_bytes;
  EXPECT_TRUE(bytes == 0 || bytes == uint64_t{4} << 20) << bytes;
}

TEST_F(DurableFileTest, FailsWhereNoFileCanBe) {
  FileSystem* fs = PosixFileSystem();
  EXPECT_EQ(WriteDurably(fs, dir_ / "none/f", {}, {}).code(), Code::kNotFound);
  EXPECT_EQ(WriteDurably(fs, dir_.path(), {}, {}).code(), Code::kInvalidArgument);
  EXPECT_EQ(WriteDurably(fs, dir_ / std::string("a\0b", 3), {}, {}).code(), Code::kInvalidArgument);
  ASSERT_TRUE(fs->WriteAtomically(path_, AsBytes("what was there")).ok());
  EXPECT_TRUE(WriteDurably(fs, path_, {}, {}).ok());
  EXPECT_EQ(fs->Stat(path_)->size_bytes, 0u);
}

// Through any other file system it is the same, and survives a power cut once the name does.
TEST(DurableWrite, OfAnotherFileSystem) {
  MemoryFileSystem memory;
  const Content content(1000);
  const Bytes parts[] = {content.all().first(300), {}, content.all().subspan(300)};
  ASSERT_TRUE(WriteDurably(&memory, "/f", parts, {}).ok());
  ASSERT_TRUE(memory.SyncDirectory("/").ok());
  memory.PowerCut();
  memory.PowerOn();
  EXPECT_EQ(*memory.ReadWhole("/f", 2000), AsText(content.all()));
}

TEST_F(DurableFileTest, EndsWhenItIsNoLongerWanted) {
  std::atomic<bool> cancelled{true};
  Context ctx;
  ctx.cancelled = &cancelled;
  EXPECT_EQ(Write({all_}, {kSmall, {}}, ctx).code(), Code::kCancelled);
}

}  // namespace
}  // namespace headrace
