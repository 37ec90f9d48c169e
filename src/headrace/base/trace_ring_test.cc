#include "headrace/base/trace_ring.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "headrace/base/stage_timer.h"
#include "headrace/base/testing/allocation_counter.h"

namespace headrace {
namespace {

// All members follow from one number, so that a torn event shows.
TraceEvent EventOf(uint64_t n) {
  TraceEvent event;
  event.kind = static_cast<TraceKind>(n % kNumTraceKinds);
  event.detail = static_cast<uint8_t>(n % 251);
  event.pool = static_cast<TracePool>(n % kNumTracePools);
  event.lane = static_cast<uint32_t>(n * 7);
  event.id = n;
  event.amount = n * 3;
  event.times = {n + 1, n + 2, n + 3, n + 4};
  return event;
}

void ExpectWhole(const TraceEvent& event) {
  const TraceEvent wanted = EventOf(event.id);
  ASSERT_EQ(event.kind, wanted.kind);
  ASSERT_EQ(event.detail, wanted.detail);
  ASSERT_EQ(event.pool, wanted.pool);
  ASSERT_EQ(event.lane, wanted.lane);
  ASSERT_EQ(event.amount, wanted.amount);
  ASSERT_EQ(event.times, wanted.times);
}

TEST(TraceRing, GivesEventsInTheOrderInWhichTheyCame) {
  TraceRing ring(8);
  EXPECT_EQ(ring.Read(0, 100, false).events.size(), 0u);
  for (uint64_t n = 0; n < 5; ++n) ring.Write(EventOf(n));
  TraceChunk chunk = ring.Read(1, 2, false);
  ASSERT_EQ(chunk.events.size(), 2u);
  EXPECT_EQ(chunk.events[0].id, 1u);
  ExpectWhole(chunk.events[1]);
  EXPECT_EQ(chunk.next, 3u);
  EXPECT_EQ(ring.Read(3, 100, false).events.size(), 2u);
  EXPECT_EQ(ring.Read(5, 100, false).events.size(), 0u);
  EXPECT_EQ(ring.Read(700, 100, false).next, 5u);  // a number that there is not yet
}

TEST(TraceRing, KeepsTheNewestAndCountsTheRest) {
  TraceRing ring(8);
  for (uint64_t n = 0; n < 20; ++n) ring.Write(EventOf(n));
  const TraceChunk chunk = ring.Read(3, 100, false);
  ASSERT_EQ(chunk.events.size(), 8u);
  EXPECT_EQ(chunk.events.front().id, 12u);
  EXPECT_EQ(chunk.events.back().id, 19u);
  EXPECT_EQ(chunk.lost, 9u);
  EXPECT_EQ(chunk.next, 20u);
}

TEST(TraceRing, NoEventIsTornAndEachIsReadOrLost) {
  constexpr uint64_t kWriters = 3, kEvents = 20'000;
  TraceRing ring(64);  // small, so that the reader is overtaken
  std::atomic<bool> done{false};
  uint64_t seen = 0, lost = 0, next = 0;
  std::thread reader([&] {
    while (true) {
      const bool last = done.load();
      const TraceChunk chunk = ring.Read(next, 16, last);
      for (const TraceEvent& event : chunk.events) ExpectWhole(event);
      seen += chunk.events.size();
      lost += chunk.lost;
      const bool at_end = chunk.next == next;
      next = chunk.next;
      if (last && at_end) return;
    }
  });
  std::vector<std::thread> writers;
  for (uint64_t w = 0; w < kWriters; ++w)
    writers.emplace_back([&, w] {
      for (uint64_t n = 0; n < kEvents; ++n) ring.Write(EventOf(w * kEvents + n));
    });
  for (std::thread& writer : writers) writer.join();
  done.store(true);
  reader.join();
  EXPECT_EQ(ring.next(), kWriters * kEvents);
  EXPECT_EQ(next, kWriters * kEvents);
  EXPECT_EQ(seen + lost, kWriters * kEvents);
}

TEST(Trace, IsOffUntilAWindowOpens) {
  ASSERT_FALSE(TraceIsOn());
  Trace(EventOf(1));
  {
    auto one = TraceWindow::Open();
    ASSERT_TRUE(one.ok());
    Trace(EventOf(2));
    auto two = TraceWindow::Open();
    ASSERT_TRUE(two.ok());
    Trace(EventOf(3));
    const TraceChunk both = one->Close();
    ASSERT_EQ(both.events.size(), 2u);
    EXPECT_EQ(both.events[0].id, 2u);
    EXPECT_TRUE(TraceIsOn());
    Trace(EventOf(4));
    EXPECT_EQ(two->Close().events.size(), 2u);
    EXPECT_FALSE(TraceIsOn());
  }
  EXPECT_FALSE(TraceIsOn());
  {
    auto left = TraceWindow::Open();
  }
  EXPECT_FALSE(TraceIsOn());
}

TEST(Trace, WhatIsKeptOnFromOutsideEndsByItself) {
  auto first = KeepTraceOn(std::chrono::hours(1));
  ASSERT_TRUE(first.ok());
  EXPECT_TRUE(KeepTraceOn(std::chrono::seconds(1)).ok());  // takes nothing away
  EXPECT_TRUE(TraceIsOn());
  TraceEvent event = EventOf(5);
  event.times[3] = NowNanos();
  Trace(event);
  EXPECT_TRUE(TraceIsOn());
  event.times[3] = NowNanos() + 7'200'000'000'000;  // two hours later
  Trace(event);
  EXPECT_FALSE(TraceIsOn());
  EXPECT_EQ(ReadTrace(*first, 100).events.size(), 2u);
}

TEST(Trace, WorkOfAThreadDoesNotOverlap) {
  StageRecorder recorder(TracePool::kLoader);
  auto window = TraceWindow::Open();
  ASSERT_TRUE(window.ok());
  recorder.SetItem(TraceBatchId(2, 9));
  const uint64_t now = NowNanos();
  recorder.Busy(Stage::kRead, 100, 64, now);
  recorder.Busy(Stage::kChecksum, 300, 64, now + 200);  // looks longer than it can have been
  recorder.Wait(Stage::kQueue, 1000);
  const TraceChunk chunk = window->Close();
  ASSERT_EQ(chunk.events.size(), 3u);
  EXPECT_EQ(chunk.events[0].times[0], now - 100);
  EXPECT_EQ(chunk.events[1].times[0], now);
  EXPECT_EQ(chunk.events[1].times[3], now + 200);
  EXPECT_GE(chunk.events[2].times[0], now + 200);
  EXPECT_EQ(chunk.events[2].kind, TraceKind::kWait);
  for (const TraceEvent& event : chunk.events) {
    EXPECT_LE(event.times[0], event.times[3]);
    EXPECT_EQ(event.lane, chunk.events[0].lane);
    EXPECT_EQ(event.id, uint64_t{2} << 32 | 9);
    EXPECT_EQ(event.pool, TracePool::kLoader);
  }
}

TEST(Trace, TheTimedPathAllocatesNothing) {
  StageRecorder recorder;
  auto window = TraceWindow::Open();
  ASSERT_TRUE(window.ok());
  testing::AllocationCounter counter;
  for (int i = 0; i < 1000; ++i) recorder.Busy(Stage::kRead, 10, 1);
  EXPECT_EQ(counter.count(), 0u);
}

}  // namespace
}  // namespace headrace
