#include "headrace/net/request_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace headrace::net {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

ReceivedRequest Read(std::string_view text) {
  auto request = ReadRequest(text);
  EXPECT_TRUE(request.ok()) << request.status().ToString();
  EXPECT_TRUE(request.ok() && *request) << text;
  return request.ok() && *request ? **request : ReceivedRequest();
}

Code Failure(std::string_view text) { return ReadRequest(text).status().code(); }

TEST(RequestReader, ReadsARequest) {
  const ReceivedRequest request =
      Read("GET /metrics?a=b HTTP/1.1\r\nHost: localhost:9400\r\nX-Odd:  two words \r\n\r\n");
  EXPECT_EQ(request.method, "GET");
  EXPECT_EQ(request.path, "/metrics");
  EXPECT_EQ(request.query, "a=b");
  EXPECT_EQ(request.Header("host"), "localhost:9400");
  EXPECT_EQ(request.Header("x-odd"), "two words");
  EXPECT_EQ(request.Header("none"), "");
  EXPECT_EQ(Read("GET / HTTP/1.0\n\n").path, "/");
}

TEST(RequestReader, WaitsUntilTheRequestIsWhole) {
  const std::string whole =
      "POST /settings HTTP/1.1\r\nContent-Length: 5\r\nContent-Type: x\r\n\r\nhello";
  for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
    auto request = ReadRequest(std::string_view(whole).substr(0, bytes));
    ASSERT_TRUE(request.ok()) << bytes;
    EXPECT_FALSE(request->has_value()) << bytes;
  }
  EXPECT_EQ(Read(whole).body, "hello");
  EXPECT_EQ(Read(whole + "more").body, "hello");
}

TEST(RequestReader, RefusesWhatIsNoRequestOrHasTwoMeanings) {
  for (const char* bad : {
           "hello\r\n\r\n",
           "get / HTTP/1.1\r\n\r\n",
           "GET http://other/ HTTP/1.1\r\n\r\n",
           "GET /a b HTTP/1.1\r\n\r\n",
           "GET /\x01 HTTP/1.1\r\n\r\n",
           "GET / NONSENSE\r\n\r\n",
           "GET / HTTP/1.1\r\nno colon\r\n\r\n",
           "GET / HTTP/1.1\r\nName : x\r\n\r\n",
           "GET / HTTP/1.1\r\n folded: x\r\n\r\n",
           "GET / HTTP/1.1\r\nA: \x02\r\n\r\n",
           "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
           "GET / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
           "GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
           "GET / HTTP/1.1\r\nContent-Length: 1x\r\n\r\nx",
       })
    EXPECT_EQ(Failure(bad), Code::kInvalidArgument) << bad;
  EXPECT_EQ(Failure("GET / HTTP/2.0\r\n\r\n"), Code::kUnimplemented);
  EXPECT_EQ(Failure("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"), Code::kUnimplemented);
}

TEST(RequestReader, LimitsHold) {
  EXPECT_EQ(Failure("GET /" + std::string(9000, 'a')), Code::kResourceExhausted);
  std::string many = "GET / HTTP/1.1\r\n";
  for (int i = 0; i < 65; ++i) many += "A: b\r\n";
  EXPECT_EQ(Failure(many + "\r\n"), Code::kResourceExhausted);
  EXPECT_EQ(Failure("POST / HTTP/1.1\r\nContent-Length: 5000\r\n\r\n"), Code::kResourceExhausted);
  EXPECT_EQ(Failure("POST / HTTP/1.1\r\nContent-Length: 99999999999999999999999\r\n\r\n"),
            Code::kResourceExhausted);
}

TEST(RequestReader, AnswersSayHowLongTheyAreAndThatTheyAreTheLast) {
  const std::string answer =
      WriteAnswer(401, "text/plain", "no\n", {{"WWW-Authenticate", "Bearer"}});
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 401 Unauthorized\r\n"));
  EXPECT_THAT(answer, HasSubstr("Content-Length: 3\r\n"));
  EXPECT_THAT(answer, HasSubstr("Connection: close\r\n"));
  EXPECT_THAT(answer, HasSubstr("WWW-Authenticate: Bearer\r\n\r\nno\n"));
}

TEST(RequestReader, EachFailureHasAStatus) {
  EXPECT_EQ(StatusForFailure(Code::kInvalidArgument), 400);
  EXPECT_EQ(StatusForFailure(Code::kNotFound), 404);
  EXPECT_EQ(StatusForFailure(Code::kResourceExhausted), 413);
  EXPECT_EQ(StatusForFailure(Code::kUnimplemented), 501);
  EXPECT_EQ(StatusForFailure(Code::kUnavailable), 503);
  EXPECT_EQ(StatusForFailure(Code::kInternal), 500);
}

}  // namespace
}  // namespace headrace::net
