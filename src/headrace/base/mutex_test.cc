#include "headrace/base/mutex.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace headrace {
namespace {

TEST(Mutex, ExcludesOtherThreads) {
  Mutex mu;
  int count = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int j = 0; j < 5000; ++j) {
        MutexLock lock(&mu);
        ++count;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(count, 20'000);
}

TEST(CondVar, WakesAWaiter) {
  Mutex mu;
  CondVar changed;
  int step = 0;
  std::thread other([&] {
    MutexLock lock(&mu);
    while (step != 1) changed.Wait(&mu);
    step = 2;
    changed.NotifyOne();
  });
  {
    MutexLock lock(&mu);
    step = 1;
    changed.NotifyAll();
    while (step != 2) changed.Wait(&mu);
  }
  other.join();
  EXPECT_EQ(step, 2);
}

TEST(CondVar, WaitForGivesUpAndHoldsTheMutexAgain) {
  Mutex mu;
  CondVar never;
  MutexLock lock(&mu);
  EXPECT_FALSE(never.WaitFor(&mu, std::chrono::milliseconds(1)));
  std::thread other([&] {
    MutexLock waits_for_us(&mu);
    never.NotifyAll();
  });
  // The other thread can only notify once WaitFor has let go of the mutex.
  while (!never.WaitFor(&mu, std::chrono::seconds(10))) {
  }
  mu.Unlock();
  other.join();
  mu.Lock();
}

}  // namespace
}  // namespace headrace
