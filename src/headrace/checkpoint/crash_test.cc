// Cuts the power at each write boundary of save, publish, prune, sweep, export and import, starts
// again, and looks: the newest checkpoint or the one before restores bit for bit, and nothing
// between is seen. Over as many random states as it takes to come to the wanted number of cuts;
// when none is wanted there is one state. Drains are cut in drain_crash_test.cc.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include "headrace/checkpoint/testing/crash_points.h"
#include "headrace/checkpoint/testing/test_run.h"
#include "headrace/env/testing/memory_file_system.h"

namespace headrace::checkpoint {
namespace {

constexpr char kSource[] = "/a/model.safetensors", kTarget[] = "/a/out.safetensors";
constexpr uint64_t kImportedStep = 2;

// What is done while the power fails. Each begins with step 1 published.
struct Act {
  const char* name;
  // Saves and imports make step 2.
  Status (*run)(TestRun* run, const StatesByStep& states);
  bool publishes = false, imports = false, by_one_rank = false;
};

constexpr Act kActs[] = {
    {"SaveAndPrune",
     [](TestRun* run, const StatesByStep& states) -> Status {
       HR_RETURN_IF_ERROR(run->Save(states.at(2), 2));
       (void)run->Prune(1);
       return OkStatus();
     },
     true},
    // As the helper does it.
    {"Keep", [](TestRun* run, const StatesByStep& states) { return run->Keep(states.at(2), 2); },
     true, false, true},
    {"Prune", [](TestRun* run, const StatesByStep&) { return run->Prune(1); }},
    // What a save left that was never published.
    {"Sweep",
     [](TestRun* run, const StatesByStep& states) -> Status {
       HR_RETURN_IF_ERROR(run->Write(states.at(2), 2).status());
       return run->SweepAll();
     }},
    {"Export", [](TestRun* run, const StatesByStep&) { return run->Export(kTarget); }},
    {"Import",
     [](TestRun* run, const StatesByStep&) { return run->Import(kSource, kImportedStep).status(); },
     true, true},
};

// Four states that share most of their tensors, as saves of a run do; with an import step 2 is what
// the imported file holds.
StatesByStep States(const Act& act, uint64_t seed) {
  StatesByStep states{{0, RandomState(4, act.by_one_rank ? 1 : 2, 24, seed)}};
  for (uint64_t i = 1; i < 4; ++i) {
    states[i] = states[i - 1];
    std::mt19937_64 random(seed * 1000 + i);
    TestTensor& changed = states[i].tensors[i];
    changed.bytes = RandomBytes(changed.bytes.size(), &random);
  }
  if (act.imports) states[kImportedStep] = ModelState(3, 10, seed);
  return states;
}

// What the exported file may hold: the bytes of one export or of the other.
std::string ExportOf(const TestState& state, uint64_t step) {
  MemoryFileSystem files;
  EXPECT_TRUE(files.MakeDirectories("/a").ok());
  auto run = TestRun::Start(&files);
  EXPECT_TRUE(run.ok() && run->Save(state, step).ok() && run->Export(kTarget).ok());
  return files.ReadWhole(kTarget, 1 << 20).value();
}

// Before the cut: step 0 or 1 (or both, for what is pruned) published, the file to import there,
// and an older export.
void Prepare(TestRun* run, MemoryFileSystem* files, const Act& act, const StatesByStep& states) {
  if (act.imports) {
    ASSERT_TRUE(WriteForeignFile(files, kSource, states.at(kImportedStep).tensors).ok());
  }
  ASSERT_TRUE(run->Save(states.at(0), 0).ok());
  ASSERT_TRUE(run->Export(kTarget).ok());
  ASSERT_TRUE(run->Save(states.at(1), 1).ok());
}

// Cuts at boundary `k` of the act. Returns whether the act came to its end.
bool CrashAt(const Act& act, uint64_t k, Survival survival, uint64_t seed,
             const StatesByStep& states, const std::vector<std::string>& exports) {
  MemoryFileSystem files;
  EXPECT_TRUE(files.MakeDirectories("/a").ok());
  EXPECT_TRUE(files.SyncDirectory("/").ok());
  bool acknowledged = false;
  {
    auto run = TestRun::Start(&files);
    EXPECT_TRUE(run.ok()) << run.status().ToString();
    Prepare(&*run, &files, act, states);
    files.CutPowerAt(files.boundaries() + k, survival, seed * 100'000 + k);
    acknowledged = act.run(&*run, states).ok();
  }
  bool finished = !files.power_is_off();
  files.PowerOn();
  const std::string where = fmt::format("{}, state {}, cut at {}", act.name, seed, k);
  auto again = TestRun::Start(&files);
  EXPECT_TRUE(again.ok()) << where << ": " << again.status().ToString();
  if (!again.ok()) return finished;
  auto newest = again->Check(states);
  EXPECT_TRUE(newest.ok()) << where << ": " << newest.status().ToString();
  if (newest.ok()) {
    EXPECT_TRUE(*newest == 1 || (act.publishes && *newest == 2)) << where << ": " << *newest;
    EXPECT_TRUE(!acknowledged || !act.publishes || *newest == 2)
        << where << ": acknowledged and lost";
  }
  auto exported = files.ReadWhole(kTarget, 1 << 20);
  EXPECT_TRUE(exported.ok() &&
              std::find(exports.begin(), exports.end(), *exported) != exports.end())
      << where << ": the exported file is neither the old nor the new one";
  // And the run goes on.
  Status next = again->Save(states.at(3), 3);
  EXPECT_TRUE(next.ok()) << where << ": " << next.ToString();
  newest = again->Check(states);
  EXPECT_TRUE(newest.ok() && *newest == 3) << where << ": " << newest.status().ToString();
  return finished;
}

// All cuts of one random state. Returns how many there were.
uint64_t CrashEverywhere(const Act& act, Survival survival, uint64_t seed) {
  const StatesByStep states = States(act, seed);
  // Epoch and attempt are the same in each run, so the bytes are too.
  const std::vector<std::string> exports = {ExportOf(states.at(0), 0), ExportOf(states.at(1), 1)};
  uint64_t points = 0;
  while (!CrashAt(act, points + 1, survival, seed, states, exports) &&
         !::testing::Test::HasFailure())
    ++points;
  return points;
}

class CrashTest : public ::testing::TestWithParam<std::tuple<Act, Survival>> {};

TEST_P(CrashTest, TheNewestOrTheOneBeforeIsWhole) {
  const auto& [act, survival] = GetParam();
  uint64_t points = 0, seed = 7;
  do {
    points += CrashEverywhere(act, survival, seed++);
  } while (points < WantedCrashPoints() && !HasFailure());
  EXPECT_GT(points, 5u);
  TellCrashPoints(points);
}

INSTANTIATE_TEST_SUITE_P(All, CrashTest,
                         ::testing::Combine(::testing::ValuesIn(kActs),
                                            ::testing::Values(Survival::kNothing,
                                                              Survival::kEverything,
                                                              Survival::kSome)),
                         NameOfCrashTest<Act>);

}  // namespace
}  // namespace headrace::checkpoint
