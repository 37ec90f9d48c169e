#include "headrace/agent/node_agent.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headrace/agent/dashboard.h"
#include "headrace/env/testing/memory_file_system.h"
#include "headrace/env/testing/raw_client.h"

namespace headrace::agent {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

const std::string kToken = "0123456789abcdef";

std::string Get(const std::string& path, const std::string& headers = "",
                const std::string& host = "127.0.0.1:9399") {
  return "GET " + path + " HTTP/1.1\r\nHost: " + host + "\r\n" + headers + "\r\n";
}

class NodeApiTest : public ::testing::Test {
 protected:
  NodeApiTest() {
    ProcessSnapshot one;
    one.job = "night";
    one.pid = 77;
    one.dataset = "/data/photos";
    open_.Look(1, {{"77-0.sock", one}});
    closed_.Look(1, {{"77-0.sock", one}});
  }
  std::string Ask(const std::string& request) {
    return open_.Answer(request).value_or("(waits for more)");
  }
  static Json Body(const std::string& answer) {
    auto json = Json::Parse(answer.substr(answer.find("\r\n\r\n") + 4));
    EXPECT_TRUE(json.ok()) << answer;
    return json.ok() ? *json : Json();
  }

  NodeApi open_{{}, ""}, closed_{{}, kToken};
};

TEST_F(NodeApiTest, TellsWhatItKnows) {
  EXPECT_THAT(Ask(Get("/healthz")), HasSubstr("\r\n\r\nok\n"));
  EXPECT_THAT(Ask(Get("/metrics")), HasSubstr("headrace_node_processes{state=\"live\"} 1\n"));
  EXPECT_THAT(Ask(Get("/metrics")), HasSubstr("run=\"night\",rank=\"0\",pid=\"77\""));
  for (const char* name : {"node", "history", "findings", "caches", "checkpoints", "datasets"}) {
    const std::string answer = Ask(Get(std::string("/api/v1/") + name));
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 ")) << name;
    EXPECT_EQ(Body(answer).Find("version")->AsUint(), 1u) << name;
  }
  EXPECT_EQ(Body(Ask(Get("/api/v1/node"))).Find("processes")->items()[0].Find("run")->AsString(),
            "night");
  EXPECT_THAT(Ask(Get("/api/v1/other")), StartsWith("HTTP/1.1 404 "));
  EXPECT_THAT(Ask(Get("/api/v2/node")), StartsWith("HTTP/1.1 404 "));
  EXPECT_THAT(Ask(Get("/../etc/passwd")), StartsWith("HTTP/1.1 404 "));
  EXPECT_THAT(Ask("POST /api/v1/node HTTP/1.1\r\nHost: localhost\r\n\r\n"),
              StartsWith("HTTP/1.1 405 "));
  EXPECT_THAT(Ask("nonsense\r\n\r\n"), StartsWith("HTTP/1.1 400 "));
  EXPECT_EQ(Ask("GET /metr"), "(waits for more)");
}

TEST_F(NodeApiTest, TheQueryIsRead) {
  auto points = [this](const std::string& query) {
    const Json body = Body(Ask(Get("/api/v1/history" + query)));
    const Json::Array& processes = body.Find("processes")->items();
    return processes.empty() ? 0 : processes[0].Find("points")->items().size();
  };
  EXPECT_EQ(points("?seconds=600&points=30"), 30u);
  EXPECT_EQ(points("?points=30&seconds=600"), 30u);
  EXPECT_EQ(points("?seconds=600&points=30&process=77-0.sock"), 30u);
  EXPECT_EQ(points("?seconds=600&points=30&process=no.sock"), 0u);
  // What cannot be read is as if it were not there; what is too much is bounded.
  EXPECT_EQ(points("?seconds=x&points=-1"), 120u);
  EXPECT_EQ(points("?points=99999999999999999999"), 120u);
  EXPECT_EQ(points("?seconds=604800000&points=100000"), 360u);
  EXPECT_EQ(points("?seconds=0&points=0"), 1u);
}

TEST_F(NodeApiTest, ATokenIsAskedForButNotForTheEmptyPage) {
  auto ask = [this](const std::string& request) { return *closed_.Answer(request); };
  for (const char* path : {"/metrics", "/api/v1/node", "/api/v1/history", "/other"}) {
    EXPECT_THAT(ask(Get(path)), StartsWith("HTTP/1.1 401 ")) << path;
    EXPECT_THAT(ask(Get(path)), Not(HasSubstr("night"))) << path;
    EXPECT_THAT(ask(Get(path)), Not(HasSubstr(kToken))) << path;
  }
  const std::string bearer = "Authorization: Bearer " + kToken + "\r\n";
  EXPECT_THAT(ask(Get("/api/v1/node", bearer)), StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(ask(Get("/api/v1/node", "Authorization: Bearer wrong\r\n")),
              StartsWith("HTTP/1.1 401 "));
  for (const char* path : {"/", "/dashboard.js", "/dashboard.css", "/healthz"}) {
    EXPECT_THAT(ask(Get(path)), StartsWith("HTTP/1.1 200 ")) << path;
    EXPECT_THAT(ask(Get(path)), Not(HasSubstr("night"))) << path;
  }
}

TEST_F(NodeApiTest, PagesOfOtherPlacesCannotAsk) {
  for (const char* path : {"/metrics", "/api/v1/node"}) {
    EXPECT_THAT(Ask(Get(path, "Origin: http://evil.example\r\n")), StartsWith("HTTP/1.1 403 "));
    EXPECT_THAT(Ask(Get(path, "Sec-Fetch-Site: cross-site\r\n")), StartsWith("HTTP/1.1 403 "));
    EXPECT_THAT(Ask(Get(path, "", "evil.example")), StartsWith("HTTP/1.1 403 "));
    EXPECT_THAT(Ask(Get(path, "Sec-Fetch-Site: same-origin\r\n")), StartsWith("HTTP/1.1 200 "));
  }
}

TEST_F(NodeApiTest, ThePageRunsOnlyWhatIsItsOwn) {
  const std::string page = Ask(Get("/"));
  EXPECT_THAT(page, HasSubstr("Content-Type: text/html; charset=utf-8\r\n"));
  EXPECT_THAT(page, HasSubstr("Content-Security-Policy: default-src 'none'; script-src 'self';"));
  EXPECT_THAT(page, Not(HasSubstr("unsafe")));
  for (const char* path : {"/", "/dashboard.js", "/dashboard.css"}) {
    const std::string_view content = FindDashboardFile(path)->content;
    EXPECT_GT(content.size(), 1000u) << path;
    // Nothing of it comes from elsewhere, and nothing that was fetched becomes markup.
    for (const char* never : {"https://", "innerHTML", "outerHTML", "insertAdjacentHTML",
                              "document.write", "eval(", "style=\"", "onclick="})
      EXPECT_THAT(std::string(content), Not(HasSubstr(never))) << path;
  }
  EXPECT_THAT(Ask(Get("/dashboard.js")), HasSubstr("Content-Type: text/javascript"));
  EXPECT_EQ(FindDashboardFile("/dashboard"), nullptr);
}

TEST(NodeAgent, SaysWhatIsWrongWithItsOptions) {
  MemoryFileSystem files;
  NodeAgent::Options options;
  options.stores.fs = &files;
  options.http.address = "0.0.0.0";
  EXPECT_THAT(std::string(NodeAgent::Start(options).status().message()), HasSubstr("token"));
  options.http.address = "127.0.0.1";
  options.interval = std::chrono::milliseconds(1);
  EXPECT_THAT(std::string(NodeAgent::Start(options).status().message()), HasSubstr("100 ms"));
}

TEST(NodeAgent, StartsAndEnds) {
  MemoryFileSystem files;
  NodeAgent::Options options;
  options.stores.fs = &files;
  auto agent = NodeAgent::Start(options);
  ASSERT_TRUE(agent.ok()) << agent.status().ToString();
  EXPECT_NE((*agent)->port(), 0);
}

TEST(NodeAgent, ClientsThatTakeWhatTheyCanHoldUpNobody) {
  MemoryFileSystem files;
  NodeAgent::Options options;
  options.stores.fs = &files;
  options.http.limits.timeout = std::chrono::hours(1);
  auto agent = NodeAgent::Start(options);
  ASSERT_TRUE(agent.ok()) << agent.status().ToString();
  const auto hostile = HostileClients((*agent)->port(), 200);
  for (const char* path : {"/metrics", "/api/v1/node", "/healthz"})
    EXPECT_THAT(AskUntilAnswered((*agent)->port(), Get(path)), StartsWith("HTTP/1.1 200 ")) << path;
}

}  // namespace
}  // namespace headrace::agent
