// What the client does when the server, the network or the caller breaks off.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "headrace/net/http_client.h"
#include "headrace/net/testing/fault_server.h"
#include "headrace/net/testing/http_collector.h"
#include "headrace/net/testing/patient_options.h"

namespace headrace::net {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using ::testing::Not;

Code CodeOf(const Result<HttpResponse>& got) { return got.ok() ? Code::kOk : got.status().code(); }

ServerAnswer LargeAnswer(const ServerRequest&) {
  ServerAnswer answer;
  answer.body = std::string(1 << 20, 'x');
  return answer;
}

ServerAnswer ShortAnswer(const ServerRequest&) {
  ServerAnswer answer;
  answer.body = std::string(150, 'x');
  return answer;
}

bool IsPut(const ServerRequest& request) { return request.method == "PUT"; }

class HttpClientFaults : public ::testing::Test {
 protected:
  HttpClientFaults() : server_(LargeAnswer) { Open({}); }

  void Open(const HttpClientOptions& options) { client_ = *HttpClient::Create(Patient(options)); }
  HttpRequest Request(std::string method = "GET") {
    HttpRequest request;
    request.method = std::move(method);
    request.url = server_.url() + "/object?signature=secret";
    return request;
  }
  Result<HttpResponse> Get(const Context& ctx = {}) { return client_->Fetch(Request(), ctx); }
  // Gets while the server sends without a pause; tries again where it was held up for `pause`.
  Result<HttpResponse> GetWithoutPause(const HttpRequest& request, const Fault& fault,
                                       milliseconds pause) {
    while (true) {
      server_.Heal();
      server_.Inject(fault);
      server_.WatchPauses();
      auto got = client_->Fetch(request, {});
      if (got.ok() || server_.longest_pause() < pause) return got;
    }
  }
  void WaitForRequests(uint64_t count) {
    while (server_.num_requests() < count) std::this_thread::sleep_for(milliseconds(1));
  }

