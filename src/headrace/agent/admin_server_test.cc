#include "headrace/agent/admin_server.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <utility>

#include "headrace/base/json.h"
#include "headrace/env/file.h"
#include "headrace/env/process.h"
#include "headrace/env/process_usage.h"
#include "headrace/env/testing/raw_client.h"
#include "headrace/env/testing/temporary_directory.h"

namespace headrace::agent {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

const std::string kToken = "0123456789abcdef";

class AdminApiTest : public ::testing::Test {
 protected:
  AdminApiTest() {
    part_ = watch_.Add(
        [this](ProcessSnapshot* snapshot) {
          snapshot->dataset = "s3://bucket/photos";
          snapshot->settings = {{"threads", threads_, 1, 8}};
        },
        [this](const std::string& name, uint64_t value) -> Result<uint64_t> {
          if (name != "threads") return Error(Code::kNotFound, "none of mine");
          if (value < 1 || value > 8) return Error(Code::kInvalidArgument, "threads: 1 to 8");
          return std::exchange(threads_, value);
        });
  }
  std::string Ask(const std::string& request, const AdminApi::Access& access = {}) {
    return AdminApi(&watch_, access).Answer(request).value_or("(waits for more)");
  }
  static std::string Get(const std::string& path, const std::string& headers = "") {
    return "GET " + path + " HTTP/1.1\r\nHost: 127.0.0.1:9400\r\n" + headers + "\r\n";
  }
  static std::string Post(const std::string& body,
                          const std::string& headers = "Content-Type: application/json\r\n") {
    return "POST /settings HTTP/1.1\r\nHost: localhost\r\n" + headers +
           "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
  }

