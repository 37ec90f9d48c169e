#include "headrace/net/answer_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace headrace::net {
namespace {

using ::testing::HasSubstr;

AnswerReader TextReader(uint64_t max_body_bytes = 1000) { return {MutableBytes(), max_body_bytes}; }

Status AddLines(AnswerReader* reader, const std::vector<std::string>& lines) {
  for (const std::string& line : lines) HR_RETURN_IF_ERROR(reader->AddHeaderLine(line + "\r\n"));
  return OkStatus();
}

TEST(AnswerReader, ReadsHeadAndBody) {
  AnswerReader reader = TextReader();
  EXPECT_FALSE(reader.has_head());
  ASSERT_TRUE(AddLines(&reader, {"HTTP/1.1 206 Partial Content", "Content-Range: bytes 1-3/9",
                                 "ETag:\t\"a:b\"  ", "X-Empty:", ""})
                  .ok());
  EXPECT_TRUE(reader.has_head());
  ASSERT_TRUE(reader.AddBody(AsBytes("he")).ok());
  ASSERT_TRUE(reader.AddBody(AsBytes("y")).ok());
  HttpResponse response = reader.Take();
  EXPECT_EQ(response.status, 206);
  ASSERT_EQ(response.headers.size(), 3u);
  EXPECT_EQ(response.headers[0].name, "content-range");
  EXPECT_EQ(response.Header("etag"), "\"a:b\"");
  EXPECT_EQ(response.Header("x-empty"), "");
  EXPECT_EQ(response.Header("missing"), "");
  EXPECT_EQ(response.body, "hey");
  EXPECT_EQ(response.body_bytes, 3u);
}

TEST(AnswerReader, KeepsOnlyTheLastBlock) {
  AnswerReader reader = TextReader();
  ASSERT_TRUE(AddLines(&reader, {"HTTP/1.1 100 Continue", "X-Old: 1", ""}).ok());
  EXPECT_FALSE(reader.has_head());
  ASSERT_TRUE(AddLines(&reader, {"HTTP/1.1 103 Early Hints", "Link: x", ""}).ok());
  ASSERT_TRUE(AddLines(&reader, {"HTTP/1.1 200 OK", "X-New: 2", ""}).ok());
  EXPECT_TRUE(reader.has_head());
  EXPECT_EQ(reader.response().status, 200);
  ASSERT_EQ(reader.response().headers.size(), 1u);
  EXPECT_EQ(reader.response().Header("x-new"), "2");
}

TEST(AnswerReader, LeavesTrailersOut) {
  AnswerReader reader = TextReader();
  ASSERT_TRUE(AddLines(&reader, {"HTTP/1.1 200 OK", "A: 1", ""}).ok());
  ASSERT_TRUE(reader.AddBody(AsBytes("x")).ok());
  ASSERT_TRUE(AddLines(&reader, {"HTTP/1.1 500 Evil", "A: 2", ""}).ok());
  EXPECT_EQ(reader.response().status, 200);
  EXPECT_EQ(reader.response().headers.size(), 1u);
}

TEST(AnswerReader, JoinsFoldedLinesAndSkipsNonsense) {
  AnswerReader reader = TextReader();
  ASSERT_TRUE(AddLines(&reader, {"HTTP/1.1 200", " before any header", "A: one", "  two", "\t ",
                                 "no colon here", "B: 3", ""})
                  .ok());
  EXPECT_EQ(reader.response().Header("a"), "one two");
  EXPECT_EQ(reader.response().Header("b"), "3");
  EXPECT_EQ(reader.response().headers.size(), 2u);
}

TEST(AnswerReader, RefusesWhatIsNoStatusLine) {
  for (const char* line : {"", "HTTP/1.1", "HTTP/1.1 ", "HTTP/1.1 20", "HTTP/1.1 2x0 OK",
                           "HTTP/1.1 099 Low", "ICY 200 OK", "HTTP/1.1 -20 OK"}) {
    AnswerReader reader = TextReader();
    Status status = reader.AddHeaderLine(line);
    EXPECT_EQ(status.code(), Code::kDataLoss) << line;
    EXPECT_FALSE(reader.has_head());
  }
}

TEST(AnswerReader, LimitsTheHeaders) {
  AnswerReader reader = TextReader();
  ASSERT_TRUE(reader.AddHeaderLine("HTTP/1.1 200 OK").ok());
  std::string line = "x: " + std::string(1000, 'v');
  Status status;
  size_t lines = 0;
  while (status.ok() && lines < 10000) {
    status = reader.AddHeaderLine(line);
    ++lines;
  }
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
  EXPECT_GT(lines, 1000u);
  EXPECT_LT(lines, 1100u);
}

TEST(AnswerReader, PutsABodyInto) {
  std::string into(5, '-');
  AnswerReader reader({reinterpret_cast<std::byte*>(into.data()), into.size()}, 0);
  ASSERT_TRUE(AddLines(&reader, {"HTTP/1.1 200 OK", ""}).ok());
  ASSERT_TRUE(reader.AddBody(AsBytes("ab")).ok());
  ASSERT_TRUE(reader.AddBody(AsBytes("cde")).ok());
  EXPECT_EQ(into, "abcde");
  ASSERT_TRUE(reader.AddBody(AsBytes("")).ok());
  Status status = reader.AddBody(AsBytes("f"));
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_THAT(status.ToString(), HasSubstr("5 bytes"));
  EXPECT_EQ(reader.response().body_bytes, 5u);
  EXPECT_EQ(reader.response().body, "");
}

TEST(AnswerReader, KeepsAnErrorsBodyOutOfInto) {
  std::string into(5, '-');
  AnswerReader reader({reinterpret_cast<std::byte*>(into.data()), into.size()}, 100);
  ASSERT_TRUE(AddLines(&reader, {"HTTP/1.1 404 Not Found", "Content-Length: 9", ""}).ok());
  ASSERT_TRUE(reader.AddBody(AsBytes("not there")).ok());
  EXPECT_EQ(into, "-----");
  EXPECT_EQ(reader.response().body, "not there");
}

TEST(AnswerReader, LimitsTheBody) {
  AnswerReader reader = TextReader(4);
  ASSERT_TRUE(AddLines(&reader, {"HTTP/1.1 200 OK", "Content-Length: 99999999999999", ""}).ok());
  ASSERT_TRUE(reader.AddBody(AsBytes("abcd")).ok());
  Status status = reader.AddBody(AsBytes("e"));
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
  EXPECT_THAT(status.ToString(), HasSubstr("4 bytes"));
}

}  // namespace
}  // namespace headrace::net
