// The real writer on a real file system that is shut down in the midst of its work: with direct
// writes, real syncs and renames. Where the cut falls is left to chance; what must hold does not
// hang on it: an acknowledged save is there after the restart, the one under way is there whole or
// not at all.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <new>
#include <random>
#include <string>
#include <thread>

#include "headrace/checkpoint/testing/crash_points.h"
#include "headrace/checkpoint/testing/test_run.h"
#include "headrace/env/shared_memory.h"
#include "headrace/env/testing/child_process.h"
#include "headrace/env/testing/loop_file_system.h"

namespace headrace::checkpoint {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint64_t kDiskBytes = uint64_t{64} << 20;
constexpr uint64_t kFewRounds = 4, kManyRounds = 100;
constexpr uint64_t kMostSteps = 100;  // of one round

// What the writer, another process, tells.
struct Told {
  std::atomic<uint64_t> acknowledged{0};  // the newest step
  std::atomic<int64_t> save_ns{0};        // how long one takes
  std::atomic<bool> ended{false};
};

// Saves and prunes until the disk is gone.
int SaveOn(const std::string& folder, const StatesByStep& states, uint64_t step, Told* told) {
  auto run = TestRun::Start(PosixFileSystem(), folder);
  for (; run.ok() && states.contains(step); ++step) {
    const auto start = Clock::now();
    if (!run->Save(states.at(step), step).ok()) break;
    told->acknowledged = step;
    told->save_ns = std::chrono::nanoseconds(Clock::now() - start).count();
    if (!run->Prune(2).ok()) break;
  }
  told->ended = true;
  return 0;
}

// States of the next steps; of one to the next a tensor changes.
StatesByStep NextStates(uint64_t first) {
  StatesByStep states;
  TestState state = RandomState(4, 2, 40, 7);
  for (uint64_t step = first; step < first + kMostSteps; ++step) {
    std::mt19937_64 random(step);
    TestTensor& changed = state.tensors[step % state.tensors.size()];
    changed.bytes = RandomBytes(changed.bytes.size(), &random);
    states[step] = state;
  }
  return states;
}

TEST(LoopCrashTest, WhatWasAcknowledgedIsThereAfterAnAbruptEnd) {
  auto memory = SharedMemory::Create("headrace-told", sizeof(Told));
  ASSERT_TRUE(memory.ok()) << memory.status().ToString();
  auto disk = LoopFileSystem::Make(kDiskBytes);
  if (disk.status().code() == Code::kUnimplemented) GTEST_SKIP() << disk.status().message();
  ASSERT_TRUE(disk.ok()) << disk.status().ToString();
  const std::string folder = (*disk)->path() + "/ckpt";
  const uint64_t rounds = WantedCrashPoints() > 0 ? kManyRounds : kFewRounds;
  std::mt19937_64 random(7);
  StatesByStep states;
  uint64_t newest = 0;
  for (uint64_t round = 0; round < rounds && !HasFailure(); ++round) {
    // Those of the rounds before, which may still be there, and others that nobody has saved yet.
    states.merge(NextStates(newest + 1));
    Told* told = new ((*memory)->bytes().data()) Told;
    ChildProcess writer([&] { return SaveOn(folder, states, newest + 1, told); });
    const auto give_up = Clock::now() + std::chrono::minutes(2);
    while (told->acknowledged < newest + 1 + round % 3 && !told->ended && Clock::now() < give_up)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    // Somewhere in the next save or so.
    const int64_t save_ns = std::max<int64_t>(told->save_ns, 1);
    std::this_thread::sleep_for(
        std::chrono::nanoseconds(static_cast<int64_t>(random() % 1000) * save_ns / 1000));
    const Status off = (*disk)->Shutdown();
    ASSERT_TRUE(off.ok()) << off.ToString();
    EXPECT_EQ(writer.Wait(), 0);
    const uint64_t acknowledged = told->acknowledged;
    EXPECT_GT(acknowledged, newest);
    const Status on = (*disk)->Restart();
    ASSERT_TRUE(on.ok()) << on.ToString();
    auto again = TestRun::Start(PosixFileSystem(), folder);
    ASSERT_TRUE(again.ok()) << again.status().ToString();
    auto found = again->Check(states);
    ASSERT_TRUE(found.ok()) << "round " << round << ": " << found.status().ToString();
    EXPECT_GE(*found, acknowledged) << "round " << round << ": acknowledged and lost";
    EXPECT_LE(*found, acknowledged + 1);
    newest = *found;
  }
  TellCrashPoints(rounds);
}

}  // namespace
}  // namespace headrace::checkpoint
