#include "headrace/env/exchange.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "headrace/env/file.h"
#include "headrace/env/testing/raw_client.h"
#include "headrace/env/testing/temporary_directory.h"

namespace headrace {
namespace {

// A request is a line; the answer is the line again.
std::optional<std::string> Echo(std::string_view received) {
  if (!received.ends_with('\n')) return std::nullopt;
  return "you said " + std::string(received);
}

class ExchangeTest : public ::testing::Test {
 protected:
  ExchangeTest() {
    EXPECT_EQ(::chmod(dir_.path().c_str(), 0700), 0);
    path_ = JoinPath(dir_.path(), "s");
  }
  std::unique_ptr<ExchangeServer> Listen(ExchangeServer::Answer answer = Echo) {
    ExchangeServer::Options options;
    options.timeout = std::chrono::minutes(4);  // a busy machine may hold up client and server
    auto server = ExchangeServer::ListenLocal(path_, options, std::move(answer));
    EXPECT_TRUE(server.ok()) << server.status().ToString();
    return server.ok() ? *std::move(server) : nullptr;
  }
  Result<std::string> Ask(const std::string& request) {
    Context ctx;
    ctx.deadline = Context::Clock::now() + std::chrono::minutes(4);
    return ExchangeLocal(path_, request, 1 << 20, ctx);
  }

