#include "headrace/cache/work_queue.h"

#include <gtest/gtest.h>

#include <atomic>

namespace headrace::cache {
namespace {

TEST(WorkQueue, DoesAllItWasGivenBeforeItEnds) {
  std::atomic<int> done{0}, done_later{0};
  {
    auto queue = WorkQueue::Start("test", 3);
    ASSERT_TRUE(queue.ok());
    for (int i = 0; i < 100; ++i)
      (*queue)->Submit(i % 2 ? WorkQueue::Urgency::kNow : WorkQueue::Urgency::kLater, [&] {
        if (++done <= 10) (*queue)->Submit(WorkQueue::Urgency::kLater, [&] { ++done_later; });
      });
  }
  EXPECT_EQ(done, 100);
  EXPECT_EQ(done_later, 10);  // given by tasks, some of them while the queue ends
}

TEST(WorkQueue, DoesUrgentThingsFirst) {
  std::vector<int> order;
  {
    auto queue = WorkQueue::Start("test", 1);
    ASSERT_TRUE(queue.ok());
    Mutex gate;
    gate.Lock();
    (*queue)->Submit(WorkQueue::Urgency::kNow, [&] { MutexLock wait(&gate); });
    (*queue)->Submit(WorkQueue::Urgency::kLater, [&] { order.push_back(2); });
    (*queue)->Submit(WorkQueue::Urgency::kNow, [&] { order.push_back(1); });
    gate.Unlock();
  }
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
}

}  // namespace
}  // namespace headrace::cache
