#include "headrace/base/fault_point.h"

#include <gtest/gtest.h>

#include <csignal>
#include <thread>

#include "headrace/base/mutex.h"

namespace headrace {
namespace {

class FaultPointTest : public ::testing::Test {
 protected:
  ~FaultPointTest() override { DisarmFaults(); }
  static Status Broken() { return Error(Code::kDataLoss, "broken"); }
};

TEST_F(FaultPointTest, IsOkWhileNothingIsArmed) {
  EXPECT_TRUE(FaultPoint("a").ok());
  EXPECT_EQ(FaultPassages("a"), 0u);
}

TEST_F(FaultPointTest, FailsFromTheNthPassageOn) {
  ArmFault("a", 3, Broken);
  EXPECT_TRUE(FaultPoint("a").ok());
  EXPECT_TRUE(FaultPoint("b").ok());
  EXPECT_TRUE(FaultPoint("a").ok());
  EXPECT_EQ(FaultPoint("a").message(), "broken");
  EXPECT_EQ(FaultPoint("a").message(), "broken");
  EXPECT_TRUE(FaultPoint("b").ok());
  EXPECT_EQ(FaultPassages("a"), 4u);
  EXPECT_EQ(FaultPassages("b"), 2u);
}

TEST_F(FaultPointTest, CountsFromWhereItIsArmed) {
  ArmFault("other", 1, Broken);
  EXPECT_TRUE(FaultPoint("a").ok());
  EXPECT_TRUE(FaultPoint("a").ok());
  ArmFault("a", 2, Broken);
  EXPECT_TRUE(FaultPoint("a").ok());
  EXPECT_FALSE(FaultPoint("a").ok());
}

TEST_F(FaultPointTest, ArmingAgainReplaces) {
  ArmFault("a", 1, Broken);
  ArmFault("a", 1, [] { return OkStatus(); });
  EXPECT_TRUE(FaultPoint("a").ok());
}

TEST_F(FaultPointTest, DisarmingForgetsEverything) {
  ArmFault("a", 1, Broken);
  EXPECT_FALSE(FaultPoint("a").ok());
  DisarmFaults();
  EXPECT_TRUE(FaultPoint("a").ok());
  EXPECT_EQ(FaultPassages("a"), 0u);
}

TEST_F(FaultPointTest, AnActionMayWaitForAnotherThread) {
  Mutex mu;
  CondVar changed;
  bool reached = false, released = false;
  ArmFault("gate", 1, [&] {
    MutexLock lock(&mu);
    reached = true;
    changed.NotifyAll();
    while (!released) changed.Wait(&mu);
    return OkStatus();
  });
  std::thread passing([] { EXPECT_TRUE(FaultPoint("gate").ok()); });
  {
    MutexLock lock(&mu);
    while (!reached) changed.Wait(&mu);
    EXPECT_TRUE(FaultPoint("elsewhere").ok());  // others pass while one waits
    released = true;
    changed.NotifyAll();
  }
  passing.join();
}

TEST_F(FaultPointTest, ReadsAText) {
  ASSERT_TRUE(ArmFaultsFromText("a=error,b.c=error@2").ok());
  Status a = FaultPoint("a");
  EXPECT_EQ(a.code(), Code::kIoError);
  EXPECT_NE(a.message().find("a"), std::string_view::npos);
  EXPECT_TRUE(FaultPoint("b.c").ok());
  EXPECT_FALSE(FaultPoint("b.c").ok());
  EXPECT_TRUE(ArmFaultsFromText("").ok());
}

TEST_F(FaultPointTest, RefusesATextItCannotRead) {
  for (const char* text : {"a", "=kill", "a=explode", "a=error@0", "a=error@-1", "a=error@x",
                           "a=error@", "a=error@1x", "a=error,,b=kill"}) {
    Status status = ArmFaultsFromText(text);
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << text;
    EXPECT_NE(status.message().find("HEADRACE_FAULTS"), std::string_view::npos);
    EXPECT_TRUE(FaultPoint("a").ok()) << "nothing may be armed by: " << text;
  }
}

using FaultPointDeathTest = FaultPointTest;

TEST_F(FaultPointDeathTest, KillEndsTheProcessAtThatPassage) {
  EXPECT_EXIT(
      {
        bool armed = ArmFaultsFromText("a=kill@2").ok();
        bool first = FaultPoint("a").ok();
        if (!armed || !first) std::_Exit(1);
        (void)FaultPoint("a");
        std::_Exit(2);
      },
      ::testing::KilledBySignal(SIGKILL), "");
}

}  // namespace
}  // namespace headrace
