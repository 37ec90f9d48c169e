// The program's edge: exit codes, options, output and progress, without a process of its own.
#include "headrace/cli/command_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "headrace/cache/node_cache.h"
#include "headrace/cli/progress_line.h"
#include "headrace/env/testing/memory_file_system.h"

namespace headrace::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

// Runs a command line on a file system in memory and keeps what it prints.
class CommandLineTest : public testing::Test {
 protected:
  ExitCode Run(const std::vector<std::string>& arguments) {
    printed_.clear();
    Output output([this](Bytes data) {
      printed_ += AsText(data);
      return write_fault_;
    });
    Session session;
    session.fs = &files_;
    session.out = &output;
    return RunCommandLine(arguments, &session);
  }

  MemoryFileSystem files_;
  std::string printed_;
  Status write_fault_;
};

TEST_F(CommandLineTest, EveryCommandHasHelpWithAnExample) {
  std::set<std::string_view> names;
  for (const CommandEntry& entry : AllCommands()) {
    EXPECT_TRUE(names.insert(entry.name).second) << entry.name << " is in the table twice";
    EXPECT_EQ(Run({std::string(entry.name), "--help"}), ExitCode::kOk);
    EXPECT_THAT(printed_, HasSubstr("Examples:"));
    EXPECT_THAT(printed_, HasSubstr("--json"));
    EXPECT_THAT(std::string(entry.summary), Not(testing::EndsWith(".")));
  }
}

TEST_F(CommandLineTest, WrongUsageIsCode2) {
  EXPECT_EQ(Run({}), ExitCode::kUsage);
  EXPECT_EQ(Run({"frobnicate"}), ExitCode::kUsage);
  EXPECT_EQ(Run({"ls"}), ExitCode::kUsage);
  EXPECT_EQ(Run({"version", "--nonsense"}), ExitCode::kUsage);
  EXPECT_EQ(Run({"pack", "a", "b", "--shard-size", "much"}), ExitCode::kUsage);
  EXPECT_EQ(Run({"pack", "a", "b", "--threads", "-1"}), ExitCode::kUsage);
  EXPECT_EQ(Run({"pack", "a", "b", "--shard-size", "0"}), ExitCode::kUsage);
}

TEST_F(CommandLineTest, FaultOfACommandIsItsExitCodeAndJson) {
  EXPECT_EQ(Run({"ls", "/nowhere", "--json"}), ExitCode::kBadData);
  auto json = Json::Parse(printed_);
  ASSERT_TRUE(json.ok()) << printed_;
  EXPECT_EQ(json->Find("error")->Find("code")->AsString(), "not found");
}

TEST_F(CommandLineTest, ReaderThatHasGoneIsNoFault) {
  write_fault_ = Status(Code::kUnavailable, "closed");
  EXPECT_EQ(Run({"version"}), ExitCode::kOk);
  write_fault_ = Status(Code::kResourceExhausted, "the disk is full");
  EXPECT_EQ(Run({"version"}), ExitCode::kEnvironment);
}

TEST_F(CommandLineTest, PackAndListInMemory) {
  ASSERT_TRUE(files_.MakeDirectories("/in/a").ok());
  ASSERT_TRUE(files_.WriteAtomically("/in/a/1.txt", AsBytes("one")).ok());
  ASSERT_TRUE(files_.WriteAtomically("/in/a/2.txt", AsBytes("two")).ok());
  ASSERT_EQ(Run({"pack", "/in", "/out/", "-q"}), ExitCode::kOk);
  EXPECT_THAT(printed_, HasSubstr("2 samples in 1 shards"));
  ASSERT_EQ(Run({"ls", "/out", "--samples"}), ExitCode::kOk);
  EXPECT_EQ(printed_, "0\ta/1\ttxt:3\tcls:1\n1\ta/2\ttxt:3\tcls:1\n");
  ASSERT_EQ(Run({"cat", "/out", "a/2", "txt"}), ExitCode::kOk);
  EXPECT_EQ(printed_, "two");
  EXPECT_EQ(Run({"pack", "/in", "/out", "-q"}), ExitCode::kUsage);
}

