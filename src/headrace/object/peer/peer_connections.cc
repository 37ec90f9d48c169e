#include "headrace/object/peer/peer_connections.h"

#include <chrono>
#include <utility>

#include "headrace/object/peer/peer_protocol.h"
#include "headrace/object/peer/peer_stream.h"
#include "headrace/object/peer/token.h"

namespace headrace::object {
namespace {

constexpr std::chrono::seconds kKept(10);  // less than the server waits for the next request
constexpr std::chrono::milliseconds kLeftAlone(500);
constexpr size_t kMostIdle = 16;

Result<PeerAnswer> ReceiveAnswer(TcpSocket* socket, const Context& ctx) {
  HR_ASSIGN_OR_RETURN(const PeerHead head, ReceivePeerHead(socket, kMaxPeerAnswerBytes, ctx));
  HR_ASSIGN_OR_RETURN(PeerAnswer answer, DecodePeerAnswer(AsBytes(head.bytes)));
  if (head.frame.data_bytes != 0)
    return Status(Code::kDataLoss, "what came is no greeting of a peer");
  return answer;
}

}  // namespace

Result<std::unique_ptr<TcpSocket>> PeerConnections::Open(const Context& ctx) const {
  const Context within = WithinPatience(ctx, patience_);
  HR_ASSIGN_OR_RETURN(auto socket, TcpSocket::Connect(peer_.address, peer_.port, within));
  HR_ASSIGN_OR_RETURN(const PeerAnswer greeting, ReceiveAnswer(socket.get(), within));
  HR_RETURN_IF_ERROR(greeting.status);
  PeerRequest hello;
  if (!token_.empty()) hello.key = TokenProof(token_, greeting.next);
  HR_RETURN_IF_ERROR(SendPeerMessage(socket.get(), EncodePeerRequest(hello), {}, within));
  HR_ASSIGN_OR_RETURN(const PeerAnswer welcome, ReceiveAnswer(socket.get(), within));
  HR_RETURN_IF_ERROR(welcome.status);
  return socket;
}

Result<std::unique_ptr<TcpSocket>> PeerConnections::Take(const Context& ctx) {
  {
    MutexLock lock(&mu_);
    const auto now = Clock::now();
    while (!idle_.empty()) {
      Idle last = std::move(idle_.back());
      idle_.pop_back();
      if (now - last.since < kKept) return std::move(last.socket);
    }
    if (now < refused_until_) return refused_;
  }
  auto opened = Open(ctx);
  if (opened.ok() || !ctx.Check().ok()) return opened;
  MutexLock lock(&mu_);
  refused_ = opened.status();
  refused_until_ = Clock::now() + kLeftAlone;
  return opened;
}

void PeerConnections::Give(std::unique_ptr<TcpSocket> socket) {
  MutexLock lock(&mu_);
  if (idle_.size() < kMostIdle) idle_.push_back({std::move(socket), Clock::now()});
}

void PeerConnections::Forget() {
  MutexLock lock(&mu_);
  idle_.clear();
}

}  // namespace headrace::object
