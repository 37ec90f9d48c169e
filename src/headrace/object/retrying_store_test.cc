// When requests are tried again, how long that waits, and what becomes of writes whose answers were
// lost. The clock is the test's own.
#include "headrace/object/retrying_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headrace/base/mutex.h"
#include "headrace/object/counted_store.h"
#include "headrace/object/testing/faulty_store.h"
#include "headrace/object/testing/memory_store.h"

namespace headrace::object {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class RetryingStoreTest : public ::testing::Test {
 protected:
  RetryingStoreTest() {
    options_.first_pause = milliseconds(100);
    options_.longest_pause = milliseconds(1000);
    options_.budget = seconds(10);
    options_.num_retries = &retries_;
    options_.now = [this] { return now_; };
    options_.random = [this] { return random_; };
    options_.pause = [this](std::chrono::nanoseconds pause, const Context& ctx) {
      pauses_.push_back(std::chrono::duration_cast<milliseconds>(pause).count());
      now_ += pause;
      return ctx.Check();
    };
    options_.run_after = [this](std::chrono::nanoseconds pause, const std::function<void()>& run) {
      pauses_.push_back(std::chrono::duration_cast<milliseconds>(pause).count());
      now_ += pause;
      run();
    };
  }

  std::shared_ptr<ObjectStore> Store() { return MakeRetryingStore(faulty_, options_); }
  void Put(const std::string& key, const std::string& content) {
    ASSERT_TRUE(memory_->Put(key, AsBytes(content), {}, Context()).ok());
  }
  static Result<std::string> Read(ObjectStore& store, const std::string& key, size_t bytes,
                                  uint64_t offset = 0) {
    std::string out(bytes, '?');
    auto got = store.Get({.key = key,
                          .offset = offset,
                          .out = std::as_writable_bytes(std::span(out)),
                          .if_match = {}},
                         Context());
    if (!got.ok()) return std::move(got).status();
    return out;
  }
  std::string Content(const std::string& key) {
    auto read = Read(*memory_, key, memory_->Head(key, Context())->size_bytes);
    EXPECT_TRUE(read.ok()) << read.status().ToString();
    return read.ok() ? *read : "";
  }
  // Waits for hours, in real time.
  std::shared_ptr<ObjectStore> PatientStore() {
    RetryOptions real;
    real.first_pause = real.longest_pause = std::chrono::hours(10);
    real.budget = std::chrono::hours(100);
    real.random = [] { return 0.9; };
    return MakeRetryingStore(faulty_, real);
  }

