// The server of peers, spoken to by hand.
#include "headrace/object/peer/peer_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "headrace/env/file.h"
#include "headrace/env/testing/temporary_directory.h"
#include "headrace/object/peer/peer_protocol.h"
#include "headrace/object/peer/peer_store.h"
#include "headrace/object/peer/peer_stream.h"
#include "headrace/object/peer/token.h"

namespace headrace::object {
namespace {

using ::testing::HasSubstr;

constexpr std::chrono::minutes kPatience(10);  // out of reach
constexpr char kToken[] = "a token of enough letters";

class PeerServerTest : public ::testing::Test {
 protected:
  void Start(uint64_t size_bytes = 1 << 20) {
    PeerServerOptions options;
    options.token = kToken;
    options.size_bytes = size_bytes;
    options.patience = kPatience;
    server_.reset();
    auto server = PeerServer::Start(folder_ / "kept", options);
    ASSERT_TRUE(server.ok()) << server.status().ToString();
    server_ = *std::move(server);
  }
  std::shared_ptr<ObjectStore> Open() const {
    return *OpenPeerStore(server_->endpoint().Text(),
                          {.token = kToken, .threads = 2, .patience = kPatience});
  }

  // A connection that has been greeted; returns the nonce.
  std::string Connect() {
    auto socket = TcpSocket::Connect("127.0.0.1", server_->endpoint().port, {});
    EXPECT_TRUE(socket.ok()) << socket.status().ToString();
    socket_ = *std::move(socket);
    auto greeting = Receive();
    EXPECT_TRUE(greeting.ok()) << greeting.status().ToString();
    return greeting.ok() ? greeting->next : "";
  }
  void ConnectAndSayHello() {
    PeerRequest hello;
    hello.key = TokenProof(kToken, Connect());
    auto welcome = Ask(hello);
    ASSERT_TRUE(welcome.ok() && welcome->status.ok());
  }
  Result<PeerAnswer> Receive() {
    HR_ASSIGN_OR_RETURN(const PeerHead head,
                        ReceivePeerHead(socket_.get(), kMaxPeerAnswerBytes, {}));
    std::vector<std::byte> data;
    HR_RETURN_IF_ERROR(ReceivePeerData(socket_.get(), head.frame, &data, {}));
    return DecodePeerAnswer(AsBytes(head.bytes));
  }
  Result<PeerAnswer> Ask(const PeerRequest& request, std::string_view data = {}) {
    HR_RETURN_IF_ERROR(
        SendPeerMessage(socket_.get(), EncodePeerRequest(request), AsBytes(data), {}));
    return Receive();
  }
  // Whatever was sent, the server ends the connection.
  void ExpectSentAway() { EXPECT_EQ(Receive().status().code(), Code::kUnavailable); }

