// How many power cuts a crash test makes. HEADRACE_CRASH_POINTS asks for at least so many in all,
// shared out among the tests below; without it each makes as many as CI has time for. For tests.
#pragma once

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <tuple>

#include "headrace/base/text.h"
#include "headrace/env/process.h"
#include "headrace/env/testing/memory_file_system.h"

namespace headrace::checkpoint {

// Tests that share them out; scripts/crash.sh checks that together they come to what was asked for.
inline constexpr uint64_t kCrashTests = 24;

// Of one test; 0: nothing was asked for.
inline uint64_t WantedCrashPoints() {
  auto points = ParseSize(EnvironmentVariable("HEADRACE_CRASH_POINTS").value_or("0"));
  EXPECT_TRUE(points.ok()) << points.status().ToString();
  return points.ok() ? (*points + kCrashTests - 1) / kCrashTests : 0;
}

// Tells how many there were.
inline void TellCrashPoints(uint64_t points) {
  ::testing::Test::RecordProperty("crash_points", static_cast<int>(points));
  if (WantedCrashPoints() > 0) fmt::print("crash points: {}\n", points);
}

// The name of a test of what is done (Act has a `name`) and of what of it the power cut leaves.
template <typename Act>
std::string NameOfCrashTest(const ::testing::TestParamInfo<std::tuple<Act, Survival>>& info) {
  const auto& [act, survival] = info.param;
  static constexpr const char* kSurvivals[] = {"Nothing", "Everything", "Some"};
  return std::string(act.name) + "_" + kSurvivals[static_cast<int>(survival)];
}

}  // namespace headrace::checkpoint