  const Status busy_ = Error(Code::kUnavailable, "503 slow down");
  std::shared_ptr<ObjectStore> memory_ = MakeMemoryStore();
  std::shared_ptr<FaultyStore> faulty_ = std::make_shared<FaultyStore>(memory_);
  Context::Clock::time_point now_ = Context::Clock::now();
  double random_ = 0.5;
  std::vector<int64_t> pauses_;
  std::atomic<uint64_t> retries_{0};
  RetryOptions options_;
};

TEST_F(RetryingStoreTest, WaitsLongerEachTimeUpToTheLongest) {
  Put("key", "x");
  faulty_->FailNth(StoreOperation::kHead, 1, busy_, 6);
  EXPECT_TRUE(Store()->Head("key", Context()).ok());
  EXPECT_THAT(pauses_, ElementsAre(50, 100, 200, 400, 500, 500));
  EXPECT_EQ(retries_, 6u);
  EXPECT_EQ(faulty_->count(StoreOperation::kHead), 7u);
}

TEST_F(RetryingStoreTest, TheWaitingTimeIsDrawn) {
  faulty_->FailNth(StoreOperation::kHead, 1, busy_, 3);
  random_ = 0;
  EXPECT_EQ(Store()->Head("key", Context()).status().code(), Code::kNotFound);
  EXPECT_THAT(pauses_, ElementsAre(0, 0, 0));
}

TEST_F(RetryingStoreTest, GivesUpWhenTheBudgetIsUsed) {
  faulty_->FailNth(StoreOperation::kList, 1, busy_, 1'000'000);
  Status failed = Store()->List({}, Context()).status();
  EXPECT_EQ(failed.code(), Code::kUnavailable);
  EXPECT_THAT(failed.ToString(), HasSubstr("503 slow down (tried "));
  int64_t waited = 0;
  for (int64_t pause : pauses_) waited += pause;
  EXPECT_LT(waited, 10'000);
  EXPECT_GT(waited, 9'000);
}

TEST_F(RetryingStoreTest, GivesUpBeforeTheDeadlinePasses) {
  faulty_->FailNth(StoreOperation::kHead, 1, busy_, 1'000'000);
  Context ctx;
  ctx.deadline = now_ + milliseconds(3600'000);
  now_ = ctx.deadline - milliseconds(400);
  Status failed = Store()->Head("key", ctx).status();
  EXPECT_EQ(failed.code(), Code::kDeadlineExceeded);
  EXPECT_THAT(failed.ToString(), HasSubstr("503 slow down"));
  EXPECT_THAT(pauses_, ElementsAre(50, 100, 200));
}

TEST_F(RetryingStoreTest, StaysAwayAsLongAsItIsAskedTo) {
  Put("key", "x");
  faulty_->FailNth(StoreOperation::kHead, 1, Status(busy_).RetryAfter(seconds(3)), 2);
  EXPECT_TRUE(Store()->Head("key", Context()).ok());
  EXPECT_THAT(pauses_, ElementsAre(3050, 3100));
  pauses_.clear();
  faulty_->FailNth(StoreOperation::kGet, 1, Status(busy_).RetryAfter(seconds(2)));
  EXPECT_TRUE(Read(*Store(), "key", 1).ok());
  EXPECT_THAT(pauses_, ElementsAre(2050)) << "reads too";
}

TEST_F(RetryingStoreTest, AWaitBeyondTheBudgetIsCutToIt) {
  Put("key", "x");
  faulty_->FailNth(StoreOperation::kHead, 1, Status(busy_).RetryAfter(std::chrono::hours(1)), 1);
  EXPECT_TRUE(Store()->Head("key", Context()).ok());
  EXPECT_THAT(pauses_, ElementsAre(10'000));
  pauses_.clear();
  faulty_->FailNth(StoreOperation::kHead, 1, Status(busy_).RetryAfter(std::chrono::hours(1)), 9);
  EXPECT_EQ(Store()->Head("key", Context()).status().code(), Code::kUnavailable);
  EXPECT_THAT(pauses_, ElementsAre(10'000)) << "one last try";
}

TEST_F(RetryingStoreTest, AWaitBeyondTheDeadlineEndsTheCall) {
  faulty_->FailNth(StoreOperation::kHead, 1, Status(busy_).RetryAfter(seconds(5)), 9);
  Context ctx;
  ctx.deadline = now_ + seconds(3600);
  now_ = ctx.deadline - seconds(4);
  EXPECT_EQ(Store()->Head("key", ctx).status().code(), Code::kDeadlineExceeded);
  EXPECT_THAT(pauses_, IsEmpty());
}

TEST_F(RetryingStoreTest, NothingElseIsTriedAgain) {
  for (Code code : {Code::kNotFound, Code::kPermissionDenied, Code::kDataLoss, Code::kIoError,
                    Code::kFailedPrecondition, Code::kCancelled, Code::kDeadlineExceeded}) {
    faulty_->FailNth(StoreOperation::kHead, 1, Error(code, "as it is"));
    EXPECT_EQ(Store()->Head("key", Context()).status().code(), code);
  }
  EXPECT_THAT(pauses_, IsEmpty());
}

TEST_F(RetryingStoreTest, ACancelledCallEnds) {
  faulty_->FailNth(StoreOperation::kHead, 1, busy_, 100);
  std::atomic<bool> cancelled{false};
  Context ctx;
  ctx.cancelled = &cancelled;
  options_.pause = [&](std::chrono::nanoseconds, const Context& c) {
    cancelled = true;
    return c.Check();
  };
  EXPECT_EQ(Store()->Head("key", ctx).status().code(), Code::kCancelled);
  EXPECT_EQ(faulty_->count(StoreOperation::kHead), 1u);
}

TEST_F(RetryingStoreTest, ReadsAreTriedAgainEachForItself) {
  Put("key", "0123456789");
  faulty_->FailNth(StoreOperation::kGet, 2, busy_, 2);
  auto store = Store();
  std::string a(2, '?'), b(3, '?'), c(1, '?');
  std::vector<Code> codes(3, Code::kInternal);
  Mutex mu;
  CondVar all;
  int left = 3;
  std::vector<ObjectStore::GetDone> dones;
  for (size_t i = 0; i < 3; ++i) {
    dones.emplace_back([&, i](const Result<ObjectInfo>& result) {
      MutexLock lock(&mu);
      codes[i] = result.status().code();
      if (--left == 0) all.NotifyOne();
    });
  }
  auto bytes = [](std::string* text) { return std::as_writable_bytes(std::span(*text)); };
  store->SubmitGets({{.key = "key", .offset = 0, .out = bytes(&a), .if_match = {}},
                     {.key = "key", .offset = 5, .out = bytes(&b), .if_match = {}},
                     {.key = "none", .offset = 0, .out = bytes(&c), .if_match = {}}},
                    std::move(dones), Context());
  MutexLock lock(&mu);
  while (left > 0) all.Wait(&mu);
  EXPECT_THAT(codes, ElementsAre(Code::kOk, Code::kOk, Code::kNotFound));
  EXPECT_EQ(a, "01");
  EXPECT_EQ(b, "567");
  EXPECT_EQ(retries_, 2u);
}

TEST_F(RetryingStoreTest, ReadsGiveUpToo) {
  Put("key", "x");
  faulty_->FailNth(StoreOperation::kGet, 1, busy_, 1'000'000);
  Status failed = Read(*Store(), "key", 1).status();
  EXPECT_EQ(failed.code(), Code::kUnavailable);
  EXPECT_THAT(failed.ToString(), HasSubstr("(tried "));
}

TEST_F(RetryingStoreTest, ClosingEndsReadsThatWait) {
  Put("key", "x");
  faulty_->FailNth(StoreOperation::kGet, 1, busy_, 1'000'000);
  auto store = PatientStore();
  std::string out(1, '?');
  Code code = Code::kOk;
  store->SubmitGets(
      {{.key = "key", .offset = 0, .out = std::as_writable_bytes(std::span(out)), .if_match = {}}},
      {[&](const Result<ObjectInfo>& result) { code = result.status().code(); }}, Context());
  store.reset();
  EXPECT_EQ(code, Code::kCancelled);
}

TEST_F(RetryingStoreTest, ACancelledReadDoesNotWaitForItsTime) {
  Put("key", "x");
  faulty_->FailNth(StoreOperation::kGet, 1, busy_, 1'000'000);
  auto store = PatientStore();
  std::atomic<bool> cancelled{false};
  Context ctx;
  ctx.cancelled = &cancelled;
  Mutex mu;
  CondVar answered;
  Code code = Code::kOk;
  std::string out(1, '?');
  store->SubmitGets(
      {{.key = "key", .offset = 0, .out = std::as_writable_bytes(std::span(out)), .if_match = {}}},
      {[&](const Result<ObjectInfo>& result) {
        MutexLock lock(&mu);
        code = result.status().code();
        answered.NotifyOne();
      }},
      ctx);
  cancelled = true;
  MutexLock lock(&mu);
  while (code == Code::kOk) answered.Wait(&mu);
  EXPECT_EQ(code, Code::kCancelled);
}

const PutOptions kAbsent{.if_absent = true, .if_match = {}};

TEST_F(RetryingStoreTest, ALostPutIfAbsentIsRecognized) {
  faulty_->LoseNth(StoreOperation::kPut, 1, busy_);
  auto etag = Store()->Put("key", AsBytes("mine"), kAbsent, Context());
  ASSERT_TRUE(etag.ok()) << etag.status().ToString();
  EXPECT_EQ(*etag, memory_->Head("key", Context())->etag);
}

TEST_F(RetryingStoreTest, AnotherWritersObjectIsNotTakenForOnesOwn) {
  for (const char* theirs : {"other", "more than mine"}) {
    Put("key", theirs);
    faulty_->FailNth(StoreOperation::kPut, 1, busy_);
    EXPECT_EQ(Store()->Put("key", AsBytes("mine!"), kAbsent, Context()).status().code(),
              Code::kAlreadyExists);
    EXPECT_EQ(Content("key"), theirs);
  }
}

// Where another writer was faster with the very same bytes.
TEST_F(RetryingStoreTest, OfTwoWritersOfTheSameBytesOneSucceeds) {
  PutOptions theirs{.if_absent = true, .if_match = {}, .mark = "theirs"}, mine = kAbsent;
  for (const char* bytes : {"first", "second"}) {
    faulty_->RunBeforeNth(StoreOperation::kPut, 1, [&] {
      EXPECT_TRUE(memory_->Put("key", AsBytes(bytes), theirs, Context()).ok());
    });
    faulty_->FailNth(StoreOperation::kPut, 1, busy_);
    Code refused = mine.if_absent ? Code::kAlreadyExists : Code::kFailedPrecondition;
    EXPECT_EQ(Store()->Put("key", AsBytes(bytes), mine, Context()).status().code(), refused);
    EXPECT_EQ(memory_->Head("key", Context())->mark, "theirs");
    theirs.if_absent = mine.if_absent = false;
    theirs.if_match = mine.if_match = memory_->Head("key", Context())->etag;
  }
}

TEST_F(RetryingStoreTest, AStoreWithoutMarksIsAskedForTheBytes) {
  MemoryStoreOptions options;
  options.abilities.put_mark = false;
  memory_ = MakeMemoryStore(options);
  faulty_ = std::make_shared<FaultyStore>(memory_);
  faulty_->LoseNth(StoreOperation::kPut, 1, busy_);
  EXPECT_TRUE(Store()->Put("key", AsBytes("mine"), kAbsent, Context()).ok());
  faulty_->FailNth(StoreOperation::kPut, 1, busy_);
  EXPECT_EQ(Store()->Put("key", AsBytes("other"), kAbsent, Context()).status().code(),
            Code::kAlreadyExists);
}

TEST_F(RetryingStoreTest, TheFirstAnswerOfAPutIsBelieved) {
  Put("key", "mine");
  EXPECT_EQ(Store()->Put("key", AsBytes("mine"), kAbsent, Context()).status().code(),
            Code::kAlreadyExists);
  EXPECT_EQ(faulty_->count(StoreOperation::kHead), 0u);
}

TEST_F(RetryingStoreTest, ALostPutIfMatchIsRecognized) {
  Put("key", "old");
  PutOptions match{.if_absent = false, .if_match = memory_->Head("key", Context())->etag};
  faulty_->LoseNth(StoreOperation::kPut, 1, busy_);
  auto etag = Store()->Put("key", AsBytes("new"), match, Context());
  ASSERT_TRUE(etag.ok()) << etag.status().ToString();
  EXPECT_EQ(*etag, memory_->Head("key", Context())->etag);
  // And one that another writer forestalled is refused.
  faulty_->RunBeforeNth(StoreOperation::kPut, 1, [&] { Put("key", "theirs"); });
  faulty_->FailNth(StoreOperation::kPut, 1, busy_);
  match.if_match = *etag;
  EXPECT_EQ(Store()->Put("key", AsBytes("mine"), match, Context()).status().code(),
            Code::kFailedPrecondition);
  EXPECT_EQ(Content("key"), "theirs");
}

TEST_F(RetryingStoreTest, SettlingIsTriedAgainToo) {
  faulty_->LoseNth(StoreOperation::kPut, 1, busy_);
  faulty_->FailNth(StoreOperation::kHead, 1, busy_, 2);
  faulty_->FailNth(StoreOperation::kGet, 1, busy_, 2);
  EXPECT_TRUE(Store()->Put("key", AsBytes("mine"), kAbsent, Context()).ok());
}

TEST_F(RetryingStoreTest, ALostEndOfAnUploadIsRecognized) {
  faulty_->LoseNth(StoreOperation::kComplete, 1, busy_);
  auto upload = Store()->StartUpload("key", Context());
  ASSERT_TRUE(upload.ok());
  EXPECT_TRUE((*upload)->PutPart(2, AsBytes("two"), Context()).ok());
  EXPECT_TRUE((*upload)->PutPart(1, AsBytes("one"), Context()).ok());
  auto etag = (*upload)->Complete(2, Context());
  ASSERT_TRUE(etag.ok()) << etag.status().ToString();
  EXPECT_EQ(Content("key"), "onetwo");
}

TEST_F(RetryingStoreTest, AnUploadSweptMeanwhileIsNotTakenForDone) {
  Put("key", "twoone");  // as long as the upload's
  auto store = Store();
  auto upload = store->StartUpload("key", Context());
  ASSERT_TRUE(upload.ok());
  EXPECT_TRUE((*upload)->PutPart(1, AsBytes("onetwo"), Context()).ok());
  faulty_->FailNth(StoreOperation::kComplete, 1, busy_);
  auto pending = memory_->ListUploads("", Context());
  ASSERT_EQ(pending->size(), 1u);
  ASSERT_TRUE(memory_->AbortUpload(pending->front(), Context()).ok());
  EXPECT_EQ((*upload)->Complete(1, Context()).status().code(), Code::kFailedPrecondition);
}

TEST_F(RetryingStoreTest, CountsAllTries) {
  auto counters = std::make_shared<StoreCounters>();
  options_.num_retries = &counters->retries;
  options_.back_off_ns = &counters->back_off_ns;
  auto store = MakeRetryingStore(MakeCountedStore(faulty_, counters), options_);
  faulty_->FailNth(StoreOperation::kPut, 1, busy_, 2);
  ASSERT_TRUE(store->Put("key", AsBytes("12345"), {}, Context()).ok());
  ASSERT_TRUE(Read(*store, "key", 4, 1).ok());
  ASSERT_TRUE(store->Head("key", Context()).ok());
  ASSERT_TRUE(store->List({}, Context()).ok());
  EXPECT_EQ(counters->writes, 3u);
  EXPECT_EQ(counters->failures, 2u);
  EXPECT_EQ(counters->retries, 2u);
  ASSERT_EQ(pauses_.size(), 2u);
  EXPECT_EQ(counters->back_off_ns / 1'000'000, static_cast<uint64_t>(pauses_[0] + pauses_[1]));
  EXPECT_GT(counters->back_off_ns, 0u);
  EXPECT_EQ(counters->bytes_written, 5u);
  EXPECT_EQ(counters->gets, 1u);
  EXPECT_EQ(counters->bytes_read, 4u);
  EXPECT_EQ(counters->heads, 1u);
  EXPECT_EQ(counters->lists, 1u);
  EXPECT_GT(counters->busy_ns, 0u);
  EXPECT_EQ(counters->throttled, 0u);
}

TEST_F(RetryingStoreTest, RefusalsForTooManyRequestsAreCountedApart) {
  Put("key", "12345");
  auto counters = std::make_shared<StoreCounters>();
  auto store = MakeRetryingStore(MakeCountedStore(faulty_, counters), options_);
  const Status slow_down = Status(busy_).Throttled();
  faulty_->FailNth(StoreOperation::kHead, 1, slow_down, 2);
  faulty_->FailNth(StoreOperation::kHead, 3, busy_, 1);
  faulty_->FailNth(StoreOperation::kGet, 1, slow_down, 1);
  faulty_->FailNth(StoreOperation::kList, 1, slow_down, 1);
  ASSERT_TRUE(store->Head("key", Context()).ok());
  ASSERT_TRUE(Read(*store, "key", 4, 1).ok());
  ASSERT_TRUE(store->List({}, Context()).ok());
  EXPECT_EQ(counters->failures, 5u);
  EXPECT_EQ(counters->throttled, 4u);
}

}  // namespace
}  // namespace headrace::object
