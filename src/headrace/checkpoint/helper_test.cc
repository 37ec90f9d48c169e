// A trainer and its helper in another process: what was handed in outlives the one, and what is
// durable the other.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "headrace/checkpoint/checkpoint_helper.h"
#include "headrace/checkpoint/helper_client.h"
#include "headrace/checkpoint/testing/test_tiers.h"
#include "headrace/checkpoint/testing/tiny_store.h"
#include "headrace/checkpoint/tiered_restore.h"
#include "headrace/checkpoint/trainer_reporter.h"
#include "headrace/env/testing/child_process.h"
#include "headrace/env/testing/temporary_directory.h"

namespace headrace::checkpoint {
namespace {

Context ForTwoMinutes() {
  Context ctx;
  ctx.deadline = Context::Clock::now() + std::chrono::minutes(2);
  return ctx;
}

class HelperTest : public ::testing::Test {
 protected:
  HelperTest() {
    settings_.tiers.folders = {folder_ / "near"};
    settings_.tiers.dest = folder_ / "far";
    settings_.arena_bytes = 1 << 20;
    home_ = settings_.tiers.folders[0];
    EXPECT_TRUE(PosixFileSystem()->MakeDirectories(HelperFolder(home_)).ok());
    EXPECT_EQ(::chmod(HelperFolder(home_).c_str(), 0700), 0);
    auto tiers = OpenTiers(settings_.tiers, settings_.storage);
    EXPECT_TRUE(tiers.ok()) << tiers.status().ToString();
    tiers_ = *std::move(tiers);
  }

