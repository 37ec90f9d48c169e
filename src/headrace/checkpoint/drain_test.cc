// Drains: what comes to the far tier is whole, is sent once, and goes on after any fault or death.
#include "headrace/checkpoint/drain.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <atomic>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "headrace/checkpoint/prune.h"
#include "headrace/checkpoint/testing/test_tiers.h"
#include "headrace/checkpoint/testing/tiny_store.h"

namespace headrace::checkpoint {
namespace {

using object::StoreOperation;

constexpr DrainOptions kOneThread{.threads = 1, .rate = {}};

class DrainTest : public ::testing::Test {
 protected:
  DrainTest() : tiers_(places_.Open()) {
    auto epoch = TakeOverTiers(tiers_, "test", {});
    EXPECT_TRUE(epoch.ok()) << epoch.status().ToString();
    epoch_ = *epoch;
  }
  void Save(uint64_t step, uint64_t version) {
    states_[step] = StateOf(version);
    Status saved = SaveAt(near(), epoch_, states_[step], step);
    ASSERT_TRUE(saved.ok()) << saved.ToString();
  }
  Tier* near() { return tiers_[0].get(); }
  Tier* far() { return tiers_[1].get(); }

  TestPlaces places_;
  Tiers tiers_;
  uint64_t epoch_ = 0;
  std::map<uint64_t, TestState> states_;
};

TEST_F(DrainTest, TheOldestComesFirstAndIsWholeThere) {
  for (uint64_t step = 1; step <= 3; ++step) Save(step, step);
  Drain drain(near(), far(), kOneThread);
  for (uint64_t step = 1; step <= 3; ++step) {
    auto drained = drain.Next(epoch_, {});
    ASSERT_TRUE(drained.ok()) << drained.status().ToString();
    ASSERT_TRUE(drained->has_value());
    EXPECT_EQ((*drained)->step, step);
    EXPECT_EQ(drain.progress().waiting, 3 - step);
  }
  auto none = drain.Next(epoch_, {});
  ASSERT_TRUE(none.ok());
  EXPECT_FALSE(none->has_value());
  EXPECT_EQ(CatalogLine(&far()->store), "1/1/1 remote, 2/1/1 remote, 3/1/1 remote");
  EXPECT_EQ(CatalogLine(&near()->store), CatalogLine(&far()->store));
  EXPECT_EQ(CompareAll(far(), states_).ToString(), "ok");
}

TEST_F(DrainTest, WhatIsThereIsNotSentAgain) {
  Save(1, 1);
  Drain drain(near(), far(), kOneThread);
  ASSERT_TRUE(drain.Next(epoch_, {}).ok());
  const uint64_t sent = drain.progress().sent_bytes;
  EXPECT_GT(sent, 0u);
  Save(2, 1);
  ASSERT_TRUE(drain.Next(epoch_, {}).ok());
  EXPECT_EQ(drain.progress().sent_bytes, sent);
  EXPECT_EQ(drain.progress().bytes, drain.progress().total_bytes);
  EXPECT_EQ(CompareAll(far(), states_).ToString(), "ok");
}

TEST_F(DrainTest, ADamagedFileIsToldOnceAndHoldsNothingUp) {
  Save(1, 1);
  places_.disk.FlipBit(".safetensors", 4100);
  Drain drain(near(), far(), kOneThread);
  auto drained = drain.Next(epoch_, {});
  EXPECT_EQ(drained.status().code(), Code::kDataLoss);
  EXPECT_TRUE(drain.Damaged({1, epoch_, 1}).has_value());
  drained = drain.Next(epoch_, {});
  ASSERT_TRUE(drained.ok()) << drained.status().ToString();
  EXPECT_FALSE(drained->has_value());
  EXPECT_EQ(CatalogLine(&far()->store), "");
}

TEST_F(DrainTest, OneThatWasShutOutPublishesNothing) {
  Save(1, 1);
  auto taken = TakeOverTiers(tiers_, "another", {});
  ASSERT_TRUE(taken.ok());
  Drain drain(near(), far(), kOneThread);
  EXPECT_EQ(drain.Next(epoch_, {}).status().code(), Code::kFailedPrecondition);
  EXPECT_EQ(CatalogLine(&far()->store), "");
  ASSERT_TRUE(drain.Next(*taken, {}).ok());
  EXPECT_EQ(CatalogLine(&far()->store), "1/1/1 remote");
}

TEST_F(DrainTest, WhatIsOlderThanTheNewestThereStaysAway) {
  for (uint64_t step = 1; step <= 3; ++step) Save(step, step);
  Drain drain(near(), far(), kOneThread);
  ASSERT_TRUE(SaveAt(far(), epoch_, StateOf(9), 9).ok());
  auto none = drain.Next(epoch_, {});
  ASSERT_TRUE(none.ok());
  EXPECT_FALSE(none->has_value());
}

TEST_F(DrainTest, ALimitHolds) {
  Save(1, 1);
  DrainOptions slow = kOneThread;
  slow.rate.limit = 1;
  slow.rate.burst = 1;
  Drain drain(near(), far(), slow);
  // As much time as it takes until it has begun to copy.
  for (std::chrono::milliseconds time(300); drain.progress().total_bytes == 0; time *= 2) {
    Context ctx;
    ctx.deadline = Context::Clock::now() + time;
    ASSERT_EQ(drain.Next(epoch_, ctx).status().code(), Code::kDeadlineExceeded);
  }
  // The first piece may go, since the bucket was full; then it is paid back.
  EXPECT_LT(drain.progress().sent_bytes, drain.progress().total_bytes);
  EXPECT_EQ(CatalogLine(&far()->store), "");
}

TEST_F(DrainTest, YieldsWhileTheInputStallsAndGoesOnAfterwards) {
  Save(1, 1);
  DrainOptions slow = kOneThread;
  slow.rate = {.limit = 4, .least = 1, .burst = 4, .hold_ns = 0};  // it takes hours
  Drain drain(near(), far(), slow);
  drain.ReportStall(0.2);  // while nothing is copied: what is usual
  std::atomic<bool> stop{false};
  Context ctx;
  ctx.cancelled = &stop;
  std::thread copying(
      [&] { EXPECT_EQ(drain.Next(epoch_, ctx).status().code(), Code::kCancelled); });
  const auto end = Context::Clock::now() + std::chrono::minutes(2);
  while (drain.progress().sent_bytes == 0 && Context::Clock::now() < end) std::this_thread::yield();
  drain.ReportStall(0.2);
  EXPECT_EQ(drain.progress().rate, 4);
  drain.ReportStall(0.6);
  EXPECT_EQ(drain.progress().input_stall, 0.6);
  EXPECT_EQ(drain.progress().rate, 1);
  drain.ReportStall(0.2);
  EXPECT_EQ(drain.progress().rate, 1.25);
  stop = true;
  copying.join();
}

// Each call of each kind fails once, or is done and its answer lost; the drain is tried again.
TEST(DrainFaultTest, GoesOnAfterAnyFaultOfTheStore) {
  const Status fault(Code::kUnavailable, "503");
  size_t faults = 0;
  for (StoreOperation operation :
       {StoreOperation::kHead, StoreOperation::kGet, StoreOperation::kPut}) {
    for (bool lost : {false, true}) {
      if (lost && operation == StoreOperation::kGet) continue;
      for (uint64_t nth = 1;; ++nth) {
        TestPlaces places;
        Tiers tiers = places.Open();
        auto epoch = TakeOverTiers(tiers, "test", {});
        ASSERT_TRUE(epoch.ok());
        const std::map<uint64_t, TestState> states{{1, StateOf(1)}};
        ASSERT_TRUE(SaveAt(tiers[0].get(), *epoch, states.at(1), 1).ok());
        if (lost) {
          places.bucket->LoseNth(operation, nth, fault);
        } else {
          places.bucket->FailNth(operation, nth, fault);
        }
        Drain drain(tiers[0].get(), tiers[1].get(), kOneThread);
        const uint64_t before = places.bucket->count(operation);
        auto drained = drain.Next(*epoch, {});
        const bool hit = places.bucket->count(operation) - before >= nth;
        if (!drained.ok()) {
          ++faults;
          drained = drain.Next(*epoch, {});
          ASSERT_TRUE(drained.ok()) << drained.status().ToString();
        }
        places.bucket->Heal();  // a fault that the drain did not come to
        EXPECT_EQ(CatalogLine(&tiers[1]->store), "1/1/1 remote");
        EXPECT_EQ(CompareAll(tiers[1].get(), states).ToString(), "ok");
        if (!hit) break;
      }
    }
  }
  EXPECT_GT(faults, 10u);
}

// Random runs of saves, drains, deaths, faults and prunes against what must hold of them.
TEST(DrainModelTest, TheFarTierFollowsTheNearOne) {
  const bool held = rc::check("drain", [](const std::vector<uint8_t>& steps) {
    TestPlaces places;
    Tiers tiers = places.Open();
    uint64_t epoch = TakeOverTiers(tiers, "test", {}).value();
    auto drain = std::make_unique<Drain>(tiers[0].get(), tiers[1].get(), kOneThread);
    std::map<uint64_t, TestState> states;
    uint64_t next = 1;
    std::optional<SaveId> newest_there;
    for (uint8_t step : steps) {
      switch (step % 6) {
        case 0:
        case 1:
          states[next] = StateOf(step / 6, 8);
          RC_ASSERT(SaveAt(tiers[0].get(), epoch, states[next], next).ok());
          ++next;
          break;
        case 2:
          RC_ASSERT(drain->Next(epoch, {}).ok());
          break;
        case 3:  // a fault somewhere in the middle
          places.bucket->FailNth(StoreOperation::kPut, 1 + step / 6 % 5,
                                 Error(Code::kUnavailable, "503"));
          (void)drain->Next(epoch, {});
          places.bucket->Heal();
          break;
        case 4:  // a death, and another one takes over
          drain.reset();
          tiers = places.Open();
          epoch = TakeOverTiers(tiers, "again", {}).value();
          RC_ASSERT(SweepTiers(tiers, epoch, {}).ok());
          drain = std::make_unique<Drain>(tiers[0].get(), tiers[1].get(), kOneThread);
          break;
        case 5: {
          Tier* tier = tiers[step / 6 % 2].get();
          RC_ASSERT(
              Prune(&tier->store, epoch,
                    PlanPrune(&tier->store, {.keep_last = 2, .level = tier->level}, {}).value(), {})
                  .ok());
          break;
        }
        default:
          break;
      }
      const Catalog there = tiers[1]->store.Read({}).value();
      RC_ASSERT(CompareAll(tiers[1].get(), states).ok());
      // Its newest never grows older.
      if (!there.entries.empty()) {
        RC_ASSERT(!newest_there || !Newer(*newest_there, there.entries.back().id));
        newest_there = there.entries.back().id;
      }
      RC_ASSERT(!newest_there || !there.entries.empty());
    }
    while (drain->Next(epoch, {}).value()) {
    }
    const Catalog here = tiers[0]->store.Read({}).value(), there = tiers[1]->store.Read({}).value();
    if (!here.entries.empty()) RC_ASSERT(there.entries.back().id == here.entries.back().id);
    RC_ASSERT(CompareAll(tiers[1].get(), states).ok());
  });
  EXPECT_TRUE(held);
}

}  // namespace
}  // namespace headrace::checkpoint
