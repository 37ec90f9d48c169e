#include "headrace/env/command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <cstdlib>

#include "headrace/env/file.h"
#include "headrace/env/process.h"
#include "headrace/env/testing/child_process.h"
#include "headrace/env/testing/temporary_directory.h"

namespace headrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

Context Within(std::chrono::milliseconds time) {
  Context ctx;
  ctx.deadline = Context::Clock::now() + time;
  return ctx;
}

TEST(SplitCommand, SplitsAsAShellDoesAndExpandsNothing) {
  EXPECT_THAT(*SplitCommand("  a  b\tc\n"), ElementsAre("a", "b", "c"));
  EXPECT_THAT(*SplitCommand("'a b' \"c d\" e\\ f"), ElementsAre("a b", "c d", "e f"));
  EXPECT_THAT(*SplitCommand("'a\\' \"\\\"x\\\\\\y\""), ElementsAre("a\\", "\"x\\\\y"));
  EXPECT_THAT(*SplitCommand("--x='a b'c \"\""), ElementsAre("--x=a bc", ""));
  EXPECT_THAT(*SplitCommand("$HOME * ~ a;b|c `d` #e"),
              ElementsAre("$HOME", "*", "~", "a;b|c", "`d`", "#e"));
}

TEST(SplitCommand, RefusesOpenQuotesWithoutQuotingTheText) {
  for (const char* text : {"get 'secret", "get \"secret"}) {
    auto words = SplitCommand(text);
    ASSERT_FALSE(words.ok());
    EXPECT_EQ(words.status().code(), Code::kInvalidArgument);
    EXPECT_THAT(words.status().ToString(), Not(HasSubstr("secret")));
  }
  EXPECT_EQ(SplitCommand(" \t").status().code(), Code::kInvalidArgument);
}

TEST(RunCommand, TakesTheOutputAndTheExitCode) {
  auto done = RunCommand({"printf", "%s|%s", "a b", "$HOME;*"}, 1000, Context());
  ASSERT_TRUE(done.ok()) << done.status().ToString();
  EXPECT_EQ(done->text, "a b|$HOME;*");
  EXPECT_EQ(done->exit_code, 0);
  done = RunCommand({"sh", "-c", "echo out; echo err >&2; exit 7"}, 1000, Context());
  ASSERT_TRUE(done.ok());
  EXPECT_EQ(done->text, "out\n");
  EXPECT_EQ(done->exit_code, 7);
  EXPECT_EQ(RunCommand({"sh", "-c", "kill -9 $$"}, 1000, Context())->exit_code, -9);
}

TEST(RunCommand, ReadsNothingOfOurs) { EXPECT_EQ(RunCommand({"cat"}, 1000, Context())->text, ""); }

TEST(RunCommand, SaysWhatCouldNotBeStarted) {
  auto done = RunCommand({"/nowhere/program", "secret"}, 1000, Context());
  EXPECT_EQ(done.status().code(), Code::kNotFound);
  EXPECT_THAT(done.status().ToString(), HasSubstr("/nowhere/program"));
  EXPECT_THAT(done.status().ToString(), Not(HasSubstr("secret")));
  EXPECT_EQ(RunCommand({}, 1000, Context()).status().code(), Code::kInvalidArgument);
}

TEST(RunCommand, BoundsTheOutput) {
  auto done = RunCommand({"yes"}, 100'000, Context());
  EXPECT_EQ(done.status().code(), Code::kResourceExhausted) << done.status().ToString();
  EXPECT_EQ(RunCommand({"printf", "12345"}, 5, Context())->text, "12345");
}

TEST(RunCommand, KillsTheWholeGroupAtTheDeadline) {
  // The inner sleep keeps the pipe open: it has to go too.
  TemporaryDirectory folder;
  std::string pid;
  // As long as it takes until the inner one has begun before the deadline.
  for (std::chrono::milliseconds time(500); !pid.ends_with('\n'); time *= 2) {
    auto done = RunCommand({"sh", "-c", "sleep 600 & echo $! > " + folder / "pid" + "; sleep 600"},
                           1000, Within(time));
    ASSERT_EQ(done.status().code(), Code::kDeadlineExceeded) << done.status().ToString();
    auto written = PosixFileSystem()->ReadWhole(folder / "pid", 100);
    if (written.ok()) pid = *written;
  }
  pid.pop_back();
  // Whoever takes over orphans may leave the dead one listed, with an empty command line.
  auto gone = [&] {
    auto line = PosixFileSystem()->ReadWhole("/proc/" + pid + "/cmdline", 4096);
    return !line.ok() || line->empty();
  };
  while (!gone()) (void)RunCommand({"sleep", "0.01"}, 10, Context());
}

TEST(RunCommand, EndsWhenCancelled) {
  std::atomic<bool> cancelled{true};
  Context ctx;
  ctx.cancelled = &cancelled;
  EXPECT_EQ(RunCommand({"sleep", "600"}, 1000, ctx).status().code(), Code::kCancelled);
}

TEST(RunCommand, WaitsAlsoForAProgramThatClosesItsOutput) {
  auto done = RunCommand({"sh", "-c", "exec >&-; sleep 0.1; exit 3"}, 1000, Context());
  ASSERT_TRUE(done.ok());
  EXPECT_EQ(done->exit_code, 3);
}

TEST(RunCommand, StartsWithNoSignalBlocked) {
  EXPECT_EQ(ExitOfChild([] {
              sigset_t all;
              sigfillset(&all);
              ::sigprocmask(SIG_SETMASK, &all, nullptr);
              auto done = RunCommand({"grep", "SigBlk", "/proc/self/status"}, 1000, Context());
              return done.ok() && done->text == "SigBlk:\t0000000000000000\n" ? 0 : 1;
            }),
            0);
}

TEST(RunCommand, WorksWhereTheProgramIgnoresTheEndOfChildren) {
  EXPECT_EQ(ExitOfChild([] {
              ::signal(SIGCHLD, SIG_IGN);
              auto done = RunCommand({"printf", "x"}, 1000, Context());
              return done.ok() && done->text == "x" ? 0 : 1;
            }),
            0);
}

TEST(Environment, TellsVariables) {
  ::setenv("HEADRACE_TEST_VARIABLE", "value", 1);
  EXPECT_EQ(EnvironmentVariable("HEADRACE_TEST_VARIABLE"), "value");
  ::setenv("HEADRACE_TEST_VARIABLE", "", 1);
  EXPECT_EQ(EnvironmentVariable("HEADRACE_TEST_VARIABLE"), std::nullopt);
  ::unsetenv("HEADRACE_TEST_VARIABLE");
  EXPECT_EQ(EnvironmentVariable("HEADRACE_TEST_VARIABLE"), std::nullopt);
}

TEST(Environment, FindsTheHomeFolder) {
  EXPECT_EQ(ExitOfChild([] {
              ::setenv("HOME", "/some/where", 1);
              if (HomeDirectory() != "/some/where") return 1;
              ::unsetenv("HOME");
              return HomeDirectory().starts_with('/') ? 0 : 2;
            }),
            0);
}

TEST(WallClock, IsAfterThisWasWritten) {
  EXPECT_GT(WallClockNanos(), int64_t{1'700'000'000} * 1'000'000'000);
}

}  // namespace
}  // namespace headrace