  // A helper in a process of its own; call before any thread is started.
  std::unique_ptr<ChildProcess> StartHelper(uint32_t rank = 0) {
    return std::make_unique<ChildProcess>([this, rank] {
      auto helper = CheckpointHelper::Start(home_, rank, {});
      return helper.ok() && (*helper)->Run({}).ok() ? 0 : 1;
    });
  }
  // Waits until it listens.
  std::unique_ptr<HelperClient> Connect(uint32_t rank = 0) {
    const Context ctx = ForTwoMinutes();
    for (;;) {
      auto client = HelperClient::Connect(home_, rank);
      if (client.ok()) return *std::move(client);
      EXPECT_EQ(client.status().code(), Code::kNotFound) << client.status().ToString();
      if (!ctx.Check().ok() || client.status().code() != Code::kNotFound) return nullptr;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }
  std::unique_ptr<HelperClient> Open() {
    auto client = Connect();
    if (client == nullptr) return nullptr;
    Status settled = client->Settle(true, ForTwoMinutes());
    EXPECT_TRUE(settled.ok()) << settled.ToString();
    auto epoch = TakeOverTiers(tiers_, "test", {});
    EXPECT_TRUE(epoch.ok()) << epoch.status().ToString();
    settings_.epoch = *epoch;
    Status opened = client->Open(settings_);
    EXPECT_TRUE(opened.ok()) << opened.ToString();
    return client;
  }
  // As rank 0 of so many.
  static Result<uint64_t> Save(HelperClient* client, const TestState& state, uint64_t step,
                               uint32_t world = 1) {
    HR_ASSIGN_OR_RETURN(HelperClient::Loan loan, client->Borrow(BytesOf(state), ForTwoMinutes()));
    RankSave save = SaveInLoan(state, 0, world, {step, 0, 1}, loan.bytes());
    return client->Submit(std::move(save), std::move(loan));
  }
  // Restores the newest of any tier and compares; tells which step it was and where it came from.
  Result<std::string> RestoreNewest(const TestState& state, uint32_t rank = 0) {
    HR_ASSIGN_OR_RETURN(TieredCheckpoint found,
                        FindCheckpoint(tiers_, home_, rank, {}, ForTwoMinutes()));
    std::vector<std::vector<std::byte>> memory;
    std::vector<WantedBox> wanted;
    for (const TestTensor& tensor : state.tensors) {
      auto number = found.manifest.FindTensor(tensor.path);
      if (!number) return Error(Code::kNotFound, "{} is not there", tensor.path);
      memory.emplace_back(tensor.bytes.size());
      wanted.push_back({*number, Box::Whole(tensor.shape), memory.back()});
    }
    for (size_t i = 0; i < wanted.size(); ++i) wanted[i].out = memory[i];
    TieredReport report;
    HR_RETURN_IF_ERROR(
        RestoreFromTiers(tiers_, found.memories, found.manifest, wanted, {}, {}, &report));
    for (size_t i = 0; i < memory.size(); ++i)
      if (memory[i] != state.tensors[i].bytes)
        return Error(Code::kDataLoss, "{} differs", state.tensors[i].path);
    std::string text = std::to_string(found.entry.id.step);
    for (const auto& place : report.places)
      if (place.bytes > 0) text += " " + place.name;
    return text;
  }

  TemporaryDirectory folder_;
  std::string home_;
  HelperSettings settings_;
  Tiers tiers_;
};

TEST_F(HelperTest, WhatWasHandedInOutlivesTheTrainer) {
  auto helper = StartHelper();
  const TestState state = StateOf(1);
  {
    auto client = Open();
    ASSERT_NE(client, nullptr);
    auto number = Save(client.get(), state, 5);
    ASSERT_TRUE(number.ok()) << number.status().ToString();
  }  // gone without a word, as after SIGKILL
  auto restored = RestoreNewest(state);
  ASSERT_TRUE(restored.ok()) << restored.status().ToString();
  EXPECT_EQ(*restored, "5 memory");
  // Ranks without a helper find the same.
  restored = RestoreNewest(state, 1);
  ASSERT_TRUE(restored.ok()) << restored.status().ToString();
  EXPECT_EQ(*restored, "5 memory");
  // The next trainer goes on with the same helper, which ends with it.
  auto client = Open();
  ASSERT_NE(client, nullptr);
  auto number = Save(client.get(), StateOf(2), 6);
  ASSERT_TRUE(number.ok()) << number.status().ToString();
  auto status = client->Wait(*number, Level::kRemote, ForTwoMinutes());
  ASSERT_TRUE(status.ok()) << status.status().ToString();
  ASSERT_TRUE(client->Bye().ok());
  client.reset();
  EXPECT_EQ(helper->Wait(), 0);
  restored = RestoreNewest(StateOf(2));
  ASSERT_TRUE(restored.ok()) << restored.status().ToString();
  EXPECT_EQ(*restored, "6 local");
}

TEST_F(HelperTest, AnotherHelperGoesOnAfterTheDeathOfOne) {
  auto helper = StartHelper();
  const TestState state = StateOf(1);
  settings_.drain_limit = 1;  // a byte a second: it will not end
  auto client = Open();
  ASSERT_NE(client, nullptr);
  auto number = Save(client.get(), state, 5);
  ASSERT_TRUE(number.ok());
  ASSERT_TRUE(client->Wait(*number, Level::kLocal, ForTwoMinutes()).ok());
  helper->Kill();
  helper->Wait();
  EXPECT_EQ(client->Look(*number).status().code(), Code::kUnavailable);
  EXPECT_EQ(client->Hello().status().code(), Code::kUnavailable);
  client.reset();
  auto restored = RestoreNewest(state);
  ASSERT_TRUE(restored.ok()) << restored.status().ToString();
  EXPECT_EQ(*restored, "5 local");

  settings_.drain_limit = 0;
  auto another = StartHelper();
  client = Open();
  ASSERT_NE(client, nullptr);
  ASSERT_TRUE(client->Bye().ok());
  client.reset();
  EXPECT_EQ(another->Wait(), 0);  // all is drained
  EXPECT_EQ(CatalogLine(&tiers_[1]->store), "5/1/1 remote");
}

TEST_F(HelperTest, WhatIsBorrowedComesBackWithItsTrainer) {
  auto helper = StartHelper();
  auto client = Open();
  ASSERT_NE(client, nullptr);
  auto other = Open();  // takes over; the first one is shut out
  ASSERT_NE(other, nullptr);
  EXPECT_EQ(client->Borrow(100, {}).status().code(), Code::kFailedPrecondition);
  auto loan = other->Borrow(1 << 20, ForTwoMinutes());
  ASSERT_TRUE(loan.ok()) << loan.status().ToString();
  Context at_once;
  at_once.deadline = Context::Clock::now();
  EXPECT_EQ(other->Borrow(100, at_once).status().code(), Code::kDeadlineExceeded);
  EXPECT_EQ(other->Borrow(2 << 20, {}).status().code(), Code::kResourceExhausted);
  loan->Return();
  EXPECT_TRUE(other->Borrow(1 << 20, ForTwoMinutes()).ok());
}

TEST_F(HelperTest, HearsHowItsTrainerDoesWhoseSavesAreLookedAfter) {
  auto helper = StartHelper();
  auto client = Open();
  ASSERT_NE(client, nullptr);
  uint64_t looks = 0;
  TrainerReporter::Options options;
  options.look = [&looks] {
    ++looks;  // of each second the loop waits 0.75
    return LoopTime{.input_wait_ns = looks * 750'000'000,
                    .between_batches_ns = looks * 250'000'000};
  };
  std::vector<KeptStatus> ended;
  options.ended = [&ended](const KeptStatus& status) { ended.push_back(status); };
  options.interval = std::chrono::milliseconds(1);
  auto reporter = TrainerReporter::Start(client.get(), std::move(options));
  ASSERT_TRUE(reporter.ok()) << reporter.status().ToString();
  const auto told = [&]() -> double {
    auto hello = client->Hello();
    const Json* drain = hello.ok() ? hello->Find("drain") : nullptr;
    const Json* stall = drain == nullptr ? nullptr : drain->Find("input_stall");
    return stall == nullptr ? -1 : stall->AsDouble(-1);
  };
  const Context ctx = ForTwoMinutes();
  while (told() < 0 && ctx.Check().ok()) std::this_thread::yield();
  EXPECT_EQ(told(), 0.75);
  EXPECT_EQ((*reporter)->pending(), 0u);
  auto number = Save(client.get(), StateOf(1), 1);
  ASSERT_TRUE(number.ok()) << number.status().ToString();
  (*reporter)->Saved(*number);
  while ((*reporter)->pending() != 0 && ctx.Check().ok()) std::this_thread::yield();
  // A save of two ranks, of which the other one never comes.
  number = Save(client.get(), StateOf(2), 2, 2);
  ASSERT_TRUE(number.ok()) << number.status().ToString();
  (*reporter)->Saved(*number);
  EXPECT_EQ((*reporter)->pending(), 1u);
  helper->Kill();
  while ((*reporter)->pending() != 0 && ctx.Check().ok()) std::this_thread::yield();
  reporter->reset();
  ASSERT_EQ(ended.size(), 2u);
  EXPECT_EQ(ended[0].failed.ToString(), "ok");
  EXPECT_GE(ended[0].level, Level::kLocal);
  EXPECT_EQ(ended[1].failed.code(), Code::kUnavailable) << ended[1].failed.ToString();
}

// Killed in the midst of a save of two ranks: one had handed it in, the other one had not.
TEST_F(HelperTest, NobodyWaitsForARankThatDiedBeforeItHandedItsPartIn) {
  auto helper = StartHelper(), other_helper = StartHelper(1);
  auto client = Open();
  ASSERT_NE(client, nullptr);
  auto other = Connect(1);
  ASSERT_NE(other, nullptr);
  settings_.rank = 1;
  ASSERT_TRUE(other->Open(settings_).ok());
  ASSERT_TRUE(Save(client.get(), StateOf(1), 5, 2).ok());
  client.reset();
  // While the other trainer lives it may still come.
  Context soon;
  soon.deadline = Context::Clock::now() + std::chrono::milliseconds(600);
  EXPECT_EQ(Connect()->Settle(true, soon).code(), Code::kDeadlineExceeded);
  other.reset();
  EXPECT_EQ(Connect()->Settle(true, ForTwoMinutes()).ToString(), "ok");
  EXPECT_EQ(RestoreNewest(StateOf(1)).status().code(), Code::kNotFound);
  // Nor for a helper that is gone; nor does the next run's first save.
  other_helper->Kill();
  other_helper->Wait();
  EXPECT_EQ(Connect()->Settle(false, ForTwoMinutes()).ToString(), "ok");
  settings_.rank = 0;
  auto next = Open();
  ASSERT_NE(next, nullptr);
  auto number = Save(next.get(), StateOf(2), 6);
  ASSERT_TRUE(number.ok()) << number.status().ToString();
  EXPECT_EQ(next->Wait(*number, Level::kLocal, ForTwoMinutes()).status().ToString(), "ok");
}

TEST_F(HelperTest, NonsenseIsAnsweredAndHarmsNobody) {
  auto helper = StartHelper();
  auto client = Open();
  ASSERT_NE(client, nullptr);
  const std::vector<std::string> nonsense = {
      "",
      "x",
      "{}",
      R"({"ask":"jump"})",
      R"({"ask":"open"})",
      R"({"ask":"borrow"})",
      R"({"ask":"borrow","bytes":18446744073709551615})",
      R"({"ask":"submit","loan":1,"bytes":1})",
      R"({"ask":"look","number":77})",
      R"({"ask":"stall","share":7})",
      R"({"ask":"deadline"})",
      R"({"ask":"expects","step":1})",
      std::string(LocalSocket::kMaxMessageBytes, '['),
  };
  for (const std::string& text : nonsense) {
    auto socket = LocalSocket::Connect(HelperSocket(home_, 0));
    ASSERT_TRUE(socket.ok());
    if (text.empty()) continue;  // only comes and goes
    ASSERT_TRUE((*socket)->Send(AsBytes(text), ForTwoMinutes()).ok());
    auto answer = (*socket)->Receive(ForTwoMinutes());
    ASSERT_TRUE(answer.ok()) << text.substr(0, 50);
    EXPECT_NE(answer->content.find("\"error\""), std::string::npos) << text.substr(0, 50);
  }
  auto number = Save(client.get(), StateOf(1), 1);
  ASSERT_TRUE(number.ok());
  EXPECT_TRUE(client->Wait(*number, Level::kRemote, ForTwoMinutes()).ok());
}

TEST_F(HelperTest, ThereIsOneForEachStoreAndRank) {
  auto helper = CheckpointHelper::Start(home_, 0, {});
  ASSERT_TRUE(helper.ok()) << helper.status().ToString();
  EXPECT_EQ(CheckpointHelper::Start(home_, 0, {}).status().code(), Code::kAlreadyExists);
  EXPECT_TRUE(CheckpointHelper::Start(home_, 1, {}).ok());
  // And none while a tool drains.
  helper->reset();
  auto lock = PosixFileSystem()->Lock(DrainLock(home_));
  ASSERT_TRUE(lock.ok());
  EXPECT_EQ(CheckpointHelper::Start(home_, 0, {}).status().code(), Code::kFailedPrecondition);
}

TEST_F(HelperTest, ReadersThatComeWithoutAHelperFindTheTiers) {
  auto epoch = TakeOverTiers(tiers_, "test", {});
  ASSERT_TRUE(epoch.ok());
  const TestState state = StateOf(1);
  ASSERT_TRUE(SaveAt(tiers_[1].get(), *epoch, state, 3).ok());
  auto restored = RestoreNewest(state);
  ASSERT_TRUE(restored.ok()) << restored.status().ToString();
  EXPECT_EQ(*restored, "3 remote");
}

}  // namespace
}  // namespace headrace::checkpoint
