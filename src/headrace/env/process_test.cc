#include "headrace/env/process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <set>
#include <string>

#include "headrace/env/file.h"
#include "headrace/env/testing/child_process.h"

namespace headrace {
namespace {

TEST(Process, TokensDiffer) {
  std::set<std::string> tokens;
  for (int i = 0; i < 100; ++i) tokens.insert(RandomToken());
  EXPECT_EQ(tokens.size(), 100u);
  for (const std::string& token : tokens) {
    EXPECT_EQ(token.size(), 32u);
    EXPECT_EQ(token.find_first_not_of("0123456789abcdef"), std::string::npos) << token;
  }
}

TEST(Process, TellsTheLargestFile) {
  EXPECT_EQ(ExitOfChild([] {
              rlimit limit{4096, 4096};
              if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return 1;
              return FileSizeLimit() == 4096 ? 0 : 2;
            }),
            0);
}

TEST(Process, CurrentDirectoryIsAbsoluteAndThere) {
  auto here = CurrentDirectory();
  ASSERT_TRUE(here.ok()) << here.status().ToString();
  EXPECT_TRUE(here->starts_with('/'));
  EXPECT_EQ(PosixFileSystem()->Stat(*here)->inode, PosixFileSystem()->Stat(".")->inode);
}

TEST(Process, CountsTheCpusItMayUse) {
  EXPECT_GE(AvailableCpus(), 1);
  EXPECT_LE(AvailableCpus(), ::sysconf(_SC_NPROCESSORS_CONF));
  EXPECT_EQ(ExitOfChild([] {
              cpu_set_t one;
              CPU_ZERO(&one);
              CPU_SET(static_cast<size_t>(::sched_getcpu()), &one);
              if (::sched_setaffinity(0, sizeof(one), &one) != 0) return 100;
              return AvailableCpus();
            }),
            1);
}

TEST(Process, KnowsHowMuchMemoryItMayUse) {
  EXPECT_GT(MemoryLimitBytes(), uint64_t{1} << 20);
  EXPECT_LT(MemoryLimitBytes(), uint64_t{1} << 50);
}

TEST(Process, CpuTimeGrowsWithWork) {
  double before = ProcessCpuSeconds();
  EXPECT_GE(before, 0);
  volatile uint64_t work = 0;
  while (ProcessCpuSeconds() <= before) work = work + 1;
  EXPECT_GT(ProcessCpuSeconds(), before);
}

TEST(Process, TellsItsLimitOnOpenFiles) {
  EXPECT_EQ(ExitOfChild([] {
              rlimit limit{77, 99};
              if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) return 1;
              return static_cast<int>(OpenFileLimit());
            }),
            77);
}

TEST(Process, KeepsADescriptorFromProgramsStartedLater) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  EXPECT_EQ(::fcntl(ends[0], F_GETFD) & FD_CLOEXEC, 0);
  EXPECT_TRUE(CloseOnExec(ends[0]).ok());
  EXPECT_NE(::fcntl(ends[0], F_GETFD) & FD_CLOEXEC, 0);
  ::close(ends[0]);
  ::close(ends[1]);
  EXPECT_FALSE(CloseOnExec(ends[0]).ok());
}

TEST(Process, CountsOpenFiles) {
  uint64_t before = *NumOpenFiles();
  EXPECT_GE(before, 3u);
  {
    auto file = PosixFileSystem()->OpenForRead("/proc/self/status");
    ASSERT_TRUE(file.ok());
    EXPECT_EQ(*NumOpenFiles(), before + 1);
  }
  EXPECT_EQ(*NumOpenFiles(), before);
}

TEST(Process, EachForkIsAnotherGeneration) {
  uint64_t ours = ForkGeneration();
  EXPECT_EQ(ForkGeneration(), ours);
  EXPECT_EQ(ExitOfChild([ours] {
              uint64_t childs = ForkGeneration();
              if (childs == ours || childs != ForkGeneration()) return 1;
              return ExitOfChild([ours, childs] {
                uint64_t grandchilds = ForkGeneration();
                return grandchilds == ours || grandchilds == childs ? 2 : 0;
              });
            }),
            0);
  EXPECT_EQ(ForkGeneration(), ours);
}

std::string OwnThreadName() {
  char name[16] = "";
  pthread_getname_np(pthread_self(), name, sizeof(name));
  return name;
}

TEST(Thread, RunsUnderItsName) {
  std::string short_name, long_name, before = OwnThreadName();
  {
    auto one = Thread::Start("hr-decode-3", [&] { short_name = OwnThreadName(); });
    auto two = Thread::Start("a-name-of-more-than-15", [&] { long_name = OwnThreadName(); });
    ASSERT_TRUE(one.ok() && two.ok());
  }
  EXPECT_EQ(short_name, "hr-decode-3");
  EXPECT_EQ(long_name, "a-name-of-more-");
  EXPECT_EQ(OwnThreadName(), before);
}

TEST(Thread, IsJoinedWhenDestroyed) {
  std::atomic<bool> stop{false};
  std::atomic<int> ended{0};
  auto thread = Thread::Start("waits", [&] {
    while (!stop) ::usleep(100);
    ended = 1;
  });
  ASSERT_TRUE(thread.ok());
  EXPECT_EQ(ended, 0);
  stop = true;
  thread = Error(Code::kCancelled, "destroyed");
  EXPECT_EQ(ended, 1);
}

TEST(Thread, LeavesSignalsToTheProgram) {
  sigset_t before, after, inside;
  pthread_sigmask(SIG_SETMASK, nullptr, &before);
  {
    auto thread = Thread::Start("mask", [&] { pthread_sigmask(SIG_SETMASK, nullptr, &inside); });
  }
  pthread_sigmask(SIG_SETMASK, nullptr, &after);
  for (int blocked : {SIGINT, SIGTERM, SIGHUP, SIGCHLD, SIGUSR1}) {
    EXPECT_EQ(sigismember(&inside, blocked), 1) << blocked;
    EXPECT_EQ(sigismember(&after, blocked), sigismember(&before, blocked)) << blocked;
  }
  for (int open : {SIGSEGV, SIGBUS, SIGFPE, SIGPROF}) EXPECT_EQ(sigismember(&inside, open), 0);
}

TEST(Thread, FreesWhatItsWorkCaptured) {
  auto captured = std::make_shared<int>(7);
  std::weak_ptr<int> seen = captured;
  auto thread = Thread::Start("frees", [held = std::move(captured)] { (void)*held; });
  ASSERT_TRUE(thread.ok());
  thread = Error(Code::kCancelled, "destroyed");
  EXPECT_TRUE(seen.expired());
}

TEST(Thread, ARefusedThreadIsAnError) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "ThreadSanitizer ends the process when a thread cannot be made";
#endif
  EXPECT_EQ(ExitOfChild([] {
              rlimit none{0, 0};
              if (!BecomeNobody() || ::setrlimit(RLIMIT_NPROC, &none) != 0) return 2;
              bool ran = false;
              auto thread = Thread::Start("hr-refused", [&] { ran = true; });
              if (thread.ok() || ran) return 3;
              if (thread.status().code() != Code::kResourceExhausted) return 4;
              std::string text = thread.status().ToString();
              return text.find("hr-refused") != std::string::npos ? 0 : 5;
            }),
            0);
}

}  // namespace
}  // namespace headrace
