#include "headrace/env/write_shapes.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

namespace headrace {
namespace {

using std::chrono::milliseconds;

constexpr uint64_t kMuch = uint64_t{1} << 40;

TEST(WriteShapes, TriesAllAndKeepsTheFastest) {
  const auto& candidates = WriteShapes::Candidates();
  for (size_t fastest = 0; fastest < candidates.size(); ++fastest) {
    WriteShapes shapes;
    std::set<size_t> tried;
    for (size_t i = 0; i < candidates.size() * WriteShapes::kRounds; ++i) {
      const auto choice = shapes.Next(7, kMuch);
      ASSERT_TRUE(choice.trial.has_value()) << i;
      for (size_t k = 0; k < candidates.size(); ++k)
        if (candidates[k] == choice.shape) tried.insert(k);
      // In the second round something disturbs the fastest.
      const bool fast = choice.shape == candidates[fastest] && i < candidates.size();
      shapes.Tell(7, *choice.trial, milliseconds(fast ? 10 : 20));
    }
    EXPECT_EQ(tried.size(), candidates.size());
    const auto choice = shapes.Next(7, kMuch);
    EXPECT_FALSE(choice.trial.has_value());
    EXPECT_EQ(choice.shape, candidates[fastest]);
    EXPECT_TRUE(shapes.Next(8, kMuch).trial.has_value());  // another device
  }
}

TEST(WriteShapes, SmallFilesTellNothing) {
  WriteShapes shapes;
  for (int i = 0; i < 100; ++i) {
    EXPECT_FALSE(shapes.Next(7, WriteShapes::kTrialBytes - 1).trial.has_value());
  }
  EXPECT_TRUE(shapes.Next(7, WriteShapes::kTrialBytes).trial.has_value());
}

TEST(WriteShapes, ATrialOfSeveralThreadsCountsOnce) {
  WriteShapes shapes;
  const auto one = shapes.Next(7, kMuch), two = shapes.Next(7, kMuch);
  ASSERT_TRUE(one.trial.has_value() && two.trial.has_value());
  EXPECT_EQ(*one.trial, *two.trial);
  shapes.Tell(7, *one.trial, milliseconds(10));
  shapes.Tell(7, *two.trial, milliseconds(10));
  EXPECT_EQ(*shapes.Next(7, kMuch).trial, *one.trial + 1);
}

TEST(WriteShapes, AreReadFromText) {
  EXPECT_EQ(*ParseWriteShape("1MiBx4"), (WriteShape{1 << 20, 4}));
  EXPECT_EQ(*ParseWriteShape("65536x64"), (WriteShape{1 << 16, 64}));
  for (const char* text : {"", "x", "1MiB", "1MiBx", "x4", "1MiBx0", "1MiBx65", "1MiBx-1",
                           "1MiBx4 ", "32KiBx4", "8MiBx4", "3MiBx4", "4096x1", "fastx4"})
    EXPECT_EQ(ParseWriteShape(text).status().code(), Code::kInvalidArgument) << text;
}

TEST(WriteShapes, TheEnvironmentForcesOne) {
  ASSERT_EQ(::unsetenv("HEADRACE_DIRECT_WRITE"), 0);
  EXPECT_FALSE(ForcedWriteShape()->has_value());
  ASSERT_EQ(::setenv("HEADRACE_DIRECT_WRITE", "2MiBx8", 1), 0);
  EXPECT_EQ(*ForcedWriteShape(), (WriteShape{2 << 20, 8}));
  ASSERT_EQ(::setenv("HEADRACE_DIRECT_WRITE", "much", 1), 0);
  const Status status = ForcedWriteShape().status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_NE(status.ToString().find("HEADRACE_DIRECT_WRITE"), std::string::npos);
  ASSERT_EQ(::unsetenv("HEADRACE_DIRECT_WRITE"), 0);
}

}  // namespace
}  // namespace headrace
