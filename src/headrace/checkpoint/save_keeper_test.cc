#include "headrace/checkpoint/save_keeper.h"

#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "headrace/checkpoint/testing/test_tiers.h"
#include "headrace/checkpoint/testing/tiny_store.h"
#include "headrace/env/testing/temporary_directory.h"

namespace headrace::checkpoint {
namespace {

using object::StoreOperation;

constexpr uint64_t kArenaBytes = 1 << 20;

class SaveKeeperTest : public ::testing::Test {
 protected:
  SaveKeeperTest() : tiers_(places_.Open()) { TakeOver(); }

  void TakeOver() {
    auto epoch = TakeOverTiers(tiers_, "test", {});
    ASSERT_TRUE(epoch.ok()) << epoch.status().ToString();
    epoch_ = *epoch;
  }
  std::unique_ptr<SaveKeeper> Start(uint32_t rank = 0, size_t keep_last = 0,
                                    uint64_t arena_bytes = kArenaBytes) {
    return StartWith(places_.Open(), rank, keep_last, arena_bytes);
  }
  std::unique_ptr<SaveKeeper> StartWith(Tiers tiers, uint32_t rank = 0, size_t keep_last = 0,
                                        uint64_t arena_bytes = kArenaBytes) {
    KeeperOptions options;
    options.rank = rank;
    options.keep_last = keep_last;
    options.write.threads = 1;
    options.write.max_file_bytes = 2000;
    options.first_pause = options.longest_pause = std::chrono::milliseconds(5);
    auto keeper = SaveKeeper::Start(std::move(tiers), options);
    EXPECT_TRUE(keeper.ok()) << keeper.status().ToString();
    EXPECT_TRUE((*keeper)->MakeArena(arena_bytes, 1).ok());
    Status begun = (*keeper)->Begin(epoch_);
    EXPECT_TRUE(begun.ok()) << begun.ToString();
    return *std::move(keeper);
  }
  // With a peer between the tiers.
  void UsePeer() {
    tiers_ = places_.OpenWithPeer();
    TakeOver();
  }
  Result<uint64_t> Save(SaveKeeper* keeper, const TestState& state, uint64_t step,
                        uint32_t rank = 0, uint32_t world = 1) {
    HR_ASSIGN_OR_RETURN(Arena::Loan loan, keeper->Borrow(BytesOf(state)));
    RankSave save = SaveInLoan(state, rank, world, {step, epoch_, 1}, loan.bytes());
    return keeper->Submit(std::move(save), std::move(loan), keeper->arena());
  }
  // Waits for the level, or for the save's failure.
  static KeptStatus WaitFor(SaveKeeper* keeper, uint64_t number, Level level) {
    const auto end = Context::Clock::now() + std::chrono::minutes(2);
    for (;;) {
      auto status = keeper->Look(number);
      EXPECT_TRUE(status.ok()) << status.status().ToString();
      if (!status.ok()) return {};
      if (status->level >= level || !status->failed.ok()) return *status;
      if (Context::Clock::now() > end) {
        ADD_FAILURE() << "it is still at " << LevelName(status->level);
        return *status;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  static Status CompareInMemory(const KeptSave& kept, const TestState& state) {
    HR_ASSIGN_OR_RETURN(Manifest manifest, DecodeManifest(AsBytes(kept.manifest), "memory"));
    DataFiles* place = kept.files.get();
    RestoreReport report;
    HR_ASSIGN_OR_RETURN(size_t wrong, CountWrong(state, {&place, 1}, manifest, 1, &report));
    return wrong == 0 ? OkStatus() : Error(Code::kDataLoss, "{} tensors differ", wrong);
  }

  TestPlaces places_;
  Tiers tiers_;
  uint64_t epoch_ = 0;
};

TEST_F(SaveKeeperTest, ASaveComesToEachTierAndStaysInMemory) {
  auto keeper = Start();
  const TestState state = StateOf(1);
  auto number = Save(keeper.get(), state, 7);
  ASSERT_TRUE(number.ok()) << number.status().ToString();
  KeptStatus status = WaitFor(keeper.get(), *number, Level::kRemote);
  EXPECT_EQ(status.failed.ToString(), "ok");
  EXPECT_EQ(status.level, Level::kRemote);
  EXPECT_EQ(status.report.bytes, BytesOf(state));
  for (const auto& tier : tiers_) {
    auto catalog = tier->store.Read({});
    ASSERT_TRUE(catalog.ok());
    ASSERT_EQ(catalog->entries.size(), 1u);
    EXPECT_EQ(CompareAt(tier.get(), catalog->entries[0], state).ToString(), "ok");
  }
  auto kept = keeper->InMemory();
  ASSERT_EQ(kept.size(), 1u);
  EXPECT_EQ(CompareInMemory(*kept[0], state).ToString(), "ok");
  EXPECT_EQ(keeper->Look(99).status().code(), Code::kNotFound);
}

TEST_F(SaveKeeperTest, AFullDiskFailsTheSaveWhichStaysInMemoryAndTheNextWorks) {
  auto keeper = Start();
  const TestState state = StateOf(1);
  places_.disk.LimitBytes(3000);
  auto number = Save(keeper.get(), state, 1);
  ASSERT_TRUE(number.ok());
  KeptStatus status = WaitFor(keeper.get(), *number, Level::kLocal);
  EXPECT_EQ(status.failed.code(), Code::kResourceExhausted) << status.failed.ToString();
  EXPECT_EQ(status.level, Level::kMemory);
  EXPECT_EQ(CatalogLine(&tiers_[0]->store), "");
  auto kept = keeper->InMemory();
  ASSERT_EQ(kept.size(), 1u);
  EXPECT_EQ(CompareInMemory(*kept[0], state).ToString(), "ok");
  places_.disk.Heal();
  number = Save(keeper.get(), StateOf(2), 2);
  ASSERT_TRUE(number.ok());
  EXPECT_EQ(WaitFor(keeper.get(), *number, Level::kRemote).failed.ToString(), "ok");
  EXPECT_EQ(CatalogLine(&tiers_[1]->store), "2/1/1 remote");
}

TEST_F(SaveKeeperTest, AStoreThatIsDownDelaysOnlyTheDrain) {
  auto keeper = Start();
  places_.bucket->FailNth(StoreOperation::kPut, 1, Status(Code::kUnavailable, "503"), 1'000'000);
  auto number = Save(keeper.get(), StateOf(1), 1);
  ASSERT_TRUE(number.ok());
  EXPECT_EQ(WaitFor(keeper.get(), *number, Level::kLocal).level, Level::kLocal);
  ASSERT_EQ(keeper->drains().size(), 1u);
  Drain* drain = keeper->drains()[0];
  while (drain->progress().last.ok()) std::this_thread::yield();
  EXPECT_EQ(drain->progress().last.code(), Code::kUnavailable);
  EXPECT_FALSE(keeper->idle());
  auto second = Save(keeper.get(), StateOf(2), 2);
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(WaitFor(keeper.get(), *second, Level::kLocal).level, Level::kLocal);
  places_.bucket->Heal();
  EXPECT_EQ(WaitFor(keeper.get(), *number, Level::kRemote).level, Level::kRemote);
  EXPECT_EQ(WaitFor(keeper.get(), *second, Level::kRemote).level, Level::kRemote);
}

TEST_F(SaveKeeperTest, GoesOnWithWhatAnEarlierOneDidNotDrain) {
  const TestState state = StateOf(1);
  {
    auto keeper = Start();
    places_.bucket->FailNth(StoreOperation::kPut, 1, Status(Code::kUnavailable, "503"), 1'000'000);
    auto number = Save(keeper.get(), state, 1);
    ASSERT_TRUE(number.ok());
    EXPECT_EQ(WaitFor(keeper.get(), *number, Level::kLocal).level, Level::kLocal);
  }
  places_.bucket->Heal();
  TakeOver();
  auto keeper = Start();
  const auto end = Context::Clock::now() + std::chrono::minutes(2);
  while (!keeper->idle() && Context::Clock::now() < end) std::this_thread::yield();
  auto catalog = tiers_[1]->store.Read({});
  ASSERT_TRUE(catalog.ok());
  ASSERT_EQ(catalog->entries.size(), 1u);
  EXPECT_EQ(CompareAt(tiers_[1].get(), catalog->entries[0], state).ToString(), "ok");
}

TEST_F(SaveKeeperTest, WhatIsReadOrNotDurableIsNeverLentAgain) {
  const TestState state = StateOf(1, 6);
  auto keeper = Start(0, 0, 4096);
  ASSERT_LE(BytesOf(state), 4096u);
  auto number = Save(keeper.get(), state, 1);
  ASSERT_TRUE(number.ok());
  EXPECT_GE(WaitFor(keeper.get(), *number, Level::kLocal).level, Level::kLocal);
  auto reading = keeper->InMemory();
  ASSERT_EQ(reading.size(), 1u);
  // It is given up by the keeper, but a reader still holds it.
  EXPECT_EQ(keeper->Borrow(4096).status().code(), Code::kDeadlineExceeded);
  EXPECT_EQ(CompareInMemory(*reading[0], state).ToString(), "ok");
  reading.clear();
  auto loan = keeper->Borrow(4096);
  ASSERT_TRUE(loan.ok()) << loan.status().ToString();
  EXPECT_EQ(keeper->Borrow(1).status().code(), Code::kDeadlineExceeded);
  EXPECT_EQ(keeper->Borrow(5000).status().code(), Code::kResourceExhausted);
}

TEST_F(SaveKeeperTest, OneThatWasShutOutPublishesNothingUntilItHasAnotherEpoch) {
  auto keeper = Start();
  const uint64_t old = epoch_;
  TakeOver();
  const uint64_t next = epoch_;
  epoch_ = old;
  auto number = Save(keeper.get(), StateOf(1), 1);
  ASSERT_TRUE(number.ok());
  EXPECT_EQ(WaitFor(keeper.get(), *number, Level::kLocal).failed.code(), Code::kFailedPrecondition);
  EXPECT_EQ(CatalogLine(&tiers_[0]->store), "");
  ASSERT_TRUE(keeper->Begin(next).ok());
  EXPECT_EQ(keeper->Begin(old).code(), Code::kFailedPrecondition);
  auto refused = Save(keeper.get(), StateOf(1), 1);
  EXPECT_EQ(refused.status().code(), Code::kFailedPrecondition);
  epoch_ = next;
  number = Save(keeper.get(), StateOf(2), 2);
  ASSERT_TRUE(number.ok()) << number.status().ToString();
  EXPECT_EQ(WaitFor(keeper.get(), *number, Level::kRemote).failed.ToString(), "ok");
}

TEST_F(SaveKeeperTest, RanksOfOneNodeMeetInItsFolders) {
  auto first = Start(0), second = Start(1);
  const TestState state = RandomState(4, 2, 24, 3);
  auto one = Save(first.get(), state, 1, 0, 2), other = Save(second.get(), state, 1, 1, 2);
  ASSERT_TRUE(one.ok() && other.ok());
  EXPECT_EQ(WaitFor(first.get(), *one, Level::kRemote).failed.ToString(), "ok");
  EXPECT_EQ(WaitFor(second.get(), *other, Level::kRemote).failed.ToString(), "ok");
  auto catalog = tiers_[1]->store.Read({});
  ASSERT_TRUE(catalog.ok());
  ASSERT_EQ(catalog->entries.size(), 1u);
  EXPECT_EQ(CompareAt(tiers_[1].get(), catalog->entries[0], state).ToString(), "ok");
  // Each has its own part of it in memory.
  ASSERT_EQ(second->InMemory().size(), 1u);
  EXPECT_EQ(second->InMemory()[0]->manifest, "");
}

TEST_F(SaveKeeperTest, KeepsAtEachTierWhatTheRulesSay) {
  auto keeper = Start(0, 1);
  for (uint64_t step = 1; step <= 3; ++step) {
    auto number = Save(keeper.get(), StateOf(step), step);
    ASSERT_TRUE(number.ok());
    EXPECT_EQ(WaitFor(keeper.get(), *number, Level::kRemote).failed.ToString(), "ok");
  }
  // What is removed goes after the save is where it should be.
  const auto end = Context::Clock::now() + std::chrono::minutes(2);
  for (const auto& tier : tiers_) {
    while (CatalogLine(&tier->store) != "3/1/1 remote" && Context::Clock::now() < end)
      std::this_thread::yield();
    EXPECT_EQ(CatalogLine(&tier->store), "3/1/1 remote");
  }
}

TEST_F(SaveKeeperTest, ASaveThatIsRemovedBeforeItIsDrainedFailsAndSaysSo) {
  places_.bucket->FailNth(StoreOperation::kPut, 1, Status(Code::kUnavailable, "503"), 1'000'000);
  auto keeper = Start();
  auto first = Save(keeper.get(), StateOf(1), 1);
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(WaitFor(keeper.get(), *first, Level::kLocal).level, Level::kLocal);
  ASSERT_TRUE(tiers_[0]->store.Remove(epoch_, std::vector<SaveId>{{1, epoch_, 1}}, {}).ok());
  places_.bucket->Heal();
  KeptStatus status = WaitFor(keeper.get(), *first, Level::kRemote);
  EXPECT_EQ(status.level, Level::kLocal);
  EXPECT_EQ(status.failed.code(), Code::kFailedPrecondition) << status.failed.ToString();
}

// --- with a peer ---------------------------------------------------------------------------------

TEST_F(SaveKeeperTest, ASaveComesToThePeerThoughTheDestinationIsDown) {
  UsePeer();
  auto keeper = StartWith(places_.OpenWithPeer());
  places_.bucket->FailNth(StoreOperation::kPut, 1, Status(Code::kUnavailable, "503"), 1'000'000);
  const TestState state = StateOf(1);
  auto number = Save(keeper.get(), state, 1);
  ASSERT_TRUE(number.ok());
  const KeptStatus status = WaitFor(keeper.get(), *number, Level::kPeer);
  EXPECT_EQ(status.failed.ToString(), "ok");
  EXPECT_EQ(status.level, Level::kPeer);
  auto catalog = tiers_[1]->store.Read({});
  ASSERT_TRUE(catalog.ok());
  ASSERT_EQ(catalog->entries.size(), 1u);
  EXPECT_EQ(CompareAt(tiers_[1].get(), catalog->entries[0], state).ToString(), "ok");
  EXPECT_FALSE(keeper->idle());
  places_.bucket->Heal();
  EXPECT_EQ(WaitFor(keeper.get(), *number, Level::kRemote).level, Level::kRemote);
  EXPECT_EQ(CatalogLine(&tiers_[2]->store), "1/2/1 remote");
}

TEST_F(SaveKeeperTest, APeerThatIsGoneHoldsNothingUpAndGetsTheRestWhenItIsBack) {
  places_.LosePeer();
  UsePeer();  // also taking over goes on without it
  auto keeper = StartWith(places_.OpenWithPeer());
  for (uint64_t step = 1; step <= 2; ++step) {
    auto number = Save(keeper.get(), StateOf(step), step);
    ASSERT_TRUE(number.ok());
    const KeptStatus status = WaitFor(keeper.get(), *number, Level::kRemote);
    EXPECT_EQ(status.failed.ToString(), "ok");
    EXPECT_EQ(status.level, Level::kRemote);
  }
  ASSERT_EQ(keeper->drains().size(), 2u);
  Drain* to_peer = keeper->drains()[0];
  while (to_peer->progress().last.ok()) std::this_thread::yield();
  EXPECT_NE(to_peer->progress().last.ToString().find("the peer is gone"), std::string::npos);
  while (!keeper->idle()) std::this_thread::yield();
  places_.peer->Heal();
  const std::string all = "1/2/1 peer, 2/2/1 peer";
  const auto end = Context::Clock::now() + std::chrono::minutes(2);
  while (CatalogLine(&tiers_[1]->store) != all && Context::Clock::now() < end)
    std::this_thread::yield();
  EXPECT_EQ(CatalogLine(&tiers_[1]->store), all);
}

TEST_F(SaveKeeperTest, AFullPeerHoldsNothingUp) {
  UsePeer();
  places_.peer->FailNth(StoreOperation::kPut, 1, Status(Code::kResourceExhausted, "it is full"),
                        1'000'000);
  auto keeper = StartWith(places_.OpenWithPeer());
  auto number = Save(keeper.get(), StateOf(1), 1);
  ASSERT_TRUE(number.ok());
  EXPECT_EQ(WaitFor(keeper.get(), *number, Level::kRemote).failed.ToString(), "ok");
  while (!keeper->idle()) std::this_thread::yield();
  EXPECT_EQ(CatalogLine(&tiers_[1]->store), "");
}

TEST_F(SaveKeeperTest, APeerOfALaterWriterIsLeftAlone) {
  UsePeer();
  ASSERT_TRUE(tiers_[1]->store.TakeOver("somebody else", {}, epoch_ + 5).ok());
  auto keeper = StartWith(places_.OpenWithPeer());
  auto number = Save(keeper.get(), StateOf(1), 1);
  ASSERT_TRUE(number.ok());
  EXPECT_EQ(WaitFor(keeper.get(), *number, Level::kRemote).failed.ToString(), "ok");
  Drain* to_peer = keeper->drains()[0];
  while (to_peer->progress().last.ok()) std::this_thread::yield();
  EXPECT_EQ(to_peer->progress().last.code(), Code::kFailedPrecondition);
  EXPECT_EQ(CatalogLine(&tiers_[1]->store), "");
  // Who takes over next is later than both.
  const uint64_t before = epoch_;
  TakeOver();
  EXPECT_EQ(epoch_, before + 6);
}

TEST_F(SaveKeeperTest, OtherRanksHearOfThePeerToo) {
  UsePeer();
  places_.bucket->FailNth(StoreOperation::kPut, 1, Status(Code::kUnavailable, "503"), 1'000'000);
  auto first = StartWith(places_.OpenWithPeer(), 0), second = StartWith(places_.OpenWithPeer(), 1);
  const TestState state = RandomState(4, 2, 24, 3);
  auto one = Save(first.get(), state, 1, 0, 2), other = Save(second.get(), state, 1, 1, 2);
  ASSERT_TRUE(one.ok() && other.ok());
  EXPECT_EQ(WaitFor(first.get(), *one, Level::kPeer).level, Level::kPeer);
  EXPECT_EQ(WaitFor(second.get(), *other, Level::kPeer).level, Level::kPeer);
}

TEST_F(SaveKeeperTest, TheNewestIsFoundAtThePeerAndNobodyWaitsForOneThatIsGone) {
  UsePeer();
  auto keeper = StartWith(places_.OpenWithPeer());
  auto number = Save(keeper.get(), StateOf(1), 1);
  ASSERT_TRUE(number.ok());
  EXPECT_EQ(WaitFor(keeper.get(), *number, Level::kRemote).failed.ToString(), "ok");
  Tiers elsewhere = places_.OpenWithPeer();
  elsewhere.erase(elsewhere.begin());  // another node
  const auto end = Context::Clock::now() + std::chrono::minutes(2);
  while (CatalogLine(&tiers_[1]->store).empty() && Context::Clock::now() < end)
    std::this_thread::yield();
  std::vector<Status> skipped;
  auto found = FindNewest(elsewhere, {}, {}, &skipped);
  ASSERT_TRUE(found.ok()) << found.status().ToString();
  EXPECT_EQ(elsewhere[found->tier]->level, Level::kPeer);
  EXPECT_TRUE(skipped.empty());
  places_.LosePeer();
  found = FindNewest(elsewhere, {}, {}, &skipped);
  ASSERT_TRUE(found.ok()) << found.status().ToString();
  EXPECT_EQ(elsewhere[found->tier]->level, Level::kRemote);
  EXPECT_EQ(skipped.size(), 1u);
}

TEST(TierSettings, TheFileOfTiersTellsThePeer) {
  TierSettings settings;
  settings.folders = {"/nvme/run"};
  settings.peer = "peer://10.0.0.7:7171/run";
  settings.dest = "s3://bucket/run";
  auto read = TierSettings::FromJson(settings.ToJson(), "tiers.json");
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(*read, settings);
  settings.peer.clear();
  read = TierSettings::FromJson(settings.ToJson(), "tiers.json");
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(*read, settings);
}

TEST(TierSettings, APeerLiesBetweenFoldersAndDestination) {
  const auto open = [](const TierSettings& settings) {
    return OpenTiers(settings, std::map<std::string, std::string>()).status();
  };
  const TemporaryDirectory folder;
  const std::string peer = "peer://127.0.0.1:7171/run", near = folder / "near",
                    far = folder / "far";
  EXPECT_EQ(open({.folders = {}, .peer = peer, .dest = far}).code(), Code::kInvalidArgument);
  EXPECT_EQ(open({.folders = {near}, .peer = far, .dest = far}).code(), Code::kInvalidArgument);
  EXPECT_EQ(open({.folders = {near}, .peer = "peer://node7:1/run", .dest = far}).code(),
            Code::kInvalidArgument);
  EXPECT_EQ(open({.folders = {near}, .peer = peer, .dest = peer + "2", .dest_level = Level::kPeer})
                .code(),
            Code::kInvalidArgument);
  EXPECT_EQ(open({.folders = {near}, .peer = peer, .dest = far}).ToString(), "ok");
  EXPECT_EQ(LevelOfPlace(peer), Level::kPeer);
  EXPECT_EQ(LevelOfPlace("s3://bucket/run"), Level::kRemote);
  EXPECT_EQ(LevelOfPlace("/nvme/run"), Level::kLocal);
}

}  // namespace
}  // namespace headrace::checkpoint
