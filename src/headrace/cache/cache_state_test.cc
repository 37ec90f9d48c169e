#include "headrace/cache/cache_state.h"

#include <gtest/gtest.h>

#include "headrace/env/testing/memory_file_system.h"

namespace headrace::cache {
namespace {

BlockId Block(uint64_t number) { return {{11, 22}, number, 4096}; }

class CacheStateTest : public ::testing::Test {
 protected:
  std::unique_ptr<CacheState> Open(uint64_t words = 1 << 16) {
    auto state = CacheState::Open(&files_, "/counters", "/uses", words, [this] { return clock_; });
    EXPECT_TRUE(state.ok()) << state.status().ToString();
    return *std::move(state);
  }
  MemoryFileSystem files_;
  uint64_t clock_ = 1000;
};

TEST_F(CacheStateTest, AllWhoOpenItSeeTheSame) {
  auto a = Open(), b = Open();
  EXPECT_EQ(a->AddUsed(100), 100u);
  EXPECT_EQ(b->AddUsed(-30), 70u);
  EXPECT_EQ(a->used_bytes(), 70u);
  a->SetLimits(5, 6);
  EXPECT_EQ(b->limit_bytes(), 5u);
  EXPECT_EQ(b->free_floor_bytes(), 6u);
  a->SetUse(Block(1), {3, 77});
  ASSERT_TRUE(b->Use(Block(1)).has_value());
  EXPECT_EQ(b->Use(Block(1))->plan, 3u);
  EXPECT_EQ(b->Use(Block(1))->at, 77u);
  EXPECT_FALSE(b->Use(Block(2)).has_value());
  b->Forget(Block(1));
  EXPECT_FALSE(a->Use(Block(1)).has_value());
  b->SetProgress(7, {1, 2, 3});
  EXPECT_EQ(a->AllProgress()[7].ns_per_position, 3u);
}

TEST_F(CacheStateTest, BytesInUseNeverPassBelowNothing) {
  auto state = Open();
  state->AddUsed(10);
  EXPECT_EQ(state->AddUsed(-11), 0u);
  EXPECT_EQ(state->used_bytes(), 0u);
}

TEST_F(CacheStateTest, ATouchLeavesWhatAPlanHasSaid) {
  auto state = Open();
  state->SetProgress(3, {50, state->Now(), 1});
  state->SetUse(Block(1), {3, 77});
  state->Touch(Block(1));
  EXPECT_EQ(state->Use(Block(1))->plan, 3u);
  state->SetProgress(3, {78, state->Now(), 1});  // the plan is past it
  state->Touch(Block(1));
  EXPECT_EQ(state->Use(Block(1))->plan, kNoPlan);
  state->SetUse(Block(2), {3, 100});
  clock_ += kPlanGraceMs + 1;  // the plan's process has died
  state->Touch(Block(2));
  EXPECT_EQ(state->Use(Block(2))->plan, kNoPlan);
  EXPECT_EQ(state->Use(Block(2))->at, state->Now());
}

TEST_F(CacheStateTest, TheClockGoesOnOverARestartOfTheMachine) {
  clock_ = 5'000'000;
  auto before = Open();
  before->StartClock();
  Tick last = before->Now();
  clock_ = 10;
  auto after = Open();
  after->StartClock();
  EXPECT_GE(after->Now(), last);
  EXPECT_LT(after->Now(), last + 1000);
  clock_ += 500;
  EXPECT_GE(after->Now(), last + 500);
}

TEST_F(CacheStateTest, ATableFilledToAQuarterKeepsNearlyAll) {
  constexpr uint64_t kBlocks = 4096;
  auto state = Open(4 * kBlocks);
  for (uint64_t i = 0; i < kBlocks; ++i) state->SetUse(Block(i), {1, i});
  uint64_t right = 0;
  for (uint64_t i = 0; i < kBlocks; ++i) {
    auto use = state->Use(Block(i));
    if (use && use->at == i) ++right;
  }
  EXPECT_GE(right, kBlocks * 99 / 100);
}

TEST_F(CacheStateTest, AFullTableForgetsTheOldest) {
  auto state = Open(8);  // one line of places
  for (uint64_t i = 0; i < 8; ++i) {
    clock_ += 1000;
    state->SetUse(Block(i), {kNoPlan, state->Now()});
  }
  clock_ += 1000;
  state->Touch(Block(8));
  EXPECT_TRUE(state->Use(Block(8)).has_value());
  EXPECT_FALSE(state->Use(Block(0)).has_value());
  EXPECT_TRUE(state->Use(Block(1)).has_value());
}

}  // namespace
}  // namespace headrace::cache
