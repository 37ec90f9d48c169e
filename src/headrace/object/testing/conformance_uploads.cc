// Large objects written in parts.
#include <algorithm>
#include <memory>
#include <utility>

#include "headrace/object/testing/conformance_bench.h"

namespace headrace::object {
namespace {

using ::testing::IsEmpty;

size_t PartBytes(const Bench& b) { return std::max<size_t>(b.can().min_part_bytes, 1000); }

std::unique_ptr<Upload> Start(const Bench& b, const std::string& key) {
  auto upload = b->StartUpload(key, Context());
  EXPECT_TRUE(upload.ok()) << upload.status().ToString();
  return upload.ok() ? *std::move(upload) : nullptr;
}

std::vector<PendingUpload> Pending(const Bench& b, const std::string& prefix) {
  auto pending = b->ListUploads(prefix, Context());
  EXPECT_TRUE(pending.ok()) << pending.status().ToString();
  return pending.ok() ? *pending : std::vector<PendingUpload>();
}

void UploadsInAnyOrder(const Bench& b) {
  const std::string one = Pattern(PartBytes(b), 1), two = Pattern(PartBytes(b) + 17, 2),
                    three = "end";
  auto upload = Start(b, "big/object");
  ASSERT_NE(upload, nullptr);
  EXPECT_TRUE(upload->PutPart(3, AsBytes(three), Context()).ok());
  EXPECT_TRUE(upload->PutPart(1, AsBytes(one), Context()).ok());
  EXPECT_TRUE(upload->PutPart(2, AsBytes(two), Context()).ok());
  EXPECT_EQ(b.Read("big/object"), "error: not found") << "nothing is there before Complete";
  auto etag = upload->Complete(3, Context());
  ASSERT_TRUE(etag.ok()) << etag.status().ToString();
  EXPECT_TRUE(b.Read("big/object") == one + two + three);
  auto info = b->Head("big/object", Context());
  ASSERT_TRUE(info.ok());
  EXPECT_EQ(info->etag, *etag);
  auto range = b.ReadRange("big/object", one.size() - 5, 10);
  ASSERT_TRUE(range.ok());
  EXPECT_EQ(*range, one.substr(one.size() - 5) + two.substr(0, 5));
  EXPECT_THAT(Pending(b, "big/"), IsEmpty());
}

void UploadsFromManyThreads(const Bench& b) {
  const uint32_t n = b.options().num_threads;
  auto upload = Start(b, "object");
  ASSERT_NE(upload, nullptr);
  std::string expected;
  for (uint32_t i = 0; i < n; ++i) expected += Pattern(PartBytes(b), i);
  RunInThreads(n, [&](uint32_t i) {
    Status put = upload->PutPart(i + 1, AsBytes(Pattern(PartBytes(b), i)), Context());
    EXPECT_TRUE(put.ok()) << put.ToString();
  });
  ASSERT_TRUE(upload->Complete(n, Context()).ok());
  EXPECT_TRUE(b.Read("object") == expected);
}

void APartSentAgainReplaces(const Bench& b) {
  const std::string wrong = Pattern(PartBytes(b), 1), right = Pattern(PartBytes(b) + 1, 2);
  auto upload = Start(b, "object");
  ASSERT_NE(upload, nullptr);
  EXPECT_TRUE(upload->PutPart(1, AsBytes(wrong), Context()).ok());
  EXPECT_TRUE(upload->PutPart(2, AsBytes("end"), Context()).ok());
  EXPECT_TRUE(upload->PutPart(1, AsBytes(right), Context()).ok());
  ASSERT_TRUE(upload->Complete(2, Context()).ok());
  EXPECT_TRUE(b.Read("object") == right + "end");
}

void AMissingPartIsRefused(const Bench& b) {
  b.Write("object", "old");
  const std::string part = Pattern(PartBytes(b), 1);
  auto upload = Start(b, "object");
  ASSERT_NE(upload, nullptr);
  EXPECT_TRUE(upload->PutPart(1, AsBytes(part), Context()).ok());
  EXPECT_TRUE(upload->PutPart(3, AsBytes("end"), Context()).ok());
  EXPECT_CODE(upload->Complete(3, Context()).status(), kFailedPrecondition);
  EXPECT_EQ(b.Read("object"), "old");
  EXPECT_TRUE(upload->PutPart(2, AsBytes(part), Context()).ok()) << "it can still be sent";
  auto etag = upload->Complete(3, Context());
  ASSERT_TRUE(etag.ok()) << etag.status().ToString();
  EXPECT_TRUE(b.Read("object") == part + part + "end");
}

void UploadsOfOnePart(const Bench& b) {
  auto upload = Start(b, "object");
  ASSERT_NE(upload, nullptr);
  EXPECT_CODE(upload->PutPart(0, AsBytes("x"), Context()), kInvalidArgument);
  EXPECT_CODE(upload->Complete(0, Context()).status(), kInvalidArgument);
  EXPECT_TRUE(upload->PutPart(1, AsBytes("small"), Context()).ok());
  ASSERT_TRUE(upload->Complete(1, Context()).ok());
  EXPECT_EQ(b.Read("object"), "small");
}

void AbortsUploads(const Bench& b) {
  auto upload = Start(b, "object");
  ASSERT_NE(upload, nullptr);
  EXPECT_TRUE(upload->PutPart(1, AsBytes("x"), Context()).ok());
  EXPECT_TRUE(upload->Abort(Context()).ok());
  EXPECT_FALSE(upload->PutPart(1, AsBytes("x"), Context()).ok());
  EXPECT_FALSE(upload->Complete(1, Context()).ok());
  EXPECT_EQ(b.Read("object"), "error: not found");
  EXPECT_THAT(Pending(b, ""), IsEmpty());
}

void DroppedUploadsAreGivenUp(const Bench& b) {
  auto upload = Start(b, "object");
  ASSERT_NE(upload, nullptr);
  EXPECT_TRUE(upload->PutPart(1, AsBytes("x"), Context()).ok());
  upload.reset();
  EXPECT_THAT(Pending(b, ""), IsEmpty());
  EXPECT_EQ(b.Read("object"), "error: not found");
}

void TwoUploadsOfAKey(const Bench& b) {
  auto one = Start(b, "object"), two = Start(b, "object");
  ASSERT_NE(one, nullptr);
  ASSERT_NE(two, nullptr);
  EXPECT_TRUE(one->PutPart(1, AsBytes("one"), Context()).ok());
  EXPECT_TRUE(two->PutPart(1, AsBytes("two"), Context()).ok());
  EXPECT_TRUE(one->Complete(1, Context()).ok());
  EXPECT_EQ(b.Read("object"), "one");
  EXPECT_TRUE(two->Complete(1, Context()).ok());
  EXPECT_EQ(b.Read("object"), "two");
}

void LeftoversAreFoundAndSwept(const Bench& b) {
  auto left = Start(b, "left/over");
  auto other = Start(b, "other");
  ASSERT_NE(left, nullptr);
  ASSERT_NE(other, nullptr);
  EXPECT_TRUE(left->PutPart(1, AsBytes("x"), Context()).ok());
  EXPECT_TRUE(other->PutPart(1, AsBytes("kept"), Context()).ok());
  std::vector<PendingUpload> pending = Pending(b, "left/");
  ASSERT_EQ(pending.size(), 1u);
  EXPECT_EQ(pending[0].key, "left/over");
  EXPECT_NE(pending[0].id, "");
  EXPECT_EQ(Pending(b, "").size(), 2u);
  if (b.can().list) {
    EXPECT_THAT(b.Keys(), IsEmpty()) << "parts are no objects";
  }
  EXPECT_TRUE(b->AbortUpload(pending[0], Context()).ok());
  EXPECT_THAT(Pending(b, "left/"), IsEmpty());
  EXPECT_FALSE(left->Complete(1, Context()).ok());
  EXPECT_TRUE(other->Complete(1, Context()).ok());
  EXPECT_EQ(b.Read("other"), "kept");
}

void UploadsHonorTheirContext(const Bench& b) {
  auto upload = Start(b, "object");
  ASSERT_NE(upload, nullptr);
  Context late;
  late.deadline = Context::Clock::now() - std::chrono::seconds(1);
  EXPECT_CODE(upload->PutPart(1, AsBytes("x"), late), kDeadlineExceeded);
  EXPECT_TRUE(upload->PutPart(1, AsBytes("y"), Context()).ok());
  EXPECT_CODE(upload->Complete(1, late).status(), kDeadlineExceeded);
  EXPECT_TRUE(upload->Complete(1, Context()).ok());
  EXPECT_EQ(b.Read("object"), "y");
}

bool CanUpload(const Abilities& can) { return can.upload; }

#define HR_TEST_ROW_(function) {#function, function, CanUpload}
constexpr NamedTest kTests[] = {
    HR_TEST_ROW_(UploadsInAnyOrder),         HR_TEST_ROW_(UploadsFromManyThreads),
    HR_TEST_ROW_(APartSentAgainReplaces),    HR_TEST_ROW_(AMissingPartIsRefused),
    HR_TEST_ROW_(UploadsOfOnePart),          HR_TEST_ROW_(AbortsUploads),
    HR_TEST_ROW_(DroppedUploadsAreGivenUp),  HR_TEST_ROW_(TwoUploadsOfAKey),
    HR_TEST_ROW_(LeftoversAreFoundAndSwept), HR_TEST_ROW_(UploadsHonorTheirContext),
};

}  // namespace

std::span<const NamedTest> UploadTests() { return kTests; }

}  // namespace headrace::object
