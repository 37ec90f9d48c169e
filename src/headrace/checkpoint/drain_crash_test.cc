// Cuts the power at each write boundary of a drain from one folder to another, and of the prunes
// behind it, starts again, and looks: what each tier lists is whole, the newest checkpoint is
// there, and the drain comes to its end. Over as many random states as it takes to come to the
// wanted number of cuts; when none is wanted each third boundary of one state, others for each kind
// of survival.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <tuple>

#include "headrace/checkpoint/drain.h"
#include "headrace/checkpoint/prune.h"
#include "headrace/checkpoint/testing/crash_points.h"
#include "headrace/checkpoint/testing/test_tiers.h"
#include "headrace/checkpoint/testing/tiny_store.h"
#include "headrace/env/testing/memory_file_system.h"

namespace headrace::checkpoint {
namespace {

constexpr DrainOptions kOneThread{.threads = 1, .rate = {}};
constexpr uint64_t kSteps = 2;

using States = std::map<uint64_t, TestState>;

struct Act {
  const char* name;
  size_t keep_last;     // at each tier; 0: nothing is pruned
  const char* drained;  // what both tiers list in the end
};
constexpr Act kActs[] = {{"Drain", 0, "1/1/1 remote, 2/1/1 remote"},
                         {"DrainAndPrune", 1, "2/1/1 remote"}};

States StatesOf(uint64_t seed) {
  States states{{1, RandomState(4, 1, 6, seed)}};
  states[2] = states[1];
  std::mt19937_64 random(seed);
  TestTensor& changed = states[2].tensors[seed % 4];
  changed.bytes = RandomBytes(changed.bytes.size(), &random);
  return states;
}

Tiers OpenFolders(FileSystem* files) {
  Tiers tiers;
  tiers.push_back(TestPlaces::FolderTier(files, "/a/near", Level::kLocal));
  tiers.push_back(TestPlaces::FolderTier(files, "/a/far", Level::kRemote));
  return tiers;
}

Status PruneAll(const Act& act, const Tiers& tiers, uint64_t epoch) {
  for (const auto& tier : tiers) {
    RetentionRules rules;
    rules.keep_last = act.keep_last;
    rules.level = tier->level;
    HR_ASSIGN_OR_RETURN(const PrunePlan plan, PlanPrune(&tier->store, rules, {}));
    HR_RETURN_IF_ERROR(Prune(&tier->store, epoch, plan, {}));
  }
  return OkStatus();
}

// All that is there, one after the other, and the prunes after each.
Status DrainAll(const Act& act, const Tiers& tiers, uint64_t epoch) {
  Drain drain(tiers[0].get(), tiers[1].get(), kOneThread);
  for (;;) {
    HR_ASSIGN_OR_RETURN(const auto drained, drain.Next(epoch, {}));
    if (act.keep_last > 0) HR_RETURN_IF_ERROR(PruneAll(act, tiers, epoch));
    if (!drained) return OkStatus();
  }
}

uint64_t NewestStep(Tier* tier) {
  auto catalog = tier->store.Read({});
  EXPECT_TRUE(catalog.ok()) << catalog.status().ToString();
  return !catalog.ok() || catalog->entries.empty() ? 0 : catalog->entries.back().id.step;
}

// Before anything else is done after a cut.
void ExpectWhole(const Tiers& tiers, const States& states, bool acknowledged,
                 const std::string& where) {
  for (const auto& tier : tiers)
    EXPECT_EQ(CompareAll(tier.get(), states).ToString(), "ok") << where;
  EXPECT_EQ(NewestStep(tiers[0].get()), kSteps) << where;
  EXPECT_TRUE(!acknowledged || NewestStep(tiers[1].get()) == kSteps)
      << where << ": drained and lost";
}

// Cuts at boundary `k` of the drain. Returns whether that came to its end.
bool CutAt(const Act& act, uint64_t k, Survival survival, uint64_t seed, const States& states) {
  const std::string where = fmt::format("{}, state {}, cut at {}", act.name, seed, k);
  MemoryFileSystem files;
  EXPECT_TRUE(files.MakeDirectories("/a").ok());
  EXPECT_TRUE(files.SyncDirectory("/").ok());
  bool acknowledged = false;
  {
    Tiers tiers = OpenFolders(&files);
    auto epoch = TakeOverTiers(tiers, "test", {});
    EXPECT_TRUE(epoch.ok()) << epoch.status().ToString();
    for (const auto& [step, state] : states)
      EXPECT_TRUE(SaveAt(tiers[0].get(), *epoch, state, step).ok());
    files.CutPowerAt(files.boundaries() + k, survival, seed * 100'000 + k);
    acknowledged = DrainAll(act, tiers, *epoch).ok();
  }
  const bool finished = !files.power_is_off();
  files.PowerOn();
  Tiers tiers = OpenFolders(&files);
  ExpectWhole(tiers, states, acknowledged, where);
  auto epoch = TakeOverTiers(tiers, "again", {});
  EXPECT_TRUE(epoch.ok()) << where << ": " << epoch.status().ToString();
  const Status swept = SweepTiers(tiers, *epoch, {});
  EXPECT_TRUE(swept.ok()) << where << ": " << swept.ToString();
  const Status drained = DrainAll(act, tiers, *epoch);
  EXPECT_TRUE(drained.ok()) << where << ": " << drained.ToString();
  for (const auto& tier : tiers) {
    EXPECT_EQ(CompareAll(tier.get(), states).ToString(), "ok") << where;
    EXPECT_EQ(CatalogLine(&tier->store), act.drained) << where << ", " << tier->store.name();
  }
  return finished;
}

class DrainCrashTest : public ::testing::TestWithParam<std::tuple<Act, Survival>> {};

TEST_P(DrainCrashTest, GoesOnAfterADeathAtAnyPoint) {
  const auto& [act, survival] = GetParam();
  const uint64_t wanted = WantedCrashPoints();
  const uint64_t stride = wanted > 0 ? 1 : 3;
  const uint64_t first = wanted > 0 ? 1 : 1 + static_cast<uint64_t>(survival);
  uint64_t points = 0, seed = 7;
  do {
    const States states = StatesOf(seed);
    for (uint64_t k = first; !CutAt(act, k, survival, seed, states) && !HasFailure(); k += stride)
      ++points;
    ++seed;
  } while (points < wanted && !HasFailure());
  EXPECT_GT(points, 10u);
  TellCrashPoints(points);
}

INSTANTIATE_TEST_SUITE_P(All, DrainCrashTest,
                         ::testing::Combine(::testing::ValuesIn(kActs),
                                            ::testing::Values(Survival::kNothing,
                                                              Survival::kEverything,
                                                              Survival::kSome)),
                         NameOfCrashTest<Act>);

}  // namespace
}  // namespace headrace::checkpoint
