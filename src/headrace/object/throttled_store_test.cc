#include "headrace/object/throttled_store.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>

#include "headrace/object/testing/memory_store.h"

namespace headrace::object {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;
using TimePoint = ByteRate::TimePoint;

TEST(ByteRate, GivesTurnsInTheOrderOfAskingAtTheRate) {
  ByteRate rate(1000);
  const TimePoint begin = TimePoint() + hours(1);
  EXPECT_LE(rate.Take(1250, begin), begin);  // a quarter of a second of it is credit
  EXPECT_EQ(rate.Take(500, begin), begin + seconds(1));
  EXPECT_EQ(rate.Take(2000, begin + milliseconds(10)), begin + milliseconds(1500));
  EXPECT_EQ(rate.Take(0, begin + milliseconds(20)), begin + milliseconds(3500));
  EXPECT_EQ(rate.Take(1, begin + milliseconds(20)), begin + milliseconds(3500));
}

TEST(ByteRate, WhatIsNotUsedIsKeptForAMomentOnly) {
  ByteRate rate(1000);
  const TimePoint begin = TimePoint() + hours(1), later = begin + hours(100);
  (void)rate.Take(1000, begin);
  EXPECT_LE(rate.Take(250, later), later);
  EXPECT_EQ(rate.Take(1000, later), later);
  EXPECT_EQ(rate.Take(1, later), later + seconds(1));
}

TEST(ByteRate, WhatIsGivenBackIsThereForTheNext) {
  ByteRate rate(1000);
  const TimePoint begin = TimePoint() + hours(1);
  (void)rate.Take(1250, begin);
  EXPECT_EQ(rate.Take(60'000, begin), begin + seconds(1));
  rate.GiveBack(60'000);
  EXPECT_EQ(rate.Take(1, begin), begin + seconds(1));
}

TEST(ByteRate, TinyRatesAndHugeRequestsEndSomeDay) {
  ByteRate rate(0);
  const TimePoint now = TimePoint() + hours(1);
  for (int i = 0; i < 1000; ++i) EXPECT_LT(rate.Take(UINT64_MAX, now), TimePoint::max());
  EXPECT_GT(rate.Take(1, now), now);
}

class ThrottledStoreTest : public ::testing::Test {
 protected:
  // So slow that what waits for its turn waits longer than any test.
  static constexpr uint64_t kCrawl = 1;

  ThrottledStoreTest() { EXPECT_TRUE(memory_->Put("a", AsBytes(content_), {}, {}).ok()); }
  std::shared_ptr<ObjectStore> Open(uint64_t bytes_per_s) {
    return MakeThrottledStore(memory_, std::make_shared<ByteRate>(bytes_per_s));
  }
  GetRequest Whole(std::string* out) const {
    out->assign(content_.size(), '\0');
    return {
        .key = "a", .offset = 0, .out = std::as_writable_bytes(std::span(*out)), .if_match = ""};
  }
  // Reads whose turn comes when the first one's bytes have had their time.
  std::future<Status> Submit(ObjectStore* store, std::string* out, const Context& ctx) {
    auto ended = std::make_shared<std::promise<Status>>();
    store->SubmitGets({Whole(out)},
                      {[ended](const Result<ObjectInfo>& got) { ended->set_value(got.status()); }},
                      ctx);
    return ended->get_future();
  }

  const std::string content_ = std::string(10'000, 'x');
  std::shared_ptr<ObjectStore> memory_ = MakeMemoryStore();
};

TEST_F(ThrottledStoreTest, AllComesInTheEnd) {
  auto store = Open(1'000'000);
  std::vector<std::string> outs(30);
  std::vector<std::future<Status>> ends;
  for (std::string& out : outs) ends.push_back(Submit(store.get(), &out, {}));
  for (auto& end : ends) EXPECT_TRUE(end.get().ok());
  for (const std::string& out : outs) EXPECT_EQ(out, content_);
  EXPECT_TRUE(store->Put("b", AsBytes(content_), {}, {}).ok());
  EXPECT_EQ(store->Head("b", {})->size_bytes, content_.size());
}

TEST_F(ThrottledStoreTest, WhatWaitsEndsWithItsContext) {
  auto store = Open(kCrawl);
  std::string first, second, third;
  EXPECT_TRUE(Submit(store.get(), &first, {}).get().ok());
  std::atomic<bool> cancelled{false};
  Context ctx, hurried;
  ctx.cancelled = &cancelled;
  hurried.deadline = Context::Clock::now() + milliseconds(20);
  auto one = Submit(store.get(), &second, ctx), other = Submit(store.get(), &third, hurried);
  EXPECT_EQ(other.get().code(), Code::kDeadlineExceeded);
  cancelled = true;
  EXPECT_EQ(one.get().code(), Code::kCancelled);
  EXPECT_EQ(store->Put("b", AsBytes("x"), {}, ctx).status().code(), Code::kCancelled);
  auto upload = store->StartUpload("b", {});
  ASSERT_TRUE(upload.ok());
  EXPECT_EQ((*upload)->PutPart(1, AsBytes("x"), ctx).code(), Code::kCancelled);
  EXPECT_TRUE(store->Head("a", {}).ok()) << "what has no bytes does not wait";
}

TEST_F(ThrottledStoreTest, WhatIsGivenUpLeavesNothingBooked) {
  auto rate = std::make_shared<ByteRate>(kCrawl);
  auto store = MakeThrottledStore(memory_, rate);
  std::string first, second;
  EXPECT_TRUE(Submit(store.get(), &first, {}).get().ok());
  const TimePoint before = rate->Take(0, Context::Clock::now());
  Context hurried;
  hurried.deadline = Context::Clock::now() + milliseconds(20);
  EXPECT_EQ(Submit(store.get(), &second, hurried).get().code(), Code::kDeadlineExceeded);
  EXPECT_FALSE(store->Put("b", AsBytes(content_), {}, hurried).ok());
  EXPECT_EQ(rate->Take(0, Context::Clock::now()), before);
}

TEST_F(ThrottledStoreTest, ClosingEndsWhatWaits) {
  auto store = Open(kCrawl);
  std::string first, second;
  EXPECT_TRUE(Submit(store.get(), &first, {}).get().ok());
  auto waits = Submit(store.get(), &second, {});
  store.reset();
  EXPECT_EQ(waits.get().code(), Code::kCancelled);
}

TEST_F(ThrottledStoreTest, StoresShareTheirRate) {
  auto rate = std::make_shared<ByteRate>(kCrawl);
  auto one = MakeThrottledStore(memory_, rate), other = MakeThrottledStore(memory_, rate);
  std::string first, second;
  EXPECT_TRUE(Submit(one.get(), &first, {}).get().ok());
  Context hurried;
  hurried.deadline = Context::Clock::now() + milliseconds(20);
  EXPECT_EQ(Submit(other.get(), &second, hurried).get().code(), Code::kDeadlineExceeded);
}

}  // namespace
}  // namespace headrace::object
