#include "headrace/cache/ranges_ahead.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <span>
#include <string>

namespace headrace::cache {
namespace {

const ObjectId kA{1, 2}, kB{1, 3};

void Fill(const RangesAhead::RangePtr& range, char c) {
  std::fill(range->bytes().begin(), range->bytes().end(), static_cast<std::byte>(c));
}

struct Reading {
  std::string out;
  int calls = 0;
  bool ok = false;
  Code code = Code::kOk;
  bool found;
  Reading(RangesAhead* ranges, const ObjectId& object, uint64_t offset, size_t length,
          const Context& ctx = {})
      : out(length, '?') {
    RangesAhead::ReadDone done = [this](const Status& status) {
      ++calls;
      ok = status.ok();
      code = status.code();
    };
    found = ranges->Read(object, offset, std::as_writable_bytes(std::span(out)), ctx, done) !=
            RangesAhead::Found::kNone;
  }
};

TEST(RangesAhead, AReaderGetsWhatIsHereAndWaitsForWhatIsComing) {
  RangesAhead ranges(1000);
  auto range = ranges.Begin(kA, 100, 50);
  ASSERT_TRUE(range);
  Reading early(&ranges, kA, 110, 20);
  EXPECT_TRUE(early.found);
  EXPECT_EQ(early.calls, 0);
  Fill(range, 'x');
  ranges.End(range, true);
  EXPECT_EQ(early.calls, 1);
  EXPECT_TRUE(early.ok);
  EXPECT_EQ(early.out, std::string(20, 'x'));
  Reading late(&ranges, kA, 130, 20);
  EXPECT_TRUE(late.ok);
  EXPECT_EQ(late.out, std::string(20, 'x'));
}

TEST(RangesAhead, OnlyARangeThatCoversServes) {
  RangesAhead ranges(1000);
  ranges.End(ranges.Begin(kA, 100, 50), true);
  EXPECT_FALSE(Reading(&ranges, kA, 99, 10).found);
  EXPECT_FALSE(Reading(&ranges, kA, 141, 10).found);
  EXPECT_FALSE(Reading(&ranges, kA, 150, 1).found);
  EXPECT_FALSE(Reading(&ranges, kB, 100, 10).found);
  EXPECT_TRUE(Reading(&ranges, kA, 140, 10).found);
  EXPECT_FALSE(ranges.Begin(kA, 110, 10));  // covered
  EXPECT_FALSE(ranges.Begin(kA, 100, 60));  // another one begins there
}

TEST(RangesAhead, WhatWasReadWholeIsGone) {
  RangesAhead ranges(1000);
  ranges.End(ranges.Begin(kA, 0, 30), true);
  EXPECT_TRUE(Reading(&ranges, kA, 0, 20).ok);
  EXPECT_TRUE(Reading(&ranges, kA, 20, 10).ok);
  EXPECT_FALSE(Reading(&ranges, kA, 0, 10).found);
  EXPECT_EQ(ranges.bytes(), 0u);
}

TEST(RangesAhead, AFailureIsToldAndForgotten) {
  RangesAhead ranges(1000);
  auto range = ranges.Begin(kA, 0, 30);
  Reading waiting(&ranges, kA, 0, 10);
  ranges.End(range, false);
  EXPECT_EQ(waiting.calls, 1);
  EXPECT_EQ(waiting.code, Code::kNotFound);
  EXPECT_FALSE(Reading(&ranges, kA, 0, 10).found);
  EXPECT_TRUE(ranges.Begin(kA, 0, 30));
}

TEST(RangesAhead, WhoWaitsMayLeave) {
  RangesAhead ranges(1000);
  auto range = ranges.Begin(kA, 0, 30);
  std::atomic<bool> cancelled{false};
  Context ctx;
  ctx.cancelled = &cancelled;
  Reading leaving(&ranges, kA, 0, 10, ctx), staying(&ranges, kA, 10, 10);
  ranges.EndExpired();
  EXPECT_EQ(leaving.calls + staying.calls, 0);
  cancelled = true;
  ranges.EndExpired();
  EXPECT_EQ(leaving.calls, 1);
  EXPECT_EQ(leaving.code, Code::kCancelled);
  EXPECT_EQ(ranges.num_waiters(), 1u);
  Fill(range, 'x');
  ranges.End(range, true);
  EXPECT_EQ(leaving.calls, 1);
  EXPECT_EQ(leaving.out, std::string(10, '?'));
  EXPECT_TRUE(staying.ok);
}

TEST(RangesAhead, HoldsNoMoreThanItsLimit) {
  RangesAhead ranges(100);
  EXPECT_FALSE(ranges.Begin(kA, 0, 101));
  EXPECT_FALSE(ranges.Begin(kA, 0, 0));
  auto first = ranges.Begin(kA, 0, 60), second = ranges.Begin(kA, 60, 40);
  ASSERT_TRUE(first && second);
  EXPECT_FALSE(ranges.Begin(kB, 0, 1));
  ranges.End(first, true);
  ranges.End(second, true);
  EXPECT_FALSE(ranges.Begin(kB, 0, 1));  // both may still be read
  EXPECT_TRUE(Reading(&ranges, kA, 0, 1).ok);
  EXPECT_TRUE(ranges.Begin(kB, 0, 50));  // in place of what was read in part
  EXPECT_EQ(ranges.bytes(), 90u);
}

}  // namespace
}  // namespace headrace::cache
