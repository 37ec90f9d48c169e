#include "headrace/object/range_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace headrace::object {
namespace {

using ::testing::HasSubstr;

net::HttpResponse Answer(int status, const std::string& content_range, uint64_t body_bytes) {
  net::HttpResponse response;
  response.status = status;
  if (!content_range.empty()) response.headers.push_back({"content-range", content_range});
  response.body_bytes = body_bytes;
  return response;
}

Code CodeOf(const net::HttpResponse& response, uint64_t offset, uint64_t num_bytes) {
  return CheckRangeAnswer(response, offset, num_bytes).status().code();
}

TEST(RangeHeader, NamesFirstAndLast) {
  EXPECT_EQ(RangeHeader(0, 10), "bytes=0-9");
  EXPECT_EQ(RangeHeader(5'000'000'000, 1), "bytes=5000000000-5000000000");
}

TEST(ParseContentRange, ReadsTheThreeForms) {
  auto range = ParseContentRange("bytes 3-9/100");
  ASSERT_TRUE(range);
  EXPECT_EQ(range->first, 3u);
  EXPECT_EQ(range->last, 9u);
  EXPECT_EQ(range->size_bytes, 100u);
  EXPECT_EQ(ParseContentRange("bytes 3-9/*")->size_bytes, std::nullopt);
  EXPECT_FALSE(ParseContentRange("bytes */7")->satisfied);
  EXPECT_EQ(ParseContentRange("bytes */7")->size_bytes, 7u);
  for (const char* text : {"", "bytes", "bytes 3-9", "bytes 9-3/100", "bytes 3-100/100",
                           "items 0-1/2", "bytes -9/10", "bytes 3-/10", "bytes 3-9/x",
                           "bytes 3-9/10 ", "bytes a-9/10", "bytes 0-99999999999999999999/*"})
    EXPECT_FALSE(ParseContentRange(text)) << text;
}

TEST(CheckRangeAnswer, TakesThePartThatWasAskedFor) {
  EXPECT_EQ(*CheckRangeAnswer(Answer(206, "bytes 3-9/100", 7), 3, 7), 100u);
  EXPECT_EQ(*CheckRangeAnswer(Answer(206, "bytes 3-9/*", 7), 3, 7), 0u);
  EXPECT_EQ(*CheckRangeAnswer(Answer(200, "", 7), 0, 7), 7u) << "the part is the whole";
}

TEST(CheckRangeAnswer, TakesNoOther) {
  EXPECT_EQ(CodeOf(Answer(206, "", 7), 3, 7), Code::kDataLoss);
  EXPECT_EQ(CodeOf(Answer(206, "bytes */100", 7), 3, 7), Code::kDataLoss);
  EXPECT_EQ(CodeOf(Answer(206, "bytes 4-10/100", 7), 3, 7), Code::kDataLoss);
  EXPECT_EQ(CodeOf(Answer(206, "bytes 3-8/100", 6), 3, 7), Code::kDataLoss);
  EXPECT_EQ(CodeOf(Answer(206, "bytes 3-10/100", 7), 3, 7), Code::kDataLoss);
  EXPECT_EQ(CodeOf(Answer(206, "bytes 3-9/100", 6), 3, 7), Code::kDataLoss);
  EXPECT_EQ(CodeOf(Answer(200, "", 7), 3, 7), Code::kUnimplemented);
  EXPECT_EQ(CodeOf(Answer(200, "", 8), 0, 7), Code::kUnimplemented);
}

TEST(CheckRangeAnswer, NamesTheSizeOfAnObjectThatIsTooShort) {
  for (const auto& answer : {Answer(206, "bytes 3-9/10", 7), Answer(416, "bytes */10", 0)}) {
    Status status = CheckRangeAnswer(answer, 3, 8).status();
    EXPECT_EQ(status.code(), Code::kOutOfRange);
    EXPECT_THAT(status.ToString(), HasSubstr("10 bytes"));
  }
  EXPECT_EQ(CodeOf(Answer(416, "", 0), 3, 8), Code::kOutOfRange);
  EXPECT_EQ(CodeOf(Answer(206, "bytes 3-9/*", 7), 3, 8), Code::kOutOfRange);
  EXPECT_EQ(CodeOf(Answer(200, "", 9), 0, 10), Code::kOutOfRange);
}

TEST(CheckRange, EndsAtSixtyFourBits) {
  uint64_t most = std::numeric_limits<uint64_t>::max();
  EXPECT_TRUE(CheckRange(most - 1, 1).ok());
  EXPECT_TRUE(CheckRange(0, most).ok());
  EXPECT_EQ(CheckRange(most, 1).code(), Code::kInvalidArgument);
}

TEST(InfoFromAnswer, ReadsWhatIsTold) {
  net::HttpResponse response = Answer(200, "", 0);
  response.headers = {{"content-length", "12"},
                      {"etag", "\"e\""},
                      {"last-modified", "Fri, 24 May 2013 00:00:00 GMT"}};
  auto info = InfoFromAnswer(response, "k");
  ASSERT_TRUE(info.ok());
  EXPECT_EQ(info->key, "k");
  EXPECT_EQ(info->size_bytes, 12u);
  EXPECT_EQ(info->etag, "e");
  EXPECT_EQ(info->mtime_ns, int64_t{1369353600} * 1'000'000'000);
  EXPECT_EQ(InfoFromAnswer(Answer(206, "bytes 0-0/99", 1), "k")->size_bytes, 99u);
  EXPECT_EQ(InfoFromAnswer(Answer(200, "", 0), "k").status().code(), Code::kDataLoss);
  EXPECT_TRUE(CheckMatch(*info, "").ok());
  EXPECT_TRUE(CheckMatch(*info, "e").ok());
  EXPECT_EQ(CheckMatch(*info, "f").code(), Code::kFailedPrecondition);
}

}  // namespace
}  // namespace headrace::object
