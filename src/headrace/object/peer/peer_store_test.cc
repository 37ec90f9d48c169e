// The driver peer: against its server, and against others that are gone, silent or lie.
#include "headrace/object/peer/peer_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>
#include <utility>

#include "headrace/env/testing/temporary_directory.h"
#include "headrace/object/peer/peer_protocol.h"
#include "headrace/object/peer/peer_server.h"
#include "headrace/object/peer/peer_stream.h"
#include "headrace/object/retrying_store.h"
#include "headrace/object/testing/conformance.h"

namespace headrace::object {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::chrono::minutes kPatience(10);  // out of reach
constexpr char kToken[] = "a token of enough letters";

struct Served {
  TemporaryDirectory folder;
  std::unique_ptr<PeerServer> server;

  explicit Served(const std::string& token = "", uint64_t size_bytes = uint64_t{1} << 30) {
    PeerServerOptions options;
    options.token = token;
    options.size_bytes = size_bytes;
    options.patience = kPatience;
    auto started = PeerServer::Start(folder.path(), options);
    EXPECT_TRUE(started.ok()) << started.status().ToString();
    if (started.ok()) server = *std::move(started);
  }
  std::shared_ptr<ObjectStore> Open(const std::string& token = "") const {
    auto store = OpenPeerStore(server->endpoint().Text(),
                               {.token = token, .threads = 4, .patience = kPatience});
    EXPECT_TRUE(store.ok()) << store.status().ToString();
    return *store;
  }
};

StoreUnderTest OpenServed() {
  auto served = std::make_shared<Served>(kToken);
  return {.store = served->Open(kToken), .owner = served};
}

constexpr Abilities kFolder = {.list = true,
                               .write = true,
                               .upload = true,
                               .put_if_absent = true,
                               .put_if_match = true,
                               .get_if_match = true,
                               .strict_keys = false};
const bool kRegistered = RegisterObjectStoreSuite(
    "peer", {.abilities = kFolder, .open = OpenServed, .many_keys = 100, .num_threads = 4});

Status ReadInto(ObjectStore* store, const std::string& key, std::string* out) {
  GetRequest request;
  request.key = key;
  request.out = std::as_writable_bytes(std::span(*out));
  return store->Get(request, {}).status();
}
std::string ReadAll(ObjectStore* store, const std::string& key, size_t bytes) {
  std::string out(bytes, '?');
  const Status read = ReadInto(store, key, &out);
  return read.ok() ? out : "error: " + read.ToString();
}

std::shared_ptr<ObjectStore> OpenPatiently(const std::string& authority) {
  PeerStoreOptions options;
  options.patience = kPatience;
  return *OpenPeerStore(authority, options);
}

TEST(PeerStore, ReadsObjectsOfMoreThanOneAnswer) {
  const Served served;
  auto store = served.Open();
  std::string content(20 << 20, '\0');
  for (size_t i = 0; i < content.size(); ++i) content[i] = static_cast<char>(i * 13 + (i >> 11));
  ASSERT_TRUE(store->Put("large", AsBytes(content), {}, {}).ok());
  EXPECT_TRUE(ReadAll(store.get(), "large", content.size()) == content);
  EXPECT_EQ(
      store->Put("x", AsBytes(std::string(kMaxPeerDataBytes + 1, 'x')), {}, {}).status().code(),
      Code::kInvalidArgument);
}

TEST(PeerStore, WantsTheTokenAndNeverTellsIt) {
  const Served served(kToken);
  for (const std::string token : {"", "another token of some letters"}) {
    const Status refused = served.Open(token)->Head("a", {}).status();
    EXPECT_EQ(refused.code(), Code::kPermissionDenied) << refused.ToString();
    EXPECT_THAT(refused.ToString(), AllOf(HasSubstr(served.server->endpoint().Text()),
                                          HasSubstr("token"), Not(HasSubstr(kToken))));
  }
  EXPECT_EQ(served.Open(kToken)->Head("a", {}).status().code(), Code::kNotFound);
}

TEST(PeerStore, NamesWhatCannotBeAPeer) {
  for (const char* authority : {"", "node7:7171", "user@10.0.0.1:7171", "10.0.0.1"})
    EXPECT_EQ(OpenPeerStore(authority, {}).status().code(), Code::kInvalidArgument) << authority;
}

TEST(PeerStore, APeerThatIsGoneIsUnavailableAndComesBack) {
  TemporaryDirectory folder;
  PeerServerOptions options;
  options.size_bytes = 1 << 20;
  options.patience = kPatience;
  auto server = PeerServer::Start(folder.path(), options);
  ASSERT_TRUE(server.ok()) << server.status().ToString();
  options.listen = (*server)->endpoint();
  auto store = OpenPatiently(options.listen.Text());
  ASSERT_TRUE(store->Put("a", AsBytes("kept"), {}, {}).ok());
  server->reset();
  const Status gone = store->Head("a", {}).status();
  EXPECT_EQ(gone.code(), Code::kUnavailable) << gone.ToString();
  EXPECT_THAT(gone.ToString(), HasSubstr(options.listen.Text()));
  EXPECT_EQ(store->Put("b", AsBytes("x"), {}, {}).status().code(), Code::kUnavailable);
  server = PeerServer::Start(folder.path(), options);
  ASSERT_TRUE(server.ok()) << server.status().ToString();
  RetryOptions patient;  // it is left alone for a moment
  patient.budget = std::chrono::minutes(2);
  EXPECT_EQ(ReadAll(MakeRetryingStore(store, patient).get(), "a", 4), "kept");
}

TEST(PeerStore, AFullPeerRefusesAndKeepsWhatItHas) {
  const Served served("", 64 << 10);
  auto store = served.Open();
  ASSERT_TRUE(store->Put("a", AsBytes(std::string(20'000, 'a')), {}, {}).ok());
  const Status full = store->Put("b", AsBytes(std::string(40'000, 'b')), {}, {}).status();
  EXPECT_EQ(full.code(), Code::kResourceExhausted) << full.ToString();
  EXPECT_THAT(full.ToString(), AllOf(HasSubstr(served.server->endpoint().Text()),
                                     HasSubstr("is full"), HasSubstr("of 64 KiB")));
  EXPECT_EQ(store->Head("b", {}).status().code(), Code::kNotFound);
  // Replacing takes the room of both for a moment; removing gives it back.
  EXPECT_TRUE(store->Put("a", AsBytes(std::string(30'000, 'a')), {}, {}).ok());
  EXPECT_LE(served.server->used_bytes(), 40'000u);
  EXPECT_TRUE(store->Delete("a", {}).ok());
  EXPECT_EQ(served.server->used_bytes(), 0u);
  EXPECT_TRUE(store->Put("b", AsBytes(std::string(40'000, 'b')), {}, {}).ok());
  EXPECT_LE(served.server->used_bytes(), uint64_t{64} << 10);
}

TEST(PeerStore, UploadsCountAndAreGivenBack) {
  const Served served("", 100 << 10);
  auto store = served.Open();
  auto upload = store->StartUpload("a", {});
  ASSERT_TRUE(upload.ok()) << upload.status().ToString();
  const std::string part(30 << 10, 'p');
  ASSERT_TRUE((*upload)->PutPart(1, AsBytes(part), {}).ok());
  ASSERT_TRUE((*upload)->PutPart(1, AsBytes(part), {}).ok());
  EXPECT_EQ(served.server->used_bytes(), uint64_t{36} << 10);  // rounded up, and its name
  EXPECT_TRUE((*upload)->Complete(1, {}).ok());
  EXPECT_EQ(served.server->used_bytes(), uint64_t{36} << 10);
  upload = store->StartUpload("b", {});
  ASSERT_TRUE(upload.ok()) << upload.status().ToString();
  ASSERT_TRUE((*upload)->PutPart(1, AsBytes(part), {}).ok());
  EXPECT_EQ((*upload)->PutPart(2, AsBytes(part), {}).code(), Code::kResourceExhausted);
  upload->reset();
  EXPECT_EQ(served.server->used_bytes(), uint64_t{36} << 10);
}

// Somebody who listens and greets as a peer, and then answers as a test wants.
class Impostor {
 public:
  using Answer = std::function<Status(TcpSocket* socket, const PeerHead& request)>;

  explicit Impostor(Answer answer) : answer_(std::move(answer)) {
    auto listener = TcpListener::Listen("127.0.0.1", 0);
    EXPECT_TRUE(listener.ok()) << listener.status().ToString();
    listener_ = *std::move(listener);
    thread_ = std::thread([this] { Run(); });
  }
  ~Impostor() {
    stopping_ = true;
    thread_.join();
  }
  std::string authority() const { return "127.0.0.1:" + std::to_string(listener_->port()); }

 private:
  void Run() {
    Context ctx;
    ctx.cancelled = &stopping_;
    while (!stopping_) {
      auto socket = listener_->Accept(ctx);
      if (socket.ok()) (void)Serve(socket->get(), ctx);
    }
  }
  Status Serve(TcpSocket* socket, const Context& ctx) {
    HR_RETURN_IF_ERROR(SendPeerMessage(socket, EncodePeerAnswer({}), {}, ctx));
    HR_RETURN_IF_ERROR(ReceivePeerHead(socket, kMaxPeerRequestBytes, ctx).status());
    HR_RETURN_IF_ERROR(SendPeerMessage(socket, EncodePeerAnswer({}), {}, ctx));
    for (;;) {
      HR_ASSIGN_OR_RETURN(const PeerHead request,
                          ReceivePeerHead(socket, kMaxPeerRequestBytes, ctx));
      HR_RETURN_IF_ERROR(SkipPeerData(socket, request.frame, ctx));
      HR_RETURN_IF_ERROR(answer_(socket, request));
    }
  }

  const Answer answer_;
  std::unique_ptr<TcpListener> listener_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

PeerAnswer OneObject(uint64_t size_bytes) {
  PeerAnswer answer;
  answer.objects = {{.key = "a", .size_bytes = size_bytes, .etag = "e"}};
  return answer;
}

TEST(PeerStore, DamageOnTheWayIsNoticed) {
  Impostor impostor([](TcpSocket* socket, const PeerHead&) {
    const std::string head = EncodePeerAnswer(OneObject(4)), data = "good";
    const PeerFrameBytes frame = EncodePeerFrame(head, AsBytes(data));
    return socket->Send(AsBytes(std::string(AsText(frame)) + head + "bad!"), {});
  });
  const Status damaged = [&] {
    std::string out(4, '?');
    auto store = OpenPatiently(impostor.authority());
    return ReadInto(store.get(), "a", &out);
  }();
  EXPECT_EQ(damaged.code(), Code::kUnavailable) << damaged.ToString();
  EXPECT_THAT(damaged.ToString(), AllOf(HasSubstr(impostor.authority()), HasSubstr("checksum")));
}

TEST(PeerStore, AnswersThatMakeNoSenseAreRefused) {
  const std::string head = EncodePeerAnswer(OneObject(4));
  const std::string many(64, 'x');
  const std::function<Status(TcpSocket*)> answers[] = {
      // Of more bytes than were asked for, of fewer, about nothing, no answer, and no frame.
      [&](TcpSocket* socket) { return SendPeerMessage(socket, head, AsBytes(many), {}); },
      [&](TcpSocket* socket) { return SendPeerMessage(socket, head, AsBytes("x"), {}); },
      [&](TcpSocket* socket) {
        return SendPeerMessage(socket, EncodePeerAnswer({}), AsBytes("four"), {});
      },
      [&](TcpSocket* socket) { return SendPeerMessage(socket, "what?", {}, {}); },
      [&](TcpSocket* socket) { return socket->Send(AsBytes(many), {}); },
  };
  for (const auto& answer : answers) {
    Impostor impostor([&](TcpSocket* socket, const PeerHead&) -> Status {
      HR_RETURN_IF_ERROR(answer(socket));
      return Status(Code::kUnavailable, "one is enough");
    });
    auto store = OpenPatiently(impostor.authority());
    std::string out(4, '?');
    const Status refused = ReadInto(store.get(), "a", &out);
    EXPECT_EQ(refused.code(), Code::kUnavailable) << refused.ToString();
    EXPECT_THAT(refused.ToString(), HasSubstr(impostor.authority()));
  }
}

TEST(PeerStore, AClockOfThePeersIsNotTheCallers) {
  for (const Code code : {Code::kDeadlineExceeded, Code::kCancelled}) {
    Impostor impostor([code](TcpSocket* socket, const PeerHead&) {
      PeerAnswer answer;
      answer.status = Status(code, "over there");
      return SendPeerMessage(socket, EncodePeerAnswer(answer), {}, {});
    });
    auto store = OpenPatiently(impostor.authority());
    EXPECT_EQ(store->Head("a", {}).status().code(), Code::kUnavailable);
  }
}

TEST(PeerStore, ASilentPeerEndsWithTheCallersPatience) {
  Impostor impostor([](TcpSocket*, const PeerHead&) { return OkStatus(); });
  auto store = OpenPatiently(impostor.authority());
  Context ctx;
  ctx.deadline = Context::Clock::now() + std::chrono::milliseconds(200);
  EXPECT_EQ(store->Head("a", ctx).status().code(), Code::kDeadlineExceeded);
}

}  // namespace
}  // namespace headrace::object