  ProcessWatch watch_;
  uint64_t threads_ = 2;
  std::unique_ptr<ProcessWatch::Part> part_;
};

TEST_F(AdminApiTest, AnswersWhatIsAsked) {
  EXPECT_THAT(Ask(Get("/healthz")), HasSubstr("\r\n\r\nok\n"));
  EXPECT_THAT(Ask(Get("/metrics")), HasSubstr("Content-Type: text/plain; version=0.0.4\r\n"));
  EXPECT_THAT(Ask(Get("/metrics")), HasSubstr("headrace_process_cpu_seconds_total{"));
  const std::string answer = Ask(Get("/snapshot"));
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 "));
  auto json = Json::Parse(answer.substr(answer.find("\r\n\r\n") + 4));
  ASSERT_TRUE(json.ok()) << json.status().ToString();
  EXPECT_EQ(json->Find("dataset")->AsString(), "s3://bucket/photos");
  EXPECT_THAT(Ask(Get("/other")), StartsWith("HTTP/1.1 404 "));
  EXPECT_THAT(Ask("DELETE /metrics HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 405 "));
  EXPECT_THAT(Ask("nonsense\r\n\r\n"), StartsWith("HTTP/1.1 400 "));
  EXPECT_EQ(Ask("GET /metr"), "(waits for more)");
}

TEST_F(AdminApiTest, SettingsChangeInsideTheirBounds) {
  EXPECT_THAT(Ask(Post(R"({"threads": 5})")), HasSubstr(R"("value": 5)"));
  EXPECT_EQ(threads_, 5u);
  EXPECT_THAT(Ask(Post(R"({"threads": 9})")), HasSubstr("1 to 8"));
  EXPECT_THAT(Ask(Post(R"({"threads": -3})")), StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(Ask(Post(R"({"threads": "5"})")), StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(Ask(Post(R"({"memory": 5})")), StartsWith("HTTP/1.1 404 "));
  EXPECT_THAT(Ask(Post("[]")), StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(Ask(Post("{")), StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(Ask(Get("/settings")), StartsWith("HTTP/1.1 405 "));
  EXPECT_THAT(Ask(Post(R"({"threads": 6})"), {.token = "", .local = true, .read_only = true}),
              StartsWith("HTTP/1.1 403 "));
  EXPECT_EQ(threads_, 5u);
  // Who it was is told to everybody who looks.
  EXPECT_THAT(Ask(Post(R"({"threads": 4})",
                       "Content-Type: application/json\r\nUser-Agent: curl/8 \xff\r\n")),
              StartsWith("HTTP/1.1 200 "));
  const ProcessSnapshot told = watch_.Snapshot();
  ASSERT_EQ(told.changes.size(), 2u);
  EXPECT_EQ(told.changes[0].by, "the admin socket");
  EXPECT_EQ(told.changes[1].from, 5u);
  EXPECT_EQ(told.changes[1].to, 4u);
  EXPECT_THAT(told.changes[1].by, StartsWith("curl/8"));
  EXPECT_TRUE(Json::Parse(told.ToJson().Dump()).ok());
}

TEST_F(AdminApiTest, ATokenIsAskedForAndNeverTold) {
  const AdminApi::Access access{.token = kToken, .local = false, .read_only = false};
  for (const char* path : {"/metrics", "/snapshot", "/other"}) {
    EXPECT_THAT(Ask(Get(path), access), StartsWith("HTTP/1.1 401 ")) << path;
    EXPECT_THAT(Ask(Get(path), access), Not(HasSubstr(kToken)));
  }
  EXPECT_THAT(Ask(Post(R"({"threads": 5})"), access), StartsWith("HTTP/1.1 401 "));
  for (const std::string& wrong :
       {std::string("Basic ") + kToken, std::string("Bearer "), "Bearer " + kToken + "x",
        "Bearer " + kToken.substr(1), std::string("Bearer 0123456789abcdeF")})
    EXPECT_THAT(Ask(Get("/metrics", "Authorization: " + wrong + "\r\n"), access),
                StartsWith("HTTP/1.1 401 "))
        << wrong;
  EXPECT_THAT(Ask(Get("/metrics", "Authorization: Bearer " + kToken + "\r\n"), access),
              StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(Ask(Get("/healthz"), access), StartsWith("HTTP/1.1 200 "));
  EXPECT_EQ(threads_, 2u);
}

TEST_F(AdminApiTest, PagesOfABrowserCannotAsk) {
  const AdminApi::Access http{.token = "", .local = false, .read_only = false};
  EXPECT_THAT(Ask(Get("/snapshot", "Origin: http://evil.example\r\n"), http),
              StartsWith("HTTP/1.1 403 "));
  EXPECT_THAT(Ask(Get("/snapshot", "Sec-Fetch-Site: cross-site\r\n"), http),
              StartsWith("HTTP/1.1 403 "));
  // A name that was made to lead here.
  EXPECT_THAT(Ask("GET /snapshot HTTP/1.1\r\nHost: evil.example:9400\r\n\r\n", http),
              StartsWith("HTTP/1.1 403 "));
  EXPECT_THAT(Ask("GET /snapshot HTTP/1.1\r\nHost: [::1]:9400\r\n\r\n", http),
              StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(Ask(Post(R"({"threads": 5})", "Content-Type: text/plain\r\n"), http),
              StartsWith("HTTP/1.1 415 "));
  EXPECT_EQ(threads_, 2u);
}

TEST_F(AdminApiTest, TracesForAsLongAsItIsAskedTo) {
  auto post = [](const std::string& body) {
    return "POST /trace HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
           "Content-Length: " +
           std::to_string(body.size()) + "\r\n\r\n" + body;
  };
  EXPECT_THAT(Ask(post(R"({"seconds": 0})")), StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(Ask(post(R"({"seconds": 61})")), StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(Ask(post(R"({"seconds": "5"})")), StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(Ask(post(R"({"threads": 5})")), StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(Ask(post(R"({"seconds": 5})"), {.token = "", .local = true, .read_only = true}),
              StartsWith("HTTP/1.1 403 "));
  EXPECT_THAT(Ask(post(R"({"seconds": 60})")), HasSubstr(R"("next": )"));
  EXPECT_TRUE(TraceIsOn());
  for (const char* path : {"/trace", "/trace?from=", "/trace?from=-1", "/trace?from=1x"})
    EXPECT_THAT(Ask(Get(path)), StartsWith("HTTP/1.1 400 ")) << path;
  EXPECT_THAT(Ask("DELETE /trace HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 405 "));
  const uint64_t next = *KeepTraceOn(std::chrono::seconds(60));
  watch_.BookSave({.step = 7, .published = true, .work_ns = 10, .written_bytes = 4096});
  EXPECT_THAT(Ask(Get("/trace?from=" + std::to_string(next))),
              HasSubstr(R"(["save",0,0,0,7,4096,)"));
}

class AdminSocketTest : public AdminApiTest {
 protected:
  AdminSocketTest() { ::setenv("HEADRACE_RUNTIME_DIR", (dir_ / "run").c_str(), 1); }
  ~AdminSocketTest() override { ::unsetenv("HEADRACE_RUNTIME_DIR"); }
  static Context Soon() {
    Context ctx;
    ctx.deadline = Context::Clock::now() + std::chrono::seconds(60);
    return ctx;
  }
  TemporaryDirectory dir_;
};

TEST_F(AdminSocketTest, IsFoundAndTells) {
  EXPECT_TRUE(FindAdminSockets()->empty());
  auto socket = AdminSocket::Start(&watch_);
  ASSERT_TRUE(socket.ok()) << socket.status().ToString();
  auto found = FindAdminSockets(ProcessId());
  ASSERT_TRUE(found.ok());
  ASSERT_EQ(*found, std::vector<std::string>{(*socket)->path()});
  EXPECT_TRUE(FindAdminSockets(ProcessId() + 1)->empty());
  auto snapshot = AskSnapshot((*socket)->path(), Soon());
  ASSERT_TRUE(snapshot.ok()) << snapshot.status().ToString();
  EXPECT_EQ(snapshot->pid, ProcessId());
  EXPECT_EQ(snapshot->dataset, "s3://bucket/photos");
  EXPECT_TRUE(AskSetting((*socket)->path(), "threads", 7, "a test", Soon()).ok());
  EXPECT_EQ(threads_, 7u);
  EXPECT_EQ(AskSnapshot((*socket)->path(), Soon())->changes.at(0).by, "a test");
  Status refused = AskSetting((*socket)->path(), "threads", 9, "a test", Soon());
  EXPECT_EQ(refused.code(), Code::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("1 to 8"));
  EXPECT_EQ(AskSetting((*socket)->path(), "other", 9, "a test", Soon()).code(), Code::kNotFound);
  socket->reset();
  EXPECT_TRUE(FindAdminSockets()->empty());
}

TEST_F(AdminSocketTest, IsAskedForATrace) {
  auto socket = AdminSocket::Start(&watch_);
  ASSERT_TRUE(socket.ok()) << socket.status().ToString();
  auto begun = AskToTrace((*socket)->path(), 60, Soon());
  ASSERT_TRUE(begun.ok()) << begun.status().ToString();
  EXPECT_LE(begun->now_ns, NowNanos());
  for (uint64_t step = 0; step < 3000; ++step) watch_.BookSave({.step = step});
  std::vector<TraceEvent> events;
  for (uint64_t from = begun->next; events.size() < 3000;) {
    auto chunk = AskTrace((*socket)->path(), from, Soon());
    ASSERT_TRUE(chunk.ok()) << chunk.status().ToString();
    ASSERT_FALSE(chunk->events.empty());
    EXPECT_EQ(chunk->lost, 0u);
    events.insert(events.end(), chunk->events.begin(), chunk->events.end());
    from = chunk->next;
  }
  for (uint64_t step = 0; step < 3000; ++step) ASSERT_EQ(events[step].id, step);
}

TEST_F(AdminSocketTest, WhatAKilledProcessLeftIsRemoved) {
  std::string left;
  {
    auto socket = AdminSocket::Start(&watch_);
    ASSERT_TRUE(socket.ok());
    left = (*socket)->path();
  }
  ASSERT_TRUE(PosixFileSystem()->WriteAtomically(left, AsBytes("x")).ok());
  EXPECT_EQ(AskSnapshot(left, Soon()).status().code(), Code::kNotFound);
  EXPECT_TRUE(PosixFileSystem()->Exists(left));  // it may be that of a process that just begins
  const timespec long_ago[2] = {{1'000'000, 0}, {1'000'000, 0}};
  ASSERT_EQ(::utimensat(AT_FDCWD, left.c_str(), long_ago, 0), 0);
  EXPECT_EQ(AskSnapshot(left, Soon()).status().code(), Code::kNotFound);
  EXPECT_FALSE(PosixFileSystem()->Exists(left));
}

// No timeout helps: what the clients take is bounded, and others are answered all the same.
TEST_F(AdminSocketTest, ClientsThatTakeWhatTheyCanHoldUpNobody) {
  constexpr int kClients = 200;
  HttpOptions options;
  options.limits.timeout = std::chrono::hours(1);
  auto http = AdminHttp::Start(&watch_, options);
  ASSERT_TRUE(http.ok()) << http.status().ToString();
  auto socket = AdminSocket::Start(&watch_);
  ASSERT_TRUE(socket.ok()) << socket.status().ToString();
  const uint64_t files = *NumOpenFiles();
  const auto over_http = HostileClients((*http)->port(), kClients);
  const auto over_socket = HostileClients((*socket)->path(), kClients);
  EXPECT_THAT(AskUntilAnswered((*http)->port(), Get("/metrics")), StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(AskUntilAnswered((*socket)->path(), Get("/snapshot")), StartsWith("HTTP/1.1 200 "));
  // Those of the clients, and sixteen of each server and one that it takes in place of another.
  EXPECT_LE(*NumOpenFiles(),
            files + 2 * (kClients + ExchangeServer::Options().max_connections + 1));
}

TEST_F(AdminSocketTest, HttpIsForThisMachineOrWantsAToken) {
  auto open = AdminHttp::Start(&watch_, {.address = "0.0.0.0", .port = 0, .token = ""});
  EXPECT_EQ(open.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(std::string(open.status().message()), HasSubstr("token"));
  auto weak = AdminHttp::Start(&watch_, {.address = "0.0.0.0", .port = 0, .token = "short"});
  EXPECT_EQ(weak.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(std::string(weak.status().message()), Not(HasSubstr("short,")));
  auto local = AdminHttp::Start(&watch_, {});
  ASSERT_TRUE(local.ok()) << local.status().ToString();
  EXPECT_NE((*local)->port(), 0);
}

}  // namespace
}  // namespace headrace::agent
