#include "headrace/env/tcp_socket.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "headrace/env/process.h"

namespace headrace {
namespace {

class TcpSocketTest : public ::testing::Test {
 protected:
  TcpSocketTest() {
    auto listener = TcpListener::Listen("127.0.0.1", 0);
    EXPECT_TRUE(listener.ok()) << listener.status().ToString();
    listener_ = *std::move(listener);
  }
  static Context Soon(int ms) {
    Context ctx;
    ctx.deadline = Context::Clock::now() + std::chrono::milliseconds(ms);
    return ctx;
  }
  // Both ends of a connection.
  void Join() {
    auto client = TcpSocket::Connect("127.0.0.1", listener_->port(), Soon(120'000));
    ASSERT_TRUE(client.ok()) << client.status().ToString();
    client_ = *std::move(client);
    auto server = listener_->Accept(Soon(120'000));
    ASSERT_TRUE(server.ok()) << server.status().ToString();
    server_ = *std::move(server);
  }

  std::unique_ptr<TcpListener> listener_;
  std::unique_ptr<TcpSocket> client_, server_;
};

MutableBytes Room(std::string* text) {
  return {reinterpret_cast<std::byte*>(text->data()), text->size()};
}

TEST_F(TcpSocketTest, CarriesMoreThanFitsIntoItsBuffersBothWays) {
  Join();
  std::string sent(20 << 20, '\0'), got(sent.size(), 'x');
  for (size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<char>(i * 7 + (i >> 12));
  std::thread echo([&] {
    std::string all(sent.size(), '\0');
    EXPECT_TRUE(server_->Receive(Room(&all), Context()).ok());
    EXPECT_TRUE(server_->Send(AsBytes(all), Context()).ok());
  });
  EXPECT_TRUE(client_->Send(AsBytes(sent), Context()).ok());
  EXPECT_TRUE(client_->Receive(Room(&got), Context()).ok());
  echo.join();
  EXPECT_EQ(got, sent);
}

TEST_F(TcpSocketTest, NoticesThatTheOtherSideIsGone) {
  Join();
  ASSERT_TRUE(client_->Send(AsBytes("half"), Context()).ok());
  client_.reset();
  std::string got(5, '\0');
  EXPECT_EQ(server_->Receive(Room(&got), Context()).code(), Code::kUnavailable);
  EXPECT_EQ(got.substr(0, 4), "half");
  Status sent;
  while (sent.ok()) sent = server_->Send(AsBytes(std::string(1 << 16, 'x')), Context());
  EXPECT_EQ(sent.code(), Code::kUnavailable);
}

TEST_F(TcpSocketTest, EndsAtTheDeadlineAndWhenCancelled) {
  Join();
  std::string got(1, '\0');
  EXPECT_EQ(server_->Receive(Room(&got), Soon(1)).code(), Code::kDeadlineExceeded);
  EXPECT_EQ(listener_->Accept(Soon(1)).status().code(), Code::kDeadlineExceeded);
  Status full;
  while (full.ok()) full = client_->Send(AsBytes(std::string(1 << 16, 'x')), Soon(50));
  EXPECT_EQ(full.code(), Code::kDeadlineExceeded);
  std::atomic<bool> cancelled{true};
  Context ctx;
  ctx.cancelled = &cancelled;
  EXPECT_EQ(client_->Receive(Room(&got), ctx).code(), Code::kCancelled);
}

TEST_F(TcpSocketTest, RefusesAddressesThatCannotWork) {
  EXPECT_EQ(TcpSocket::Connect("localhost", 80, {}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(TcpListener::Listen("1.2.3", 0).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(TcpListener::Listen("127.0.0.1", listener_->port()).status().code(),
            Code::kAlreadyExists);
  const uint16_t port = listener_->port();
  listener_.reset();
  EXPECT_EQ(TcpSocket::Connect("127.0.0.1", port, Soon(120'000)).status().code(),
            Code::kUnavailable);
}

TEST_F(TcpSocketTest, ReadsAndWritesEndpoints) {
  for (const char* text : {"127.0.0.1:9399", "[::1]:1", "0.0.0.0:0", "10.1.2.3:65535"}) {
    auto endpoint = ParseTcpEndpoint(text);
    ASSERT_TRUE(endpoint.ok()) << endpoint.status().ToString();
    EXPECT_EQ(endpoint->Text(), text);
  }
  EXPECT_EQ(ParseTcpEndpoint("localhost:7")->Text(), "127.0.0.1:7");
  for (const char* text : {"", ":", "127.0.0.1", "127.0.0.1:", ":80", "127.0.0.1:65536",
                           "127.0.0.1:8x", "node7:80", "::1", "[]:1", "[127.0.0.1:2"})
    EXPECT_EQ(ParseTcpEndpoint(text).status().code(), Code::kInvalidArgument) << text;
}

TEST_F(TcpSocketTest, LeavesNoDescriptorBehind) {
  const uint64_t open = *NumOpenFiles();
  Join();
  client_.reset();
  server_.reset();
  EXPECT_EQ(*NumOpenFiles(), open);
}

}  // namespace
}  // namespace headrace