  TemporaryDirectory dir_;
  std::string path_;
};

TEST_F(ExchangeTest, OneRequestOneAnswer) {
  auto server = Listen();
  auto answer = Ask("hello\n");
  ASSERT_TRUE(answer.ok()) << answer.status().ToString();
  EXPECT_EQ(*answer, "you said hello\n");
  EXPECT_EQ(*Ask("again\n"), "you said again\n");
}

TEST_F(ExchangeTest, ThePathIsForThisUserAndGoesWithTheServer) {
  auto server = Listen();
  struct stat info{};
  ASSERT_EQ(::stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  EXPECT_EQ(ExchangeServer::ListenLocal(path_, {}, Echo).status().code(), Code::kAlreadyExists);
  server.reset();
  EXPECT_NE(::stat(path_.c_str(), &info), 0);
  EXPECT_EQ(Ask("x\n").status().code(), Code::kNotFound);
}

TEST_F(ExchangeTest, RefusesAFolderThatOthersMayWriteTo) {
  ASSERT_EQ(::chmod(dir_.path().c_str(), 0777), 0);
  EXPECT_EQ(ExchangeServer::ListenLocal(path_, {}, Echo).status().code(),
            Code::kFailedPrecondition);
  EXPECT_EQ(ExchangeServer::ListenLocal(std::string(200, 'a'), {}, Echo).status().code(),
            Code::kInvalidArgument);
}

TEST_F(ExchangeTest, AnAnswerLargerThanASocketsBufferArrivesWhole) {
  std::string large(4 << 20, 'x');
  auto server = Listen([&](std::string_view) { return large; });
  Context ctx;
  auto answer = ExchangeLocal(path_, "x\n", 8 << 20, ctx);
  ASSERT_TRUE(answer.ok()) << answer.status().ToString();
  EXPECT_TRUE(*answer == large);
  EXPECT_EQ(ExchangeLocal(path_, "x\n", 1 << 20, ctx).status().code(), Code::kResourceExhausted);
}

TEST_F(ExchangeTest, ARequestBeyondTheLimitEndsTheConnection) {
  ExchangeServer::Options options;
  options.max_request_bytes = 100;
  auto server = ExchangeServer::ListenTcp("127.0.0.1", 0, options, Echo);
  ASSERT_TRUE(server.ok()) << server.status().ToString();
  RawClient client((*server)->port());
  client.Send(std::string(100, 'x'));
  EXPECT_EQ(client.ReadAll(), "");
}

TEST_F(ExchangeTest, ASlowClientIsSentAwayAndHoldsUpNobody) {
  ExchangeServer::Options options;
  options.timeout = std::chrono::milliseconds(200);
  options.max_connections = 4;
  auto server = ExchangeServer::ListenTcp("127.0.0.1", 0, options, Echo);
  ASSERT_TRUE(server.ok()) << server.status().ToString();
  // More than there is room for, and none says a whole line.
  std::vector<std::unique_ptr<RawClient>> slow;
  for (int i = 0; i < 12; ++i) {
    slow.push_back(std::make_unique<RawClient>((*server)->port()));
    slow.back()->Send("hel");
  }
  EXPECT_EQ(AskUntilAnswered((*server)->port(), "hello\n"), "you said hello\n");
  for (auto& client : slow) EXPECT_EQ(client->ReadAll(), "");
}

TEST_F(ExchangeTest, AClientThatDoesNotReadIsSentAway) {
  ExchangeServer::Options options;
  options.timeout = std::chrono::milliseconds(200);
  options.max_connections = 1;
  std::atomic<int> answers{0};
  auto server = ExchangeServer::ListenTcp("127.0.0.1", 0, options, [&](std::string_view) {
    ++answers;
    return std::string(answers == 1 ? 64 << 20 : 5, 'x');
  });
  ASSERT_TRUE(server.ok()) << server.status().ToString();
  RawClient deaf((*server)->port());
  deaf.Send("x\n");
  while (answers == 0) std::this_thread::yield();
  EXPECT_EQ(AskUntilAnswered((*server)->port(), "x\n"), "xxxxx");
}

// What came in time is answered, though the server comes to it late.
TEST_F(ExchangeTest, AServerThatWasHeldUpDoesNotTakeItOutOnTheClient) {
  ExchangeServer::Options options;
  options.timeout = std::chrono::milliseconds(200);
  std::atomic<bool> held{false}, go{false};
  auto server = ExchangeServer::ListenTcp("127.0.0.1", 0, options, [&](std::string_view received) {
    held = held || received == "hold\n";
    while (held && !go) std::this_thread::yield();
    return Echo(received);
  });
  ASSERT_TRUE(server.ok()) << server.status().ToString();
  std::string answer;
  while (answer.empty()) {  // again where it was this thread that was held up for so long
    held = go = false;
    RawClient client((*server)->port());
    std::jthread holder([&] { (void)AskUntilAnswered((*server)->port(), "hold\n"); });
    while (!held) std::this_thread::yield();
    client.Send("hello\n");
    std::this_thread::sleep_for(options.timeout * 3 / 2);
    go = true;
    answer = client.ReadAll();
  }
  EXPECT_EQ(answer, "you said hello\n");
}

// The timeout never comes: places are given up because others wait.
TEST_F(ExchangeTest, ThoseWhoSayNothingGiveWay) {
  ExchangeServer::Options options;
  options.timeout = std::chrono::hours(1);
  auto server = ExchangeServer::ListenTcp("127.0.0.1", 0, options, Echo);
  ASSERT_TRUE(server.ok()) << server.status().ToString();
  std::vector<std::unique_ptr<RawClient>> silent;
  for (int i = 0; i < 100; ++i) {
    silent.push_back(std::make_unique<RawClient>((*server)->port()));
    if (i % 2 == 0) silent.back()->Send("hel");
  }
  EXPECT_EQ(AskUntilAnswered((*server)->port(), "hello\n"), "you said hello\n");
  EXPECT_EQ(silent[0]->ReadAll(), "");  // the first ones had to go
}

TEST_F(ExchangeTest, NobodyGivesWayWhileThereIsRoom) {
  ExchangeServer::Options options;
  options.timeout = std::chrono::hours(1);
  options.grace = std::chrono::nanoseconds(0);
  options.max_connections = 2;
  auto server = ExchangeServer::ListenTcp("127.0.0.1", 0, options, Echo);
  ASSERT_TRUE(server.ok()) << server.status().ToString();
  RawClient slow((*server)->port());
  slow.Send("hel");
  for (int i = 0; i < 20; ++i)
    EXPECT_EQ(AskUntilAnswered((*server)->port(), "x\n"), "you said x\n");
  slow.Send("lo\n");
  EXPECT_EQ(slow.ReadAll(), "you said hello\n");
}

TEST_F(ExchangeTest, ARequestInVeryManyPiecesEndsTheConnection) {
  ExchangeServer::Options options;
  options.timeout = std::chrono::hours(1);
  options.max_pieces = 20;
  std::atomic<size_t> looks{0};
  auto server = ExchangeServer::ListenTcp("127.0.0.1", 0, options, [&](std::string_view received) {
    ++looks;
    return Echo(received);
  });
  ASSERT_TRUE(server.ok()) << server.status().ToString();
  RawClient client((*server)->port());
  for (size_t sent = 1; sent <= options.max_pieces; ++sent) {
    client.Send("x");
    while (looks < sent) std::this_thread::yield();
  }
  EXPECT_EQ(client.ReadAll(), "");
  EXPECT_EQ(looks, options.max_pieces);
}

TEST_F(ExchangeTest, OfManyRequestsAtOnceTheFirstIsAnswered) {
  std::atomic<int> answers{0};
  auto server = Listen([&](std::string_view received) {
    ++answers;
    return std::optional<std::string>(received.substr(0, received.find('\n') + 1));
  });
  RawClient client(path_);
  client.Send("1\n2\n3\n");
  EXPECT_EQ(client.ReadAll(), "1\n");
  EXPECT_EQ(answers, 1);
}

TEST_F(ExchangeTest, AClientThatGoesAwayInTheMiddleIsForgotten) {
  auto server = ExchangeServer::ListenTcp("127.0.0.1", 0, {}, Echo);
  ASSERT_TRUE(server.ok()) << server.status().ToString();
  for (int i = 0; i < 50; ++i) {
    RawClient client((*server)->port());
    client.Send("no line end");
  }
  EXPECT_EQ(AskUntilAnswered((*server)->port(), "hello\n"), "you said hello\n");
}

TEST_F(ExchangeTest, EndsWhileClientsAreConnected) {
  auto server = ExchangeServer::ListenTcp("127.0.0.1", 0, {}, Echo);
  ASSERT_TRUE(server.ok()) << server.status().ToString();
  RawClient client((*server)->port());
  client.Send("hel");
  server->reset();
  EXPECT_EQ(client.ReadAll(), "");
}

TEST_F(ExchangeTest, AddressesAreNumeric) {
  auto port_of = [](const std::string& address) {
    auto server = ExchangeServer::ListenTcp(address, 0, {}, Echo);
    return server.ok() ? (*server)->port() : 0;
  };
  EXPECT_NE(port_of("127.0.0.1"), 0);
  EXPECT_EQ(ExchangeServer::ListenTcp("example.org", 0, {}, Echo).status().code(),
            Code::kInvalidArgument);
  auto first = ExchangeServer::ListenTcp("127.0.0.1", 0, {}, Echo);
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(ExchangeServer::ListenTcp("127.0.0.1", (*first)->port(), {}, Echo).status().code(),
            Code::kAlreadyExists);
  EXPECT_TRUE(IsLoopback("127.0.0.1"));
  EXPECT_TRUE(IsLoopback("127.8.9.1"));
  EXPECT_TRUE(IsLoopback("::1"));
  EXPECT_FALSE(IsLoopback("0.0.0.0"));
  EXPECT_FALSE(IsLoopback("::"));
  EXPECT_FALSE(IsLoopback("localhost"));
}

}  // namespace
}  // namespace headrace