TEST(ExitCode, EachCodeHasItsPlace) {
  EXPECT_EQ(ExitCodeFor(OkStatus()), ExitCode::kOk);
  EXPECT_EQ(ExitCodeFor(Status(Code::kDataLoss, "x")), ExitCode::kBadData);
  EXPECT_EQ(ExitCodeFor(Status(Code::kFailedPrecondition, "x")), ExitCode::kBadData);
  EXPECT_EQ(ExitCodeFor(Status(Code::kInvalidArgument, "x")), ExitCode::kUsage);
  EXPECT_EQ(ExitCodeFor(Status(Code::kAlreadyExists, "x")), ExitCode::kUsage);
  EXPECT_EQ(ExitCodeFor(Status(Code::kResourceExhausted, "x")), ExitCode::kEnvironment);
  EXPECT_EQ(ExitCodeFor(Status(Code::kUnavailable, "x")), ExitCode::kEnvironment);
  EXPECT_EQ(static_cast<int>(ExitCodeFor(Status(Code::kCancelled, "x"))), 130);
}

TEST(Output, LargeAndSmallPiecesStayInOrder) {
  std::string seen;
  Output output([&](Bytes data) {
    seen += AsText(data);
    return OkStatus();
  });
  std::string expected;
  for (size_t size : {1u, 70'000u, 3u, 65'536u, 0u, 10u}) {
    std::string piece(size, static_cast<char>('a' + size % 26));
    output.Write(AsBytes(piece));
    expected += piece;
  }
  EXPECT_TRUE(output.Flush().ok());
  EXPECT_TRUE(seen == expected);
}

