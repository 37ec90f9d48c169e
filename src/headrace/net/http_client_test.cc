// What the client does while all goes well.
#include "headrace/net/http_client.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "headrace/env/testing/child_process.h"
#include "headrace/net/testing/client_sockets.h"
#include "headrace/net/testing/fault_server.h"
#include "headrace/net/testing/patient_options.h"

namespace headrace::net {
namespace {

using ::testing::HasSubstr;

std::string Text(size_t bytes) {
  std::string text(bytes, '\0');
  for (size_t i = 0; i < bytes; ++i) text[i] = static_cast<char>((i * 2654435761u) >> 11);
  return text;
}

MutableBytes AsMutable(std::string* text) {
  return {reinterpret_cast<std::byte*>(text->data()), text->size()};
}

class HttpClientTest : public ::testing::Test {
 protected:
  HttpClientTest() : client_(*HttpClient::Create(Patient())) {}

  HttpRequest Request(std::string method, const std::string& target) {
    HttpRequest request;
    request.method = std::move(method);
    request.url = server_.url() + target;
    return request;
  }
  Result<HttpResponse> Get(const std::string& target) {
    return client_->Fetch(Request("GET", target), Context());
  }

  FaultServer server_;
  std::unique_ptr<HttpClient> client_;
};

TEST_F(HttpClientTest, GetsABody) {
  ServerAnswer answer;
  answer.body = Text(3000);
  answer.headers = {{"ETag", "\"v1\""}, {"X-Twice", "a"}, {"X-TWICE", "b"}};
  server_.Enqueue({answer});
  auto got = Get("/file");
  ASSERT_TRUE(got.ok()) << got.status().ToString();
  EXPECT_EQ(got->status, 200);
  EXPECT_EQ(got->body, answer.body);
  EXPECT_EQ(got->body_bytes, 3000u);
  EXPECT_EQ(got->Header("etag"), "\"v1\"");
  EXPECT_EQ(got->Header("content-length"), "3000");
  EXPECT_EQ(got->Header("x-twice"), "a");
  EXPECT_EQ(std::count_if(got->headers.begin(), got->headers.end(),
                          [](const HttpHeader& header) { return header.name == "x-twice"; }),
            2);
  EXPECT_GT(got->first_byte_ns, 0u);
  EXPECT_GE(got->total_ns, got->first_byte_ns);
}

TEST_F(HttpClientTest, PutsABodyWhereTheCallerSays) {
  const std::string content = Text(5 << 20);
  server_.SetHandler([&](const ServerRequest& request) { return AnswerRange(request, content); });
  std::string into(1 << 20, '-');
  HttpRequest request = Request("GET", "/file");
  request.headers = {{"Range", "bytes=1000-1049575"}};
  request.into = AsMutable(&into);
  auto got = client_->Fetch(request, Context());
  ASSERT_TRUE(got.ok()) << got.status().ToString();
  EXPECT_EQ(got->status, 206);
  EXPECT_EQ(got->body_bytes, 1u << 20);
  EXPECT_EQ(got->body, "");
  EXPECT_EQ(got->Header("content-range"), "bytes 1000-1049575/5242880");
  EXPECT_TRUE(into == content.substr(1000, 1 << 20));
}

TEST_F(HttpClientTest, AShorterAnswerThanAskedForIsTheCallersMatter) {
  std::string into(10, '-');
  HttpRequest request = Request("GET", "/file");
  request.into = AsMutable(&into);
  ServerAnswer answer;
  answer.body = "abc";
  server_.Enqueue({answer});
  auto got = client_->Fetch(request, Context());
  ASSERT_TRUE(got.ok()) << got.status().ToString();
  EXPECT_EQ(got->body_bytes, 3u);
  EXPECT_EQ(into, "abc-------");
}

TEST_F(HttpClientTest, SendsUrlsAsTheyAre) {
  for (const char* target :
       {"/", "/a//b", "//a", "/a/../b", "/./a/.", "/..", "/a%2Fb%2e%2E/%c3%a4", "/x?", "/~a+b",
        "/x?a=%2B+c&list-type=2&prefix=%2Fa%26", "/a/..?b=/../c", "/a;b,c!$'()*@:", "/x?y=?&&z"}) {
    auto got = Get(target);
    ASSERT_TRUE(got.ok()) << target << ": " << got.status().ToString();
    EXPECT_EQ(server_.requests().back().target, target);
  }
}

TEST_F(HttpClientTest, SendsTheCallersHeadersAndNoOthers) {
  HttpRequest request = Request("GET", "/");
  request.headers = {{"X-Amz-Date", "20260101T000000Z"}, {"x-empty", ""}, {"Range", "bytes=0-1"}};
  ASSERT_TRUE(client_->Fetch(request, Context()).ok());
  ServerRequest came = server_.requests().back();
  std::vector<std::string> lines;
  for (const HttpHeader& header : came.headers) lines.push_back(header.name + ": " + header.value);
  EXPECT_THAT(
      lines, ::testing::UnorderedElementsAre("host: 127.0.0.1:" + std::to_string(server_.port()),
                                             "user-agent: headrace", "x-amz-date: 20260101T000000Z",
                                             "x-empty: ", "range: bytes=0-1"));
}

TEST_F(HttpClientTest, LetsTheCallerReplaceHeaders) {
  HttpRequest request = Request("POST", "/");
  request.body = AsBytes("{}");
  request.headers = {{"content-type", "application/json"},
                     {"ACCEPT", "text/xml"},
                     {"Host", "bucket.example"},
                     {"User-Agent", "other"}};
  ASSERT_TRUE(client_->Fetch(request, Context()).ok());
  ServerRequest came = server_.requests().back();
  EXPECT_EQ(came.Header("content-type"), "application/json");
  EXPECT_EQ(came.Header("accept"), "text/xml");
  EXPECT_EQ(came.Header("host"), "bucket.example");
  EXPECT_EQ(came.Header("user-agent"), "other");
}

TEST_F(HttpClientTest, SendsBodies) {
  // Large enough for what libcurl would announce with "Expect: 100-continue".
  const std::string body = Text(3 << 20);
  for (const char* method : {"PUT", "POST", "DELETE"}) {
    HttpRequest request = Request(method, "/object");
    request.body = AsBytes(body);
    auto got = client_->Fetch(request, Context());
    ASSERT_TRUE(got.ok()) << method << ": " << got.status().ToString();
    ServerRequest came = server_.requests().back();
    EXPECT_EQ(came.method, method);
    EXPECT_TRUE(came.body == body) << method;
    EXPECT_EQ(came.Header("content-length"), std::to_string(body.size()));
    EXPECT_EQ(came.Header("expect"), "");
    EXPECT_EQ(came.Header("transfer-encoding"), "");
    EXPECT_EQ(came.Header("content-type"), "");
  }
  EXPECT_EQ(server_.num_connections(), 1u);
}

TEST_F(HttpClientTest, SendsEmptyBodies) {
  for (const char* method : {"PUT", "POST"}) {
    ASSERT_TRUE(client_->Fetch(Request(method, "/object"), Context()).ok());
    EXPECT_EQ(server_.requests().back().method, method);
    EXPECT_EQ(server_.requests().back().Header("content-length"), "0");
  }
  ASSERT_TRUE(client_->Fetch(Request("DELETE", "/object"), Context()).ok());
  EXPECT_EQ(server_.requests().back().method, "DELETE");
  EXPECT_EQ(server_.requests().back().Header("content-length"), "");
}

TEST_F(HttpClientTest, AnswersOfPutsHaveBodies) {
  ServerAnswer answer;
  answer.status = 412;
  answer.body = "<Error/>";
  server_.Enqueue({answer});
  HttpRequest request = Request("PUT", "/object");
  request.body = AsBytes("x");
  auto got = client_->Fetch(request, Context());
  ASSERT_TRUE(got.ok()) << got.status().ToString();
  EXPECT_EQ(got->status, 412);
  EXPECT_EQ(got->body, "<Error/>");
}

TEST_F(HttpClientTest, HeadTellsALengthWithoutABody) {
  ServerAnswer answer;
  answer.body = Text(100000);
  server_.SetHandler([&](const ServerRequest&) { return answer; });
  std::string into(10, '-');
  HttpRequest request = Request("HEAD", "/file");
  request.into = AsMutable(&into);
  auto got = client_->Fetch(request, Context());
  ASSERT_TRUE(got.ok()) << got.status().ToString();
  EXPECT_EQ(got->Header("content-length"), "100000");
  EXPECT_EQ(got->body_bytes, 0u);
  EXPECT_EQ(got->body, "");
  EXPECT_EQ(into, "----------");
  // The connection is in order, and the next request on it is a GET again.
  auto whole = Get("/file");
  ASSERT_TRUE(whole.ok()) << whole.status().ToString();
  EXPECT_TRUE(whole->body == answer.body);
  EXPECT_EQ(server_.num_connections(), 1u);
}

TEST_F(HttpClientTest, EveryStatusIsAnAnswer) {
  for (int status : {200, 204, 206, 301, 304, 400, 403, 404, 416, 429, 500, 503}) {
    server_.Inject(StatusFault(status, status == 503 ? "7" : ""));
    auto got = Get("/file");
    ASSERT_TRUE(got.ok()) << status << ": " << got.status().ToString();
    EXPECT_EQ(got->status, status);
    EXPECT_EQ(got->Header("retry-after"), status == 503 ? "7" : "");
  }
}

TEST_F(HttpClientTest, DoesNotFollowRedirects) {
  server_.Inject(RedirectFault(server_.url() + "/elsewhere"));
  auto got = Get("/file");
  ASSERT_TRUE(got.ok()) << got.status().ToString();
  EXPECT_EQ(got->status, 307);
  EXPECT_EQ(got->Header("location"), server_.url() + "/elsewhere");
  EXPECT_EQ(server_.num_requests(), 1u);
}

TEST_F(HttpClientTest, OnlyTheLastBlockOfHeadersCounts) {
  ServerAnswer answer;
  answer.before =
      "HTTP/1.1 100 Continue\r\nX-Old: 1\r\n\r\nHTTP/1.1 103 Early Hints\r\nX-Old: 2\r\n\r\n";
  answer.headers = {{"X-New", "3"}};
  answer.body = "body";
  server_.Enqueue({answer});
  auto got = Get("/file");
  ASSERT_TRUE(got.ok()) << got.status().ToString();
  EXPECT_EQ(got->status, 200);
  EXPECT_EQ(got->Header("x-old"), "");
  EXPECT_EQ(got->Header("x-new"), "3");
  EXPECT_EQ(got->body, "body");
}

TEST_F(HttpClientTest, ReadsChunkedBodies) {
  ServerAnswer answer;
  answer.body = Text(1000);
  answer.chunked = true;
  answer.drip_bytes = 300;
  server_.Enqueue({answer, answer});
  auto got = Get("/file");
  ASSERT_TRUE(got.ok()) << got.status().ToString();
  EXPECT_TRUE(got->body == answer.body);
  std::string into(1000, '-');
  HttpRequest request = Request("GET", "/file");
  request.into = AsMutable(&into);
  got = client_->Fetch(request, Context());
  ASSERT_TRUE(got.ok()) << got.status().ToString();
  EXPECT_TRUE(into == answer.body);
}

TEST_F(HttpClientTest, ReadsABodyThatEndsWithTheConnection) {
  ServerAnswer answer;
  answer.before = "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n";  // the rest is the body
  answer.body = "tail";
  answer.close = true;
  server_.Enqueue({answer});
  auto got = Get("/file");
  ASSERT_TRUE(got.ok()) << got.status().ToString();
  EXPECT_TRUE(got->body.ends_with("tail")) << got->body;
}

TEST_F(HttpClientTest, KeepsConnections) {
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(Get("/file").ok());
  EXPECT_EQ(server_.num_requests(), 20u);
  EXPECT_EQ(server_.num_connections(), 1u);
}

TEST_F(HttpClientTest, RefusesRequestsThatMakeNoSense) {
  auto code = [&](HttpRequest request) {
    auto got = client_->Fetch(std::move(request), Context());
    return got.ok() ? Code::kOk : got.status().code();
  };
  EXPECT_EQ(code({}), Code::kInvalidArgument);
  HttpRequest request = Request("GET", "/file");
  request.headers = {{"X", "a\r\nEvil: b"}};
  EXPECT_EQ(code(request), Code::kInvalidArgument);
  request = Request("GET", "/file");
  request.body = AsBytes("body");
  EXPECT_EQ(code(request), Code::kInvalidArgument);
  request = Request("GET", "/file");
  request.url = "file:///etc/passwd";
  EXPECT_EQ(code(request), Code::kInvalidArgument);
  request.url = "http://127.0.0.1:99999999/";
  EXPECT_EQ(code(request), Code::kInvalidArgument);
  EXPECT_EQ(server_.num_requests(), 0u);
}

TEST_F(HttpClientTest, RefusesOptionsThatMakeNoSense) {
  auto code = [](const HttpClientOptions& options) {
    auto client = HttpClient::Create(options);
    return client.ok() ? Code::kOk : client.status().code();
  };
  EXPECT_EQ(code({.max_connections = 0}), Code::kInvalidArgument);
  EXPECT_EQ(code({.max_connections_per_host = 0}), Code::kInvalidArgument);
  EXPECT_EQ(code({.connect_timeout = std::chrono::milliseconds(0)}), Code::kInvalidArgument);
  EXPECT_EQ(code({.stall_timeout = std::chrono::milliseconds(-1)}), Code::kInvalidArgument);
  EXPECT_EQ(code({.slow_window = std::chrono::milliseconds(0)}), Code::kInvalidArgument);
  EXPECT_EQ(code({.user_agent = "a\r\nX: y"}), Code::kInvalidArgument);
}

TEST_F(HttpClientTest, GoesThroughTheEnvironmentsProxy) {
  ASSERT_EQ(::setenv("http_proxy", server_.url().c_str(), 1), 0);
  HttpRequest request;
  request.url = "http://bucket.example/a/../b?c";
  auto got = client_->Fetch(request, Context());
  ::unsetenv("http_proxy");
  ASSERT_TRUE(got.ok()) << got.status().ToString();
  EXPECT_EQ(server_.requests().back().target, "http://bucket.example/a/../b?c");
}

TEST_F(HttpClientTest, TellsNoSecretOfAWrongProxy) {
  ASSERT_EQ(::setenv("http_proxy", "nonsense://me:secret@proxy", 1), 0);
  HttpRequest request;
  request.url = "http://bucket.example/a?signature=secret";
  auto got = client_->Fetch(request, Context());
  ::unsetenv("http_proxy");
  ASSERT_FALSE(got.ok());
  EXPECT_EQ(got.status().code(), Code::kUnavailable);
  EXPECT_THAT(got.status().ToString(), HasSubstr("GET http://bucket.example/a: "));
  EXPECT_THAT(got.status().ToString(), Not(HasSubstr("secret")));
}

TEST_F(HttpClientTest, ProgramsStartedLaterDoNotGetItsConnections) {
  ASSERT_TRUE(Get("/file").ok());
  std::vector<int> sockets = SocketsTo(server_.port());
  ASSERT_EQ(sockets.size(), 1u);
  EXPECT_NE(::fcntl(sockets[0], F_GETFD) & FD_CLOEXEC, 0);
}

TEST_F(HttpClientTest, CannotBeUsedInAForkedChild) {
  ASSERT_TRUE(Get("/file").ok());
  int exit = ExitOfChild([this] {
    auto got = client_->Fetch(Request("GET", "/child"), Context());
    bool refused = !got.ok() && got.status().code() == Code::kFailedPrecondition &&
                   got.status().message().find("fork") != std::string_view::npos;
    client_.reset();
    return refused ? 7 : 1;
  });
  EXPECT_EQ(exit, 7);
  // The parent's connection is as it was.
  ASSERT_TRUE(Get("/file").ok());
  EXPECT_EQ(server_.num_connections(), 1u);
  EXPECT_EQ(server_.num_requests(), 2u);
}

TEST_F(HttpClientTest, ManyClientsLiveSideBySide) {
  auto other = HttpClient::Create(Patient({.user_agent = "other"}));
  ASSERT_TRUE(other.ok()) << other.status().ToString();
  ASSERT_TRUE((*other)->Fetch(Request("GET", "/"), Context()).ok());
  EXPECT_EQ(server_.requests().back().Header("user-agent"), "other");
  other->reset();
  EXPECT_TRUE(Get("/").ok());
}

}  // namespace
}  // namespace headrace::net
