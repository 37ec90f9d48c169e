// What several processes and threads do with the same files at once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <csignal>

#include "headrace/base/fault_point.h"
#include "headrace/env/file.h"
#include "headrace/env/process.h"
#include "headrace/env/testing/child_process.h"
#include "headrace/env/testing/temporary_directory.h"

namespace headrace {
namespace {

class PosixSharingTest : public ::testing::Test {
 protected:
  void Write(const std::string& path, std::string_view content) {
    ASSERT_TRUE(files_->WriteAtomically(path, AsBytes(content)).ok());
  }

  FileSystem* const files_ = PosixFileSystem();
  TemporaryDirectory dir_;
};

TEST_F(PosixSharingTest, SharedWordsAreSharedWithChildrenAndOtherOpeners) {
  auto words = files_->OpenSharedWords(dir_ / "w", 4);
  ASSERT_TRUE(words.ok());
  EXPECT_EQ(ExitOfChild([&] {
              (*words)->Store(1, 11);  // through the inherited mapping
              auto own = files_->OpenSharedWords(dir_ / "w", 4);
              if (!own.ok()) return 1;
              (*own)->Store(2, 22);
              return 0;
            }),
            0);
  EXPECT_EQ((*words)->Load(0), 0u);
  EXPECT_EQ((*words)->Load(1), 11u);
  EXPECT_EQ((*words)->Load(2), 22u);
}

TEST_F(PosixSharingTest, ManyProcessesMayMakeTheSameSharedWords) {
  constexpr size_t kProcesses = 8;
  std::vector<std::unique_ptr<ChildProcess>> children;
  for (size_t i = 0; i < kProcesses; ++i)
    children.push_back(std::make_unique<ChildProcess>([&, i] {
      auto words = files_->OpenSharedWords(dir_ / "w", 100'000);
      if (!words.ok()) return 1;
      (*words)->Store(i, i + 1);
      return 0;
    }));
  for (auto& child : children) EXPECT_EQ(child->Wait(), 0);
  auto words = files_->OpenSharedWords(dir_ / "w", 100'000);
  for (size_t i = 0; i < kProcesses; ++i) EXPECT_EQ((*words)->Load(i), i + 1);
}

TEST_F(PosixSharingTest, ALockHoldsAgainstOtherProcessesUntilTheHolderDies) {
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  ChildProcess holder([&] {
    auto lock = files_->Lock(dir_ / "lock");
    if (!lock.ok() || ::write(ready[1], "x", 1) != 1) return 1;
    while (true) ::pause();
  });
  char byte;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  EXPECT_EQ(files_->Lock(dir_ / "lock").status().code(), Code::kFailedPrecondition);
  holder.Kill();
  EXPECT_EQ(holder.Wait(), -SIGKILL);
  EXPECT_TRUE(files_->Lock(dir_ / "lock").ok());
  ::close(ready[0]);
  ::close(ready[1]);
}

TEST_F(PosixSharingTest, ALockEndsWithItsHolderThoughAForkedChildLivesOn) {
  auto lock = files_->Lock(dir_ / "lock");
  ASSERT_TRUE(lock.ok());
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  ChildProcess child([&] {
    lock = Error(Code::kCancelled, "the child's copy");  // closes it, unlocks nothing
    if (::write(ready[1], "x", 1) != 1) return 1;
    while (true) ::pause();
  });
  char byte;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  EXPECT_EQ(files_->Lock(dir_ / "lock").status().code(), Code::kFailedPrecondition);
  lock = Error(Code::kCancelled, "let go");
  EXPECT_TRUE(files_->Lock(dir_ / "lock").ok());
  ::close(ready[0]);
  ::close(ready[1]);
}

TEST_F(PosixSharingTest, LinesOfSeveralProcessesDoNotMix) {
  constexpr int kProcesses = 4, kLines = 200;
  std::vector<std::unique_ptr<ChildProcess>> children;
  for (int i = 0; i < kProcesses; ++i)
    children.push_back(std::make_unique<ChildProcess>([&, i] {
      auto log = files_->OpenForAppend(dir_ / "log");
      if (!log.ok()) return 1;
      std::string line =
          std::string(50 + static_cast<size_t>(i), static_cast<char>('a' + i)) + "\n";
      for (int n = 0; n < kLines; ++n)
        if (!(*log)->Append(AsBytes(line)).ok()) return 1;
      return 0;
    }));
  for (auto& child : children) EXPECT_EQ(child->Wait(), 0);
  std::string text = *files_->ReadWhole(dir_ / "log", 1 << 20);
  int counts[kProcesses] = {};
  for (size_t at = 0; at < text.size();) {
    size_t end = text.find('\n', at);
    size_t who = static_cast<size_t>(text[at] - 'a');
    ASSERT_EQ(text.substr(at, end - at), std::string(50 + who, text[at]));
    ++counts[who];
    at = end + 1;
  }
  EXPECT_THAT(counts, ::testing::Each(kLines));
}

TEST_F(PosixSharingTest, ReadersInManyThreadsSeeTheirOwnRanges) {
  std::string content;
  for (int i = 0; i < 10'000; ++i) content += static_cast<char>('a' + i % 26);
  Write(dir_ / "f", content);
  auto file = files_->OpenForRead(dir_ / "f");
  ASSERT_TRUE(file.ok());
  std::atomic<int> wrong{0};
  {
    std::vector<std::unique_ptr<Thread>> threads;
    for (size_t t = 0; t < 4; ++t) {
      auto thread = Thread::Start("reader", [&, t] {
        std::string out(100, '?');
        for (size_t i = 0; i < 500; ++i) {
          size_t offset = (i * 37 + t * 1000) % (content.size() - out.size());
          Status read = (*file)->ReadAt(offset, std::as_writable_bytes(std::span(out)), {});
          if (!read.ok() || out != content.substr(offset, out.size())) ++wrong;
        }
      });
      ASSERT_TRUE(thread.ok());
      threads.push_back(std::move(thread).value());
    }
  }
  EXPECT_EQ(wrong, 0);
}

// As the kernel does it, and by hard links as on network file systems.
TEST_F(PosixSharingTest, OneOfManyRenamesToAFreeNameWins) {
  constexpr int kThreads = 8;
  for (bool by_links : {false, true}) {
    if (by_links)
      ArmFault("env.rename_if_absent.rename", 1,
               [] { return Error(Code::kUnimplemented, "as on NFS"); });
    for (int round = 0; round < 20; ++round) {
      std::string to = dir_ / ("to" + std::to_string(round) + (by_links ? "l" : ""));
      std::atomic<int> winners{0}, losers{0};
      {
        std::vector<std::unique_ptr<Thread>> threads;
        for (int i = 0; i < kThreads; ++i) {
          std::string from = to + "-from" + std::to_string(i);
          Write(from, std::to_string(i));
          auto thread = Thread::Start("writer", [&, from, to] {
            Code code = files_->RenameIfAbsent(from, to).code();
            if (code == Code::kOk) ++winners;
            if (code == Code::kAlreadyExists && files_->Exists(from)) ++losers;
          });
          ASSERT_TRUE(thread.ok());
          threads.push_back(std::move(thread).value());
        }
      }
      EXPECT_EQ(winners, 1);
      EXPECT_EQ(losers, kThreads - 1);
      EXPECT_TRUE(files_->Exists(to));
    }
  }
  DisarmFaults();
}

}  // namespace
}  // namespace headrace