TEST_F(CommandLineTest, CacheLooksChecksAndClears) {
  EXPECT_EQ(Run({"cache", "stat", "--cache-dir", "/none"}), ExitCode::kBadData);
  EXPECT_EQ(Run({"cache", "juggle", "--cache-dir", "/none"}), ExitCode::kUsage);
  EXPECT_EQ(Run({"cache", "pin", "--cache-dir", "/none"}), ExitCode::kUsage);
  EXPECT_EQ(Run({"cache", "warm", "--cache-dir", "/none"}), ExitCode::kUsage);
  cache::NodeCacheOptions options;
  options.directory = "/cache";
  options.limit_bytes = 1 << 20;
  {
    auto node = cache::NodeCache::Open(&files_, options, {});
    ASSERT_TRUE(node.ok());
    cache::ObjectVersion version{"s3://b", "k", "e", 70'000};
    auto id = cache::BlockOf(cache::IdentifyObject(version, 65536), 70'000, 65536, 0);
    std::string data(65536, 'x');
    ASSERT_TRUE((*(*node)->ClaimBlock(id))->Admit(version, 65536, AsBytes(data), {}).ok());
  }
  EXPECT_EQ(Run({"cache", "stat", "--cache-dir", "/cache"}), ExitCode::kOk);
  EXPECT_THAT(printed_, HasSubstr("1 blocks of 1 objects"));
  options.directory = "/second";
  ASSERT_TRUE(cache::NodeCache::Open(&files_, options, {}).ok());
  EXPECT_EQ(Run({"cache", "stat", "--cache-dir", "/cache:/second"}), ExitCode::kOk);
  EXPECT_THAT(printed_, HasSubstr("/second: 0 B of 1 MiB in use"));
  EXPECT_THAT(printed_, HasSubstr("of 2 MiB in use: 1 blocks"));
  EXPECT_EQ(Run({"cache", "ls", "--cache-dir", "/cache", "--json"}), ExitCode::kOk);
  EXPECT_THAT(printed_, HasSubstr("\"name\": \"s3://b/k\""));
  EXPECT_EQ(Run({"cache", "pin", "s3://b/*", "--cache-dir", "/cache"}), ExitCode::kOk);
  EXPECT_EQ(Run({"cache", "ls", "s3://b/k", "--cache-dir", "/cache"}), ExitCode::kOk);
  EXPECT_THAT(printed_, HasSubstr("yes"));
  EXPECT_EQ(Run({"cache", "verify", "--cache-dir", "/cache"}), ExitCode::kOk);
  EXPECT_THAT(printed_, HasSubstr("0 damaged"));
  EXPECT_EQ(Run({"cache", "evict", "s3://b/k", "--cache-dir", "/cache"}), ExitCode::kOk);
  EXPECT_EQ(Run({"cache", "evict", "s3://c/k", "--cache-dir", "/cache"}), ExitCode::kBadData);
  EXPECT_EQ(Run({"cache", "clear", "--cache-dir", "/cache", "--json"}), ExitCode::kOk);
  EXPECT_EQ(Run({"cache", "ls", "--cache-dir", "/cache", "--json"}), ExitCode::kOk);
  EXPECT_EQ(printed_, "[]\n");
}

// Only what reads as a job does reads through the cache; there its options are read.
TEST_F(CommandLineTest, CommandsThatReadTakeACache) {
  for (const CommandEntry& entry : AllCommands()) {
    ASSERT_EQ(Run({std::string(entry.name), "--help"}), ExitCode::kOk);
    // These look after a cache, and read nothing through it.
    const bool own = entry.name == "cache" || entry.name == "agent";
    EXPECT_EQ(printed_.find("--cache-dir") != std::string::npos, entry.cached || own) << entry.name;
  }
  EXPECT_EQ(Run({"ls", "/x", "--cache-dir", "/c", "--cache-bytes", "many"}), ExitCode::kUsage);
  EXPECT_EQ(Run({"ls", "/x", "--cache-dir", "/c", "--cache-memory", "lots"}), ExitCode::kUsage);
  EXPECT_EQ(Run({"pack", "/x", "/y", "--cache-dir", "/c"}), ExitCode::kUsage);
}

TEST(Progress, TextSaysHowFarHowFastAndHowLong) {
  EXPECT_EQ(ProgressText("packing", {}, 1), "packing: looking at the source");
  ProgressFigures half{2000, 4000, 100 << 20, 200 << 20};
  std::string text = ProgressText("packing", half, 2);
  EXPECT_THAT(text, HasSubstr(" 50 %"));
  EXPECT_THAT(text, HasSubstr("2,000 of 4,000 samples"));
  EXPECT_THAT(text, HasSubstr("50 MiB/s"));
  EXPECT_THAT(text, HasSubstr("left"));
  ProgressFigures nearly{3999, 4000, (200 << 20) - 1, 200 << 20};
  EXPECT_THAT(ProgressText("packing", nearly, 4), HasSubstr("1 s left"));
  ProgressFigures all{4000, 4000, 200 << 20, 200 << 20};
  EXPECT_THAT(ProgressText("packing", all, 4), Not(HasSubstr("left")));
  ProgressFigures bytes{0, 0, 50 << 20, 200 << 20};
  EXPECT_EQ(ProgressText("warming", bytes, 2),
            "warming  25 %  50 MiB of 200 MiB  25 MiB/s  6 s left");
  ProgressFigures samples{1000, 4000, 100 << 20, 0};
  EXPECT_EQ(ProgressText("verifying", samples, 2),
            "verifying  25 %  1,000 of 4,000 samples  50 MiB/s  6 s left");
  ProgressFigures counted{1000, 4000, 0, 0};
  EXPECT_EQ(ProgressText("measuring", counted, 2),
            "measuring  25 %  1,000 of 4,000 samples  500 samples/s  6 s left");
  ProgressFigures files{30, 40, 0, 0, "files"};
  EXPECT_EQ(ProgressText("removing", files, 3),
            "removing  75 %  30 of 40 files  10 files/s  1 s left");
  ProgressFigures more{0, 0, 300, 200};  // a cache that grows while it is looked at
  EXPECT_THAT(ProgressText("verifying", more, 2), HasSubstr("100 %"));
}

}  // namespace
}  // namespace headrace::cli
