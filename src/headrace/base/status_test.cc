#include "headrace/base/status.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <set>
#include <type_traits>

#include "headrace/base/context.h"

namespace headrace {
namespace {

constexpr int kNumCodes = 15;

TEST(Status, OkHasNoParts) {
  Status status;
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(status.code(), Code::kOk);
  EXPECT_EQ(status.message(), "");
  EXPECT_EQ(status.ToString(), "ok");
  EXPECT_FALSE(status.location().offset);
  EXPECT_TRUE(Status(Code::kOk, "ignored").ok());
}

TEST(Status, OkStaysOkUnderContext) {
  Status status = OkStatus();
  status = std::move(status).Prefix("reading").At({"f", 1, "k", "jpg"});
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(status.location().file, "");
}

TEST(Status, PrefixesClimb) {
  Status status = Error(Code::kDataLoss, "bad {} at {}", "sum", 7);
  status = std::move(status).Prefix("inner").Prefix("outer");
  EXPECT_EQ(status.message(), "outer: inner: bad sum at 7");
  EXPECT_EQ(status.ToString(), "data loss: outer: inner: bad sum at 7");
}

TEST(Status, TheInnermostLocationWins) {
  Status status = Error(Code::kDataLoss, "bad");
  status = std::move(status).At({"inner.tar", 512, "", ""}).At({"outer", 0, "a\nb", "jpg"});
  EXPECT_EQ(status.location().file, "inner.tar");
  EXPECT_EQ(status.location().offset, 512u);
  EXPECT_EQ(status.ToString(),
            "data loss: bad [file: inner.tar, offset: 512, key: a\\nb, field: jpg]");
}

TEST(Status, AnOffsetOfZeroIsShown) {
  EXPECT_EQ(Error(Code::kDataLoss, "bad").At({"", 0, "", ""}).ToString(),
            "data loss: bad [offset: 0]");
}

TEST(Status, CopiesAreIndependent) {
  Status one = Error(Code::kNotFound, "a");
  Status two = one;
  one = std::move(one).Prefix("p");
  EXPECT_EQ(two.message(), "a");
  two = one;
  EXPECT_EQ(two.message(), "p: a");
  Status& same = two;
  two = same;
  EXPECT_EQ(two.message(), "p: a");
  two = OkStatus();
  EXPECT_TRUE(two.ok());
  EXPECT_EQ(one.message(), "p: a");
}

TEST(Code, EveryCodeHasItsOwnNameAndAnErrno) {
  std::set<std::string_view> names;
  for (int i = 0; i < kNumCodes; ++i) {
    auto code = static_cast<Code>(i);
    names.insert(CodeName(code));
    EXPECT_EQ(CodeToErrno(code) == 0, code == Code::kOk) << CodeName(code);
  }
  EXPECT_EQ(names.size(), static_cast<size_t>(kNumCodes));
  // The table is read by index, so its first and last rows and one between stand for its order.
  EXPECT_EQ(CodeName(Code::kOk), "ok");
  EXPECT_EQ(CodeName(Code::kFailedPrecondition), "failed precondition");
  EXPECT_EQ(CodeName(Code::kIoError), "I/O error");
}

TEST(Code, ErrnosMapToTheCodeThatAPersonExpects) {
  EXPECT_EQ(CodeFromErrno(0), Code::kOk);
  EXPECT_EQ(CodeFromErrno(ENOENT), Code::kNotFound);
  EXPECT_EQ(CodeFromErrno(ENOTDIR), Code::kNotFound);
  EXPECT_EQ(CodeFromErrno(EEXIST), Code::kAlreadyExists);
  EXPECT_EQ(CodeFromErrno(EROFS), Code::kPermissionDenied);
  EXPECT_EQ(CodeFromErrno(ENOSPC), Code::kResourceExhausted);
  EXPECT_EQ(CodeFromErrno(EMFILE), Code::kResourceExhausted);
  EXPECT_EQ(CodeFromErrno(EISDIR), Code::kInvalidArgument);
  EXPECT_EQ(CodeFromErrno(EBUSY), Code::kFailedPrecondition);
  EXPECT_EQ(CodeFromErrno(EAGAIN), Code::kUnavailable);
  EXPECT_EQ(CodeFromErrno(ESTALE), Code::kUnavailable);
  EXPECT_EQ(CodeFromErrno(ENOSYS), Code::kUnimplemented);
  EXPECT_EQ(CodeFromErrno(EIO), Code::kIoError);
  EXPECT_EQ(CodeFromErrno(12345), Code::kIoError);
}

TEST(Code, AnErrnoErrorSaysWhatAndWhy) {
  Status status = ErrnoError(ENOENT, "cannot open /x");
  EXPECT_EQ(status.code(), Code::kNotFound);
  EXPECT_EQ(status.message(), "cannot open /x: No such file or directory");
}

Result<int> Half(int n) {
  if (n % 2 != 0) return Error(Code::kInvalidArgument, "{} is odd", n);
  return n / 2;
}
Status CheckQuarter(int n, int* out) {
  HR_ASSIGN_OR_RETURN(int half, Half(n));
  HR_ASSIGN_OR_RETURN(*out, Half(half));
  return OkStatus();
}
Status CheckBoth(int a, int b) {
  int ignored;
  HR_RETURN_IF_ERROR(CheckQuarter(a, &ignored));
  HR_RETURN_IF_ERROR(CheckQuarter(b, &ignored));
  return OkStatus();
}

TEST(Result, MacrosPassErrorsOn) {
  int out = 0;
  EXPECT_TRUE(CheckQuarter(12, &out).ok());
  EXPECT_EQ(out, 3);
  EXPECT_EQ(CheckQuarter(6, &out).message(), "3 is odd");
  EXPECT_EQ(CheckQuarter(5, &out).message(), "5 is odd");
  EXPECT_TRUE(CheckBoth(4, 8).ok());
  EXPECT_EQ(CheckBoth(4, 6).message(), "3 is odd");
}

struct Base {
  virtual ~Base() = default;
};
struct Derived : Base {};

TEST(Result, HoldsWhatConvertsAndWhatOnlyMoves) {
  auto make = []() -> Result<std::unique_ptr<Base>> { return std::make_unique<Derived>(); };
  Result<std::unique_ptr<Base>> base = make();
  ASSERT_TRUE(base.ok());
  std::unique_ptr<Base> taken = std::move(base).value();
  EXPECT_NE(dynamic_cast<Derived*>(taken.get()), nullptr);
  Result<std::string> text = "literal";
  EXPECT_EQ(text->size(), 7u);
  text = Error(Code::kNotFound, "gone");
  EXPECT_FALSE(text.ok());
  EXPECT_EQ(text.status().code(), Code::kNotFound);
}

TEST(Context, ChecksCancelAndDeadline) {
  std::atomic<bool> cancelled{false};
  Context ctx;
  ctx.cancelled = &cancelled;
  EXPECT_TRUE(ctx.Check().ok());
  cancelled = true;
  EXPECT_EQ(ctx.Check().code(), Code::kCancelled);
  ctx.cancelled = nullptr;
  ctx.deadline = Context::Clock::now() + std::chrono::hours(1);
  EXPECT_TRUE(ctx.Check().ok());
  ctx.deadline = Context::Clock::now() - std::chrono::nanoseconds(1);
  EXPECT_EQ(ctx.Check().code(), Code::kDeadlineExceeded);
}

TEST(Status, CarriesTheWaitThatIsAskedFor) {
  Status status = Error(Code::kUnavailable, "busy").RetryAfter(std::chrono::seconds(3));
  EXPECT_EQ(status.retry_after(), std::chrono::seconds(3));
  Status copy =
      Status(status).Prefix("s3://b").At({.file = "f", .offset = {}, .key = {}, .field = {}});
  EXPECT_EQ(copy.retry_after(), std::chrono::seconds(3));
  EXPECT_EQ(Error(Code::kUnavailable, "busy").retry_after(), std::nullopt);
  EXPECT_EQ(Status(OkStatus()).RetryAfter(std::chrono::seconds(3)).retry_after(), std::nullopt);
}

TEST(Status, CarriesThatTooMuchWasAsked) {
  const Status status = Error(Code::kUnavailable, "busy").Throttled().Prefix("reading");
  EXPECT_TRUE(status.throttled());
  EXPECT_TRUE(Status(status).throttled());
  EXPECT_FALSE(Error(Code::kUnavailable, "busy").throttled());
  EXPECT_FALSE(Status(OkStatus()).Throttled().throttled());
}

}  // namespace
}  // namespace headrace