  TemporaryDirectory folder_;
  std::unique_ptr<PeerServer> server_;
  std::unique_ptr<TcpSocket> socket_;
};

PeerRequest PutOf(const std::string& key) {
  PeerRequest request;
  request.ask = PeerAsk::kPut;
  request.key = key;
  return request;
}

TEST_F(PeerServerTest, NobodyDoesAnythingBeforeHello) {
  Start();
  Connect();
  auto refused = Ask(PutOf("a"));
  ASSERT_TRUE(refused.ok()) << refused.status().ToString();
  EXPECT_EQ(refused->status.code(), Code::kInvalidArgument);
  ExpectSentAway();
  Connect();
  refused = Ask({});  // hello, without a proof
  ASSERT_TRUE(refused.ok()) << refused.status().ToString();
  EXPECT_EQ(refused->status.code(), Code::kPermissionDenied);
  ExpectSentAway();
  // A proof for another connection is none.
  const std::string nonce = Connect();
  EXPECT_NE(Connect(), nonce);
  PeerRequest hello;
  hello.key = TokenProof(kToken, nonce);
  refused = Ask(hello);
  ASSERT_TRUE(refused.ok()) << refused.status().ToString();
  EXPECT_EQ(refused->status.code(), Code::kPermissionDenied);
}

TEST_F(PeerServerTest, GarbageEndsTheConnectionAndNothingElse) {
  Start();
  PeerFrameBytes huge = EncodePeerFrame("", {});
  StoreLittle(huge.data() + 4, uint32_t{0xffffffff});
  PeerFrameBytes much = EncodePeerFrame("", {});
  StoreLittle(much.data() + 8, uint32_t{0xffffffff});
  PeerFrameBytes damaged = EncodePeerFrame("head", {});
  damaged[12] ^= std::byte{1};
  const std::string all[] = {"GET / HTTP/1.1\r\nHost: x\r\n\r\n", std::string(AsText(huge)),
                             std::string(AsText(much)), std::string(AsText(damaged)) + "head",
                             std::string(AsText(EncodePeerFrame("head", {}))) + "head"};
  for (const std::string& bytes : all) {
    Connect();
    ASSERT_TRUE(socket_->Send(AsBytes(bytes), {}).ok());
    ExpectSentAway();
    ConnectAndSayHello();
    ASSERT_TRUE(socket_->Send(AsBytes(bytes), {}).ok());
    ExpectSentAway();
  }
  EXPECT_TRUE(Open()->Put("a", AsBytes("still here"), {}, {}).ok());
}

TEST_F(PeerServerTest, DamagedDataAreNotKept) {
  Start();
  ConnectAndSayHello();
  const std::string head = EncodePeerRequest(PutOf("a"));
  const PeerFrameBytes frame = EncodePeerFrame(head, AsBytes("right"));
  ASSERT_TRUE(socket_->Send(AsBytes(std::string(AsText(frame)) + head + "wrong"), {}).ok());
  auto answer = Receive();
  ASSERT_TRUE(answer.ok()) << answer.status().ToString();
  EXPECT_EQ(answer->status.code(), Code::kUnavailable);
  EXPECT_EQ(Open()->Head("a", {}).status().code(), Code::kNotFound);
  EXPECT_EQ(server_->used_bytes(), 0u);
  answer = Ask(PutOf("a"), "right");  // the connection goes on
  ASSERT_TRUE(answer.ok()) << answer.status().ToString();
  EXPECT_TRUE(answer->status.ok());
}

TEST_F(PeerServerTest, HalfAnObjectIsNone) {
  Start();
  ConnectAndSayHello();
  const std::string head = EncodePeerRequest(PutOf("a"));
  const PeerFrameBytes frame = EncodePeerFrame(head, AsBytes("all of it"));
  ASSERT_TRUE(socket_->Send(AsBytes(std::string(AsText(frame)) + head + "all"), {}).ok());
  socket_.reset();
  ConnectAndSayHello();
  auto answer = Ask(PutOf("b"), "whole");
  ASSERT_TRUE(answer.ok() && answer->status.ok());
  EXPECT_EQ(Open()->Head("a", {}).status().code(), Code::kNotFound);
}

TEST_F(PeerServerTest, NoKeyLeavesTheFolder) {
  Start();
  auto store = Open();
  ASSERT_TRUE(PosixFileSystem()->WriteAtomically(folder_ / "secret", AsBytes("untouched")).ok());
  for (const std::string& key :
       {std::string("../secret"), std::string("/../secret"), std::string("a/../../secret"),
        folder_ / "secret", std::string("..\0/secret", 10)}) {
    EXPECT_EQ(store->Head(key, {}).status().code(), Code::kNotFound) << key;
    EXPECT_TRUE(store->Put(key, AsBytes("written"), {}, {}).ok()) << key;
    EXPECT_TRUE(store->Delete(key, {}).ok()) << key;
  }
  EXPECT_EQ(*PosixFileSystem()->ReadWhole(folder_ / "secret", 100), "untouched");
  ConnectAndSayHello();
  auto empty = Ask(PutOf(""), "x");
  ASSERT_TRUE(empty.ok()) << empty.status().ToString();
  EXPECT_EQ(empty->status.code(), Code::kInvalidArgument);
  auto long_one = Ask(PutOf(std::string(1025, 'k')), "x");
  ASSERT_TRUE(long_one.ok()) << long_one.status().ToString();
  EXPECT_EQ(long_one->status.code(), Code::kInvalidArgument);
  EXPECT_EQ(server_->used_bytes(), 0u);
}

TEST_F(PeerServerTest, ReadsTakeNoMoreMemoryThanThereIsToRead) {
  Start();
  ASSERT_TRUE(Open()->Put("a", AsBytes("four"), {}, {}).ok());
  ConnectAndSayHello();
  PeerRequest request;
  request.ask = PeerAsk::kGet;
  request.key = "a";
  request.number = kMaxPeerDataBytes;
  auto answer = Ask(request);
  ASSERT_TRUE(answer.ok()) << answer.status().ToString();
  EXPECT_EQ(answer->status.code(), Code::kOutOfRange);
  request.number = uint64_t{kMaxPeerDataBytes} + 1;
  answer = Ask(request);
  ASSERT_TRUE(answer.ok()) << answer.status().ToString();
  EXPECT_EQ(answer->status.code(), Code::kInvalidArgument);
  request.number = 4;
  request.offset = ~uint64_t{0};
  answer = Ask(request);
  ASSERT_TRUE(answer.ok()) << answer.status().ToString();
  EXPECT_EQ(answer->status.code(), Code::kOutOfRange);
}

TEST_F(PeerServerTest, UploadsOfOthersCannotBeGuessed) {
  Start();
  auto mine = Open()->StartUpload("mine", {});
  ASSERT_TRUE(mine.ok()) << mine.status().ToString();
  ConnectAndSayHello();
  PeerRequest part;
  part.ask = PeerAsk::kPutPart;
  part.number = 1;
  for (const char* id : {"", "1", "../../secret", "0123456789abcdef0123456789abcdef"}) {
    part.key = "mine";
    part.match = id;
    auto answer = Ask(part, "x");
    ASSERT_TRUE(answer.ok()) << answer.status().ToString();
    EXPECT_EQ(answer->status.code(), Code::kNotFound) << id;
  }
  part.match = Open()->ListUploads("", {})->front().id;
  for (const uint64_t number : {uint64_t{0}, uint64_t{10'001}, uint64_t{1} << 32, ~uint64_t{0}}) {
    part.number = number;
    auto answer = Ask(part, "x");
    ASSERT_TRUE(answer.ok()) << answer.status().ToString();
    EXPECT_EQ(answer->status.code(), Code::kInvalidArgument) << number;
  }
}

TEST_F(PeerServerTest, CountsWhatItFindsAndGivesUpWhatWasBegun) {
  Start();
  auto store = Open();
  ASSERT_TRUE(store->Put("run/a", AsBytes(std::string(5000, 'a')), {}, {}).ok());
  ASSERT_TRUE(store->Put("b", AsBytes("b"), {}, {}).ok());
  const uint64_t used = server_->used_bytes();
  auto upload = store->StartUpload("c", {});
  ASSERT_TRUE(upload.ok()) << upload.status().ToString();
  ASSERT_TRUE((*upload)->PutPart(1, AsBytes("part"), {}).ok());
  EXPECT_GT(server_->used_bytes(), used);
  Start(used);
  EXPECT_EQ(server_->used_bytes(), used);
  EXPECT_TRUE(Open()->ListUploads("", {})->empty());
  EXPECT_EQ(Open()->Put("d", AsBytes("d"), {}, {}).status().code(), Code::kResourceExhausted);
  EXPECT_EQ(Open()->Head("run/a", {})->size_bytes, 5000u);
}

TEST_F(PeerServerTest, RemovesWhatAKilledServerLeftHalfWritten) {
  Start();
  ASSERT_TRUE(Open()->Put("run/a", AsBytes("a"), {}, {}).ok());
  server_.reset();
  const std::string left = folder_ / "kept/run" + "/" + std::string(kTemporaryPrefix) + "7-1";
  ASSERT_TRUE(PosixFileSystem()->WriteAtomically(left, AsBytes("half")).ok());
  Start();
  EXPECT_FALSE(PosixFileSystem()->Exists(left));
  EXPECT_EQ(Open()->Head("run/a", {})->size_bytes, 1u);
}

TEST_F(PeerServerTest, TellsWhyItDoesNotStart) {
  Start();
  PeerServerOptions options;
  options.size_bytes = 1 << 20;
  const auto started = [&](const std::string& name) {
    return PeerServer::Start(folder_ / name, options).status();
  };
  EXPECT_EQ(started("kept").code(), Code::kFailedPrecondition);
  options.listen = server_->endpoint();
  EXPECT_EQ(started("other").code(), Code::kAlreadyExists);
  options.listen = {"0.0.0.0", 0};
  EXPECT_THAT(started("other").ToString(), HasSubstr("give a token"));
  options.token = "short";
  EXPECT_THAT(started("other").ToString(), HasSubstr("16 characters"));
  options.token = kToken;
  options.size_bytes = 0;
  EXPECT_THAT(started("other").ToString(), HasSubstr("--size"));
}

}  // namespace
}  // namespace headrace::object
