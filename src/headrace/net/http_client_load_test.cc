// Many requests at once: limits of connections, order of waiting, many threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "headrace/net/http_client.h"
#include "headrace/net/testing/client_sockets.h"
#include "headrace/net/testing/fault_server.h"
#include "headrace/net/testing/http_collector.h"
#include "headrace/net/testing/patient_options.h"

namespace headrace::net {
namespace {

using std::chrono::milliseconds;

// Answers with the target, so that each request can tell that the answer is its own.
ServerAnswer Echo(const ServerRequest& request) {
  ServerAnswer answer;
  for (size_t i = 0; i < 1000; ++i) answer.body += request.target;
  return answer;
}

std::string Expected(const std::string& target) {
  std::string body;
  for (size_t i = 0; i < 1000; ++i) body += target;
  return body;
}

HttpRequest Get(const FaultServer& server, const std::string& target) {
  HttpRequest request;
  request.url = server.url() + target;
  return request;
}

void Raise(std::atomic<size_t>* most, size_t value) {
  size_t before = *most;
  while (before < value && !most->compare_exchange_weak(before, value)) {
  }
}

TEST(HttpClientLoad, ManyRequestsShareFewConnections) {
  FaultServer server(Echo);
  auto client = *HttpClient::Create(Patient({.max_connections = 8, .max_connections_per_host = 8}));
  HttpCollector answers;
  for (int i = 0; i < 200; ++i)
    client->Submit(Get(server, "/" + std::to_string(i)), {}, answers.Next());
  auto all = answers.Wait(200);
  for (int i = 0; i < 200; ++i) {
    ASSERT_TRUE(all[i].ok()) << i << ": " << all[i].status().ToString();
    EXPECT_EQ(all[i]->body, Expected("/" + std::to_string(i)));
  }
  EXPECT_EQ(server.num_requests(), 200u);
  EXPECT_LE(server.num_connections(), 8u);
  EXPECT_LE(server.peak_requests(), 8u);
}

TEST(HttpClientLoad, UsesAsManyConnectionsAsItMay) {
  FaultServer server;
  server.Inject(HangFault(), 100);
  auto client = *HttpClient::Create(Patient({.max_connections = 8, .max_connections_per_host = 8}));
  HttpCollector answers;
  for (int i = 0; i < 20; ++i) client->Submit(Get(server, "/"), {}, answers.Next());
  while (server.num_requests() < 8) std::this_thread::sleep_for(milliseconds(1));
  client.reset();
  EXPECT_EQ(server.num_requests(), 8u);
  EXPECT_EQ(server.num_connections(), 8u);
}

TEST(HttpClientLoad, LimitsConnectionsToEachHostAndToAll) {
  FaultServer first, second, third;
  FaultServer* servers[] = {&first, &second, &third};
  std::atomic<size_t> most_to_one{0}, most{0};
  for (FaultServer* server : servers)
    server->SetHandler([&](const ServerRequest& request) {
      const uint16_t ports[] = {first.port(), second.port(), third.port()};
      for (const uint16_t& port : ports) Raise(&most_to_one, SocketsAtOnce({&port, 1}));
      Raise(&most, SocketsAtOnce(ports));
      return Echo(request);
    });
  auto client = *HttpClient::Create(Patient({.max_connections = 4, .max_connections_per_host = 2}));
  HttpCollector answers;
  for (int i = 0; i < 90; ++i)
    client->Submit(Get(*servers[i % 3], "/" + std::to_string(i)), {}, answers.Next());
  auto all = answers.Wait(90);
  for (int i = 0; i < 90; ++i) {
    ASSERT_TRUE(all[i].ok()) << i << ": " << all[i].status().ToString();
    EXPECT_EQ(all[i]->body, Expected("/" + std::to_string(i)));
  }
  EXPECT_LE(most_to_one, 2u);
  EXPECT_LE(most, 4u);
}

TEST(HttpClientLoad, ASlowHostDoesNotHoldUpAnother) {
  FaultServer slow, fast(Echo);
  slow.Inject(HangFault(), 100);
  auto client = *HttpClient::Create(Patient({.max_connections = 3, .max_connections_per_host = 2}));
  std::atomic<bool> cancelled{false};
  HttpCollector slow_answers, fast_answers;
  for (int i = 0; i < 10; ++i)
    client->Submit(Get(slow, "/"), {.cancelled = &cancelled}, slow_answers.Next());
  for (int i = 0; i < 10; ++i) client->Submit(Get(fast, "/"), {}, fast_answers.Next());
  for (const auto& answer : fast_answers.Wait(10)) EXPECT_TRUE(answer.ok());
  EXPECT_EQ(slow_answers.num_done(), 0u);
  cancelled = true;
  slow_answers.Wait(10);
}

// Idle connections count too: those to one server make room for those to another.
TEST(HttpClientLoad, IdleConnectionsStayWithinTheLimit) {
  FaultServer first, second;
  std::atomic<size_t> most{0};
  auto count = [&](const ServerRequest& request) {
    const uint16_t ports[] = {first.port(), second.port()};
    Raise(&most, SocketsAtOnce(ports));
    return Echo(request);
  };
  first.SetHandler(count);
  second.SetHandler(count);
  FaultServer* servers[] = {&first, &second};
  auto client = *HttpClient::Create(Patient({.max_connections = 2, .max_connections_per_host = 2}));
  for (int round = 0; round < 6; ++round) {
    HttpCollector answers;
    for (int i = 0; i < 10; ++i) client->Submit(Get(*servers[round % 2], "/x"), {}, answers.Next());
    for (const auto& answer : answers.Wait(10)) EXPECT_TRUE(answer.ok());
  }
  // One is enough where each answer comes before the next request is submitted.
  EXPECT_GE(most, 1u);
  EXPECT_LE(most, 2u);
}

TEST(HttpClientLoad, WaitingRequestsStartInTheOrderOfSubmission) {
  FaultServer server(Echo);
  auto client = *HttpClient::Create(Patient({.max_connections = 1}));
  HttpCollector answers;
  for (int i = 0; i < 50; ++i)
    client->Submit(Get(server, "/" + std::to_string(i)), {}, answers.Next());
  answers.Wait(50);
  auto requests = server.requests();
  ASSERT_EQ(requests.size(), 50u);
  for (int i = 0; i < 50; ++i) EXPECT_EQ(requests[i].target, "/" + std::to_string(i));
  EXPECT_EQ(server.num_connections(), 1u);
}

TEST(HttpClientLoad, ManyThreadsMaySubmit) {
  FaultServer server(Echo);
  auto client = *HttpClient::Create(Patient({.max_connections = 6}));
  std::atomic<int> good{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 30; ++i) {
        std::string target = "/" + std::to_string(t) + "-" + std::to_string(i);
        auto got = client->Fetch(Get(server, target), {});
        if (got.ok() && got->body == Expected(target)) ++good;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(good, 240);
  EXPECT_LE(server.num_connections(), 6u);
}

TEST(HttpClientLoad, AnAnswerMaySubmitTheNextRequest) {
  FaultServer server(Echo);
  auto client = *HttpClient::Create(Patient());
  HttpCollector answers;
  HttpClient::Done last = answers.Next();
  int left = 100;
  std::function<void(Result<HttpResponse>)> next = [&](Result<HttpResponse> answer) {
    if (!answer.ok() || --left == 0) return last(std::move(answer));
    client->Submit(Get(server, "/"), {}, next);
  };
  client->Submit(Get(server, "/"), {}, next);
  EXPECT_TRUE(answers.Wait(1)[0].ok());
  EXPECT_EQ(server.num_requests(), 100u);
  EXPECT_EQ(server.num_connections(), 1u);
}

// Faults of every kind in a storm of requests: each ends once, and none is a wrong body.
TEST(HttpClientLoad, AStormOfFaultsEndsEveryRequestOnce) {
  FaultServer server(Echo);
  for (int i = 0; i < 10; ++i) {
    server.Inject(StatusFault(503), 3);
    server.Inject(CutFault(100 * i), 2);
    server.Inject(ShortBodyFault(), 2);
    server.Inject(DropFault(), 2);
    server.Inject(DripFault(500, milliseconds(1)), 3);
    server.Inject(HangFault(), 1);
  }
  auto client =
      *HttpClient::Create(Patient({.max_connections = 8, .stall_timeout = milliseconds(500)}));
  HttpCollector answers;
  for (int i = 0; i < 300; ++i)
    client->Submit(Get(server, "/" + std::to_string(i)), {}, answers.Next());
  auto all = answers.Wait(300);
  int good = 0;
  for (int i = 0; i < 300; ++i) {
    if (!all[i].ok()) {
      EXPECT_THAT(all[i].status().code(), Code::kUnavailable) << all[i].status().ToString();
    } else if (all[i]->status == 200) {
      ++good;
      EXPECT_EQ(all[i]->body, Expected("/" + std::to_string(i)));
    }
  }
  EXPECT_EQ(answers.num_done(), 300u);
  // No fault is left now. Where the machine holds the server up, transfers stall, and no more.
  for (int i = 300; good <= 100; ++i) {
    std::string target = "/" + std::to_string(i);
    auto got = client->Fetch(Get(server, target), {});
    if (got.ok() && got->status == 200 && got->body == Expected(target)) ++good;
  }
  client.reset();
  EXPECT_EQ(answers.num_done(), 300u);
}

}  // namespace
}  // namespace headrace::net
