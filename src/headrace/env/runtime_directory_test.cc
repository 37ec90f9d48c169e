#include "headrace/env/runtime_directory.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "headrace/env/process.h"
#include "headrace/env/process_usage.h"
#include "headrace/env/testing/temporary_directory.h"

namespace headrace {
namespace {

class RuntimeDirectoryTest : public ::testing::Test {
 protected:
  RuntimeDirectoryTest() : path_(dir_ / "run") { Name(path_); }
  ~RuntimeDirectoryTest() override { ::unsetenv("HEADRACE_RUNTIME_DIR"); }
  static void Name(const std::string& path) { ::setenv("HEADRACE_RUNTIME_DIR", path.c_str(), 1); }
  TemporaryDirectory dir_;
  const std::string path_;
};

TEST_F(RuntimeDirectoryTest, IsMadeForThisUserAlone) {
  EXPECT_EQ(RuntimeDirectoryPath(), path_);
  ASSERT_TRUE(MakeRuntimeDirectory().ok());
  struct stat info{};
  ASSERT_EQ(::stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  EXPECT_EQ(*MakeRuntimeDirectory(), path_);  // it is there already
}

TEST_F(RuntimeDirectoryTest, OneThatOthersCanReadIsRefused) {
  ASSERT_EQ(::mkdir(path_.c_str(), 0700), 0);
  ASSERT_EQ(::chmod(path_.c_str(), 0755), 0);
  EXPECT_EQ(MakeRuntimeDirectory().status().code(), Code::kFailedPrecondition);
}

TEST_F(RuntimeDirectoryTest, ALinkIsRefused) {
  ASSERT_EQ(::mkdir((dir_ / "real").c_str(), 0700), 0);
  ASSERT_EQ(::symlink((dir_ / "real").c_str(), path_.c_str()), 0);
  EXPECT_EQ(MakeRuntimeDirectory().status().code(), Code::kFailedPrecondition);
}

TEST_F(RuntimeDirectoryTest, IsFoundWhereItIs) {
  EXPECT_EQ(FindRuntimeDirectory().status().code(), Code::kNotFound);
  ASSERT_TRUE(MakeRuntimeDirectory().ok());
  EXPECT_EQ(*FindRuntimeDirectory(), path_);
  ASSERT_EQ(::chmod(path_.c_str(), 0750), 0);
  EXPECT_EQ(FindRuntimeDirectory().status().code(), Code::kFailedPrecondition);
}

TEST_F(RuntimeDirectoryTest, AMissingParentIsTold) {
  Name(dir_ / "no/such");
  EXPECT_EQ(MakeRuntimeDirectory().status().code(), Code::kNotFound);
}

TEST(ProcessUsage, OnlyGrowsAndNamesThisProcess) {
  EXPECT_EQ(ProcessId(), ::getpid());
  EXPECT_FALSE(HostName().empty());
  const ProcessUsage before = ReadProcessUsage();
  EXPECT_GT(before.resident_bytes, 0u);
  while (ProcessCpuSeconds() <= before.cpu_seconds) {
  }
  const ProcessUsage after = ReadProcessUsage();
  EXPECT_GT(after.cpu_seconds, before.cpu_seconds);
  EXPECT_GE(after.major_faults, before.major_faults);
  EXPECT_GE(before.run_delay_seconds.value_or(0), 0);
}

}  // namespace
}  // namespace headrace
