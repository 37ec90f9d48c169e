#include "headrace/object/task_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>
#include <thread>
#include <utility>

#include "headrace/base/mutex.h"
#include "headrace/env/testing/child_process.h"
#include "headrace/object/retry_timer.h"

namespace headrace::object {
namespace {

TEST(TaskPool, RunsEverythingBeforeItEnds) {
  std::atomic<int> done{0};
  {
    TaskPool pool("test", 3);
    for (int i = 0; i < 1000; ++i) pool.Run([&done] { ++done; });
  }
  EXPECT_EQ(done, 1000);
}

// Both must run at once, or neither would end.
TEST(TaskPool, RunsSeveralAtOnce) {
  Mutex mu;
  CondVar met;
  int here = 0;
  TaskPool pool("test", 2);
  for (int i = 0; i < 2; ++i) {
    pool.Run([&] {
      MutexLock lock(&mu);
      if (++here == 2) met.NotifyAll();
      while (here < 2) met.Wait(&mu);
    });
  }
}

TEST(TaskPool, AForkedChildHasThreadsOfItsOwn) {
  TaskPool pool("test", 2);
  auto ask = [&pool] {
    Mutex mu;
    CondVar answered;
    bool done = false;
    pool.Run([&] {
      MutexLock lock(&mu);
      done = true;
      answered.NotifyOne();
    });
    MutexLock lock(&mu);
    while (!done) answered.Wait(&mu);
    return 0;
  };
  ask();
  EXPECT_EQ(ExitOfChild(ask), 0);
  ask();
}

TEST(RetryTimer, RunsInTheOrderOfTimes) {
  std::vector<int> order;
  Mutex mu;
  CondVar all;
  RetryTimer timer;
  const auto now = Context::Clock::now();
  // Nothing runs until all of them are known, however slow this thread is.
  Mutex known;
  known.Lock();
  timer.RunAt(now - std::chrono::hours(1), [&](bool) { MutexLock lock(&known); });
  for (int i : {3, 1, 2}) {
    timer.RunAt(now + std::chrono::milliseconds(5 * i), [&, i](bool ended) {
      MutexLock lock(&mu);
      EXPECT_FALSE(ended);
      order.push_back(i);
      if (order.size() == 3) all.NotifyOne();
    });
  }
  known.Unlock();
  MutexLock lock(&mu);
  while (order.size() < 3) all.Wait(&mu);
  EXPECT_EQ(order, (std::vector<int>{1, 2, 3}));
}

TEST(RetryTimer, EndsWhatWaits) {
  RetryTimer timer;
  int ended = 0;
  auto task = [&ended](bool at_end) { ended += at_end ? 1 : 0; };
  timer.RunAt(Context::Clock::now() + std::chrono::hours(1), task);
  timer.RunAt(Context::Clock::now() + std::chrono::hours(2), task);
  timer.End();
  EXPECT_EQ(ended, 2);
  timer.RunAt(Context::Clock::now(), task);
  EXPECT_EQ(ended, 3);
}

// As when the answer to a read holds the last reference to its store.
TEST(TaskPool, MayEndOnAThreadOfItsOwn) {
  for (int i = 0; i < 20; ++i) {
    std::atomic<int> ran{0};
    std::promise<void> go;
    auto pool = std::make_shared<TaskPool>("test", 1 + i % 2);
    TaskPool* raw = pool.get();
    raw->Run([pool = std::move(pool), &ran, going = go.get_future().share()] {
      going.wait();
      ++ran;
    });
    raw->Run([&ran] { ++ran; });
    raw->Run([&ran] { ++ran; });
    go.set_value();
    while (ran < 3) std::this_thread::yield();
  }
}

}  // namespace
}  // namespace headrace::object