  FaultServer server_;
  std::unique_ptr<HttpClient> client_;
};

TEST_F(HttpClientFaults, ABodyShorterThanItsLengthIsUnavailable) {
  server_.Inject(ShortBodyFault(1));
  auto got = Get();
  ASSERT_EQ(CodeOf(got), Code::kUnavailable);
  EXPECT_THAT(got.status().ToString(), HasSubstr("1048575 bytes"));
  EXPECT_THAT(got.status().ToString(), HasSubstr("GET " + server_.url() + "/object: "));
  EXPECT_THAT(got.status().ToString(), Not(HasSubstr("secret")));
}

TEST_F(HttpClientFaults, AShortBodyIsUnavailableAlsoInto) {
  std::string into(1 << 20, '-');
  HttpRequest request = Request();
  request.into = {reinterpret_cast<std::byte*>(into.data()), into.size()};
  server_.Inject(ShortBodyFault(1000));
  EXPECT_EQ(CodeOf(client_->Fetch(request, {})), Code::kUnavailable);
}

TEST_F(HttpClientFaults, AConnectionCutInTheBodyIsNeverAnAnswer) {
  for (uint64_t at : {0, 1, 1000, 1 << 19, (1 << 20) - 1}) {
    server_.Inject(CutFault(at, Cut::kReset));
    // The reset can overtake bytes that were sent before it, never turn into a success.
    EXPECT_EQ(CodeOf(Get()), Code::kUnavailable) << at;
    server_.Inject(CutFault(at, Cut::kClose));
    EXPECT_EQ(CodeOf(Get()), Code::kUnavailable) << at;
  }
}

TEST_F(HttpClientFaults, ACutChunkedBodyIsNeverAnAnswer) {
  ServerAnswer answer;
  answer.body = std::string(1000, 'x');
  answer.chunked = true;
  answer.cut_at = 500;
  answer.cut = Cut::kClose;
  server_.Enqueue({answer});
  EXPECT_EQ(CodeOf(Get()), Code::kUnavailable);
}

TEST_F(HttpClientFaults, NoAnswerIsUnavailable) {
  for (Cut cut : {Cut::kClose, Cut::kReset}) {
    server_.Inject(DropFault(cut), 10);
    auto got = Get();
    EXPECT_EQ(CodeOf(got), Code::kUnavailable);
    EXPECT_THAT(got.status().ToString(), Not(HasSubstr("secret")));
    server_.Heal();
  }
}

TEST_F(HttpClientFaults, WhatIsNotHttpIsUnavailable) {
  ServerAnswer answer;
  answer.before = "I am not a web server\r\n\r\n";
  answer.close = true;
  server_.Enqueue({answer});
  EXPECT_EQ(CodeOf(Get()), Code::kUnavailable);
}

TEST_F(HttpClientFaults, AConnectionResetAtOnceIsUnavailable) {
  server_.ResetConnections(1);
  EXPECT_EQ(CodeOf(Get()), Code::kUnavailable);
  EXPECT_EQ(CodeOf(Get()), Code::kOk);
}

TEST_F(HttpClientFaults, NobodyListeningIsUnavailable) {
  // Bound, so that no other program can take the port; not listening.
  const int taken = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  ASSERT_EQ(::bind(taken, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(::getsockname(taken, reinterpret_cast<sockaddr*>(&address), &size), 0);
  const std::string url = "http://127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  HttpRequest request;
  request.url = url + "/file";
  auto got = client_->Fetch(request, {});
  ::close(taken);
  EXPECT_EQ(CodeOf(got), Code::kUnavailable);
  EXPECT_THAT(got.status().ToString(), HasSubstr("GET " + url + "/file: "));
}

TEST_F(HttpClientFaults, ABodyLargerThanAskedForIsDataLoss) {
  std::string buffer(101, '-');
  HttpRequest request = Request();
  request.into = {reinterpret_cast<std::byte*>(buffer.data()), 100};
  for (bool chunked : {false, true}) {
    ServerAnswer answer;
    answer.body = std::string(150, 'x');
    answer.chunked = chunked;
    server_.Enqueue({answer});
    auto got = client_->Fetch(request, {});
    EXPECT_EQ(CodeOf(got), Code::kDataLoss);
    EXPECT_THAT(got.status().ToString(), HasSubstr("100 bytes"));
    EXPECT_EQ(buffer.back(), '-');
  }
  EXPECT_EQ(CodeOf(Get()), Code::kOk);  // not with the rest of that body
}

TEST_F(HttpClientFaults, AnErrorsBodyDoesNotGoInto) {
  std::string into(100, '-');
  HttpRequest request = Request();
  request.into = {reinterpret_cast<std::byte*>(into.data()), into.size()};
  ServerAnswer answer;
  answer.status = 403;
  answer.body = std::string(500, 'e');
  server_.Enqueue({answer});
  auto got = client_->Fetch(request, {});
  ASSERT_TRUE(got.ok()) << got.status().ToString();
  EXPECT_EQ(got->body, answer.body);
  EXPECT_EQ(into, std::string(100, '-'));
}

TEST_F(HttpClientFaults, LimitsTheBodyItKeeps) {
  HttpRequest request = Request();
  request.max_body_bytes = (1 << 20) - 1;
  EXPECT_EQ(CodeOf(client_->Fetch(request, {})), Code::kResourceExhausted);
  request.max_body_bytes = 1 << 20;
  EXPECT_EQ(CodeOf(client_->Fetch(request, {})), Code::kOk);
}

TEST_F(HttpClientFaults, LimitsTheHeaders) {
  ServerAnswer answer;
  for (int i = 0; i < 100; ++i) answer.headers.push_back({"X", std::string(20000, 'v')});
  server_.Enqueue({answer});
  // Whose limit it meets depends on libcurl's version.
  EXPECT_THAT(CodeOf(Get()), ::testing::AnyOf(Code::kResourceExhausted, Code::kUnavailable));
}

TEST_F(HttpClientFaults, AGetIsSentAgainWhereAKeptConnectionIsDead) {
  ASSERT_EQ(CodeOf(Get()), Code::kOk);
  server_.Inject(DropFault(Cut::kClose));
  EXPECT_EQ(CodeOf(Get()), Code::kOk);
  EXPECT_EQ(server_.num_requests(), 3u);
  EXPECT_EQ(server_.num_connections(), 2u);
}

TEST_F(HttpClientFaults, APutIsNeverSentTwice) {
  for (std::string body : {"", "body"}) {
    ASSERT_EQ(CodeOf(Get()), Code::kOk);  // a connection to keep
    server_.ClearRequests();
    server_.Inject(DropFault(Cut::kClose), 1, IsPut);
    HttpRequest request = Request("PUT");
    request.body = AsBytes(body);
    auto got = client_->Fetch(request, {});
    EXPECT_EQ(CodeOf(got), Code::kUnavailable);
    EXPECT_EQ(server_.CountRequests(IsPut), 1u);
  }
}

TEST_F(HttpClientFaults, ConnectionsClosedByTheServerAreReplaced) {
  for (int i = 0; i < 5; ++i) {
    ASSERT_EQ(CodeOf(Get()), Code::kOk);
    server_.CloseIdle();
    while (server_.open_connections() > 0) std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_EQ(server_.num_connections(), 5u);
  EXPECT_EQ(server_.num_requests(), 5u);
}

TEST_F(HttpClientFaults, ATransferWithoutBytesStalls) {
  Open({.stall_timeout = milliseconds(200)});
  server_.Inject(HangFault());
  auto got = Get();
  EXPECT_EQ(CodeOf(got), Code::kUnavailable);
  EXPECT_THAT(got.status().ToString(), HasSubstr("200 ms"));
}

TEST_F(HttpClientFaults, ABodyThatStopsStalls) {
  Open({.stall_timeout = milliseconds(200)});
  server_.Inject(DripFault(1000, std::chrono::hours(1)), UINT64_MAX);
  auto stalled = Get();
  // Where the server was held up before it sent any, it is asked again.
  while (stalled.status().ToString().find(" 0 bytes") != std::string::npos) stalled = Get();
  EXPECT_EQ(CodeOf(stalled), Code::kUnavailable);
  EXPECT_THAT(stalled.status().ToString(), HasSubstr("1000 bytes"));
}

TEST_F(HttpClientFaults, ASlowBodyDoesNotStall) {
  Open({.stall_timeout = milliseconds(1000)});
  server_.SetHandler(ShortAnswer);
  const Fault drip = DripFault(1, milliseconds(10));  // longer in all than the timeout
  EXPECT_EQ(CodeOf(GetWithoutPause(Request(), drip, milliseconds(1000))), Code::kOk);
}

// The client's own thread is held up for longer than the timeout while bytes come.
TEST_F(HttpClientFaults, AClientThatWasHeldUpDoesNotTakeItForAStall) {
  const milliseconds timeout(800);
  Open({.stall_timeout = timeout});
  server_.SetHandler([](const ServerRequest&) {
    ServerAnswer answer;
    answer.body = std::string(8, 'x');
    return answer;
  });
  auto slow = [](const ServerRequest& request) { return request.target == "/slow"; };
  HttpRequest request = Request();
  request.url = server_.url() + "/slow";
  while (true) {
    server_.Heal();
    server_.Inject(DripFault(1, milliseconds(300)), 1, slow);
    server_.Inject(SlowFirstByteFault(milliseconds(120)));  // between two bytes of the slow one
    HttpCollector answers;
    const uint64_t before = server_.body_bytes_sent();
    server_.WatchPauses();
    client_->Submit(request, {}, answers.Next());
    while (server_.body_bytes_sent() == before && answers.num_done() == 0)
      std::this_thread::sleep_for(milliseconds(1));
    client_->Submit(Request(), {}, [&, done = answers.Next()](Result<HttpResponse> quick) {
      std::this_thread::sleep_for(timeout * 5 / 4);
      done(std::move(quick));
    });
    auto got = answers.Wait(2)[0];
    if (!got.ok() && server_.longest_pause() >= timeout / 2) continue;  // so was the server
    EXPECT_EQ(CodeOf(got), Code::kOk) << got.status().ToString();
    break;
  }
}

TEST_F(HttpClientFaults, ABodyThatDripsIntoABufferEnds) {
  Open({.slow_window = milliseconds(500), .slow_bytes = 1000});
  std::string into(1 << 20, '-');
  HttpRequest request = Request();
  request.into = {reinterpret_cast<std::byte*>(into.data()), into.size()};
  server_.Inject(DripFault(1, milliseconds(1)));  // never without a byte for long
  auto got = client_->Fetch(request, {});
  EXPECT_EQ(CodeOf(got), Code::kUnavailable);
  EXPECT_THAT(got.status().ToString(), HasSubstr("bytes came in 500 ms"));
  const Fault slow = DripFault(64 << 10, milliseconds(50));  // and more than that
  EXPECT_EQ(CodeOf(GetWithoutPause(request, slow, milliseconds(200))), Code::kOk);
}

TEST_F(HttpClientFaults, CanBeCancelledInTheBody) {
  std::atomic<bool> cancelled{false};
  server_.Inject(DripFault(1000, std::chrono::hours(1)));
  std::thread canceller([&] {
    while (server_.body_bytes_sent() < 1000) std::this_thread::sleep_for(milliseconds(1));
    cancelled = true;
  });
  auto got = Get({.cancelled = &cancelled});
  canceller.join();
  EXPECT_EQ(CodeOf(got), Code::kCancelled);
  EXPECT_THAT(got.status().ToString(), HasSubstr("GET " + server_.url()));
  EXPECT_EQ(CodeOf(Get()), Code::kOk);
}

TEST_F(HttpClientFaults, CanBeCancelledInABodyThatIsSent) {
  std::atomic<bool> cancelled{false};
  server_.Inject(HangFault());
  std::thread canceller([&] {
    WaitForRequests(1);
    cancelled = true;
  });
  const std::string body(1 << 20, 'b');
  HttpRequest request = Request("PUT");
  request.body = AsBytes(body);
  EXPECT_EQ(CodeOf(client_->Fetch(request, {.cancelled = &cancelled})), Code::kCancelled);
  canceller.join();
}

TEST_F(HttpClientFaults, WhatIsCancelledBeforeIsNotSent) {
  std::atomic<bool> cancelled{true};
  EXPECT_EQ(CodeOf(Get({.cancelled = &cancelled})), Code::kCancelled);
  EXPECT_EQ(CodeOf(Get({.deadline = Context::Clock::now() - milliseconds(1)})),
            Code::kDeadlineExceeded);
  EXPECT_EQ(server_.num_requests(), 0u);
}

TEST_F(HttpClientFaults, EndsAtTheDeadline) {
  server_.Inject(HangFault());
  EXPECT_EQ(CodeOf(Get({.deadline = Context::Clock::now() + milliseconds(100)})),
            Code::kDeadlineExceeded);
  server_.Heal();
  server_.Inject(DripFault(1, milliseconds(10)));  // hours in all, a byte at a time
  EXPECT_EQ(CodeOf(Get({.deadline = Context::Clock::now() + milliseconds(100)})),
            Code::kDeadlineExceeded);
  server_.Heal();
  EXPECT_EQ(CodeOf(Get()), Code::kOk);
}

TEST_F(HttpClientFaults, RequestsThatWaitCanEndToo) {
  Open({.max_connections = 1});
  std::atomic<bool> cancelled{false}, cancelled_first{false};
  server_.Inject(HangFault());
  HttpCollector answers;
  client_->Submit(Request(), {.cancelled = &cancelled_first}, answers.Next());
  WaitForRequests(1);
  client_->Submit(Request(), {.cancelled = &cancelled}, answers.Next());
  client_->Submit(Request(), {.deadline = Context::Clock::now() + milliseconds(50)},
                  answers.Next());
  client_->Submit(Request(), {}, answers.Next());
  answers.Wait(1);
  cancelled = true;
  answers.Wait(2);
  cancelled_first = true;
  auto all = answers.Wait(4);
  EXPECT_EQ(CodeOf(all[0]), Code::kCancelled);
  EXPECT_EQ(CodeOf(all[1]), Code::kCancelled);
  EXPECT_EQ(CodeOf(all[2]), Code::kDeadlineExceeded);
  EXPECT_EQ(CodeOf(all[3]), Code::kOk);
  EXPECT_EQ(server_.num_requests(), 2u);
}

TEST_F(HttpClientFaults, TheDestructorEndsWhatRunsAndWaits) {
  Open({.max_connections = 4});
  server_.Inject(HangFault(), 2);
  server_.Inject(DripFault(1000, std::chrono::hours(1)), 2);
  HttpCollector answers;
  for (int i = 0; i < 10; ++i) client_->Submit(Request(), {}, answers.Next());
  WaitForRequests(4);
  client_.reset();
  EXPECT_EQ(answers.num_done(), 10u);
  for (const auto& answer : answers.Wait(10)) EXPECT_EQ(CodeOf(answer), Code::kCancelled);
}

TEST_F(HttpClientFaults, WhatIsSubmittedWhileItClosesEndsToo) {
  server_.Inject(HangFault(), 10);
  HttpCollector answers;
  HttpClient::Done last = answers.Next(), wrong = answers.Next();
  client_->Submit(Request(), {}, [&, client = client_.get()](const Result<HttpResponse>& answer) {
    EXPECT_EQ(CodeOf(answer), Code::kCancelled);
    client->Submit(Request(), {}, [&, client](const Result<HttpResponse>&) {
      client->Submit({}, {}, wrong);
      client->Submit(Request(), {}, last);
    });
  });
  WaitForRequests(1);
  client_.reset();
  auto all = answers.Wait(2);
  EXPECT_EQ(CodeOf(all[0]), Code::kCancelled);
  EXPECT_FALSE(all[1].ok());
}

}  // namespace
}  // namespace headrace::net
