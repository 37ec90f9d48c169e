#include "headrace/object/peer/peer_store.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <utility>

#include "headrace/env/tcp_socket.h"
#include "headrace/object/object_key.h"
#include "headrace/object/peer/peer_connections.h"
#include "headrace/object/peer/peer_protocol.h"
#include "headrace/object/peer/peer_stream.h"
#include "headrace/object/per_process.h"
#include "headrace/object/task_pool.h"

namespace headrace::object {
namespace {

constexpr uint64_t kReadBytes = 8 << 20;             // of an object in one answer
constexpr uint64_t kListPatienceBytes = 64 << 20;    // a listing takes as long as so many bytes
constexpr std::chrono::seconds kGiveUpPatience(10);  // for telling that an upload is given up

// One peer, as the store and its uploads use it.
class Peer {
 public:
  Peer(const TcpEndpoint& endpoint, const PeerStoreOptions& options)
      : name_("peer://" + endpoint.Text()),
        patience_(options.patience),
        connections_([endpoint, options] {
          return std::make_unique<PeerConnections>(endpoint, options.token, options.patience);
        }) {}

  const std::string& name() const { return name_; }

  // Asks, and waits for the answer, which may take as long as `work_bytes` need on a slow disk.
  // With an answer that is OK come as many bytes as `out` has, and none with others.
  Result<PeerAnswer> Ask(const PeerRequest& request, Bytes data, MutableBytes out,
                         uint64_t work_bytes, const Context& ctx) {
    HR_RETURN_IF_ERROR(ctx.Check());
    const Context within =
        WithinPatience(ctx, PatienceFor(data.size() + out.size() + work_bytes, patience_));
    auto answer = Exchange(request, data, out, within);
    Status failed = answer.ok() ? answer->status : answer.status();
    if (failed.ok()) return answer;
    return Told(failed, answer.ok(), ctx);
  }

 private:
  Result<PeerAnswer> Exchange(const PeerRequest& request, Bytes data, MutableBytes out,
                              const Context& ctx) {
    HR_ASSIGN_OR_RETURN(auto socket, connections_.Get().Take(ctx));
    auto answer = ExchangeOver(socket.get(), request, data, out, ctx);
    if (answer.ok())
      connections_.Get().Give(std::move(socket));
    else
      connections_.Get().Forget();
    return answer;
  }

  static Result<PeerAnswer> ExchangeOver(TcpSocket* socket, const PeerRequest& request, Bytes data,
                                         MutableBytes out, const Context& ctx) {
    HR_RETURN_IF_ERROR(SendPeerMessage(socket, EncodePeerRequest(request), data, ctx));
    HR_ASSIGN_OR_RETURN(const PeerHead head, ReceivePeerHead(socket, kMaxPeerAnswerBytes, ctx));
    HR_ASSIGN_OR_RETURN(PeerAnswer answer, DecodePeerAnswer(AsBytes(head.bytes)));
    const size_t wanted = answer.status.ok() ? out.size() : 0;
    if (head.frame.data_bytes != wanted)
      return Error(Code::kDataLoss, "{} bytes came instead of {}", head.frame.data_bytes, wanted);
    HR_RETURN_IF_ERROR(ReceivePeerData(socket, head.frame, out.first(wanted), ctx));
    return answer;
  }

  // What the caller is told of a failure: names the peer, and is kUnavailable for whatever may not
  // happen again.
  Status Told(const Status& failed, bool by_peer, const Context& ctx) const {
    Code code = failed.code();
    const bool own =
        !by_peer && (code == Code::kPermissionDenied || code == Code::kInvalidArgument);
    if (!by_peer && !own) {
      HR_RETURN_IF_ERROR(ctx.Check());
      if (code == Code::kDeadlineExceeded)
        return Error(Code::kUnavailable, "the peer {} does not answer in time", name_);
      code = Code::kUnavailable;
    }
    // Its clock and its owner's wish to end it are not the caller's.
    if (code == Code::kDeadlineExceeded || code == Code::kCancelled) code = Code::kUnavailable;
    return Error(code, "the peer {}: {}", name_, failed.message());
  }

  const std::string name_;
  const std::chrono::nanoseconds patience_;
  PerProcess<PeerConnections> connections_;
};

// An answer that has to tell of one object.
Result<ObjectInfo> OneObject(Result<PeerAnswer> answer, const std::string& peer,
                             const std::string& key) {
  if (!answer.ok()) return std::move(answer).status();
  if (answer->objects.size() != 1)
    return Error(Code::kUnavailable, "the peer {} gave no answer about {}", peer,
                 ObjectName(peer, key));
  ObjectInfo info = std::move(answer->objects.front());
  info.key = key;
  return info;
}

PeerRequest About(PeerAsk ask, const std::string& key) {
  PeerRequest request;
  request.ask = ask;
  request.key = key;
  return request;
}

class PeerUpload final : public Upload {
 public:
  PeerUpload(std::shared_ptr<Peer> peer, std::string key, std::string id)
      : peer_(std::move(peer)), key_(std::move(key)), id_(std::move(id)) {}
  ~PeerUpload() override {
    if (!ended_) (void)Abort(WithinPatience({}, kGiveUpPatience));
  }
  PeerUpload(const PeerUpload&) = delete;
  PeerUpload& operator=(const PeerUpload&) = delete;

  Status PutPart(uint32_t number, Bytes data, const Context& ctx) override {
    HR_RETURN_IF_ERROR(CheckBytes(data));
    sent_bytes_ += data.size();
    return peer_->Ask(Request(PeerAsk::kPutPart, number), data, {}, data.size(), ctx).status();
  }
  Result<std::string> Complete(uint32_t num_parts, const Context& ctx) override {
    HR_ASSIGN_OR_RETURN(PeerAnswer answer, peer_->Ask(Request(PeerAsk::kCompleteUpload, num_parts),
                                                      {}, {}, sent_bytes_, ctx));
    ended_ = true;
    return std::move(answer.next);
  }
  Status Abort(const Context& ctx) override {
    HR_RETURN_IF_ERROR(
        peer_->Ask(Request(PeerAsk::kAbortUpload, 0), {}, {}, sent_bytes_, ctx).status());
    ended_ = true;
    return OkStatus();
  }

 private:
  PeerRequest Request(PeerAsk ask, uint32_t number) const {
    PeerRequest request = About(ask, key_);
    request.match = id_;
    request.number = number;
    return request;
  }
  Status CheckBytes(Bytes data) const {
    if (data.size() <= kMaxPeerDataBytes) return OkStatus();
    return Error(Code::kInvalidArgument, "a part of {} has {} bytes, at most {} are taken",
                 ObjectName(peer_->name(), key_), data.size(), kMaxPeerDataBytes);
  }

  const std::shared_ptr<Peer> peer_;
  const std::string key_, id_;
  std::atomic<uint64_t> sent_bytes_{0};
  std::atomic<bool> ended_{false};
};

class PeerStore final : public ObjectStore {
 public:
  PeerStore(std::shared_ptr<Peer> peer, uint32_t threads)
      : peer_(std::move(peer)), pool_("hr peer", threads) {}

  const std::string& name() const override { return peer_->name(); }
  const Abilities& abilities() const override {
    static const Abilities abilities = {.list = true,
                                        .write = true,
                                        .upload = true,
                                        .put_if_absent = true,
                                        .put_if_match = true,
                                        .get_if_match = true,
                                        .strict_keys = false};
    return abilities;
  }

  Result<ObjectInfo> Head(const std::string& key, const Context& ctx) override {
    HR_RETURN_IF_ERROR(CheckKey(name(), key));
    return OneObject(peer_->Ask(About(PeerAsk::kHead, key), {}, {}, 0, ctx), name(), key);
  }

  void SubmitGets(std::vector<GetRequest> requests, std::vector<GetDone> dones,
                  const Context& ctx) override {
    for (size_t i = 0; i < requests.size(); ++i) {
      pool_.Run([this, request = std::move(requests[i]), done = std::move(dones[i]), ctx] {
        done(Read(request, ctx));
      });
    }
  }

  Result<std::string> Put(const std::string& key, Bytes data, const PutOptions& options,
                          const Context& ctx) override {
    HR_RETURN_IF_ERROR(CheckKey(name(), key));
    if (data.size() > kMaxPeerDataBytes)
      return Error(Code::kInvalidArgument, "{} has {} bytes, at most {} are taken in one go",
                   ObjectName(name(), key), data.size(), kMaxPeerDataBytes);
    PeerRequest request = About(PeerAsk::kPut, key);
    request.if_absent = options.if_absent;
    request.match = options.if_match;
    HR_ASSIGN_OR_RETURN(PeerAnswer answer, peer_->Ask(request, data, {}, data.size(), ctx));
    return std::move(answer.next);
  }

  Status Delete(const std::string& key, const Context& ctx) override {
    HR_RETURN_IF_ERROR(CheckKey(name(), key));
    return peer_->Ask(About(PeerAsk::kDelete, key), {}, {}, 0, ctx).status();
  }

  Result<ListPage> List(const ListRequest& request, const Context& ctx) override {
    PeerRequest ask = About(PeerAsk::kList, request.prefix);
    ask.delimiter = request.delimiter;
    ask.after = request.after;
    ask.token = request.token;
    ask.number = std::min(request.max, kMaxPeerListed);
    HR_ASSIGN_OR_RETURN(PeerAnswer answer, peer_->Ask(ask, {}, {}, kListPatienceBytes, ctx));
    return ListPage{std::move(answer.objects), std::move(answer.prefixes), std::move(answer.next)};
  }

  Result<std::unique_ptr<Upload>> StartUpload(const std::string& key, const Context& ctx) override {
    HR_RETURN_IF_ERROR(CheckKey(name(), key));
    HR_ASSIGN_OR_RETURN(PeerAnswer answer,
                        peer_->Ask(About(PeerAsk::kStartUpload, key), {}, {}, 0, ctx));
    return std::make_unique<PeerUpload>(peer_, key, std::move(answer.next));
  }

  Result<std::vector<PendingUpload>> ListUploads(const std::string& prefix,
                                                 const Context& ctx) override {
    HR_ASSIGN_OR_RETURN(PeerAnswer answer, peer_->Ask(About(PeerAsk::kListUploads, prefix), {}, {},
                                                      kListPatienceBytes, ctx));
    return std::move(answer.uploads);
  }

  Status AbortUpload(const PendingUpload& upload, const Context& ctx) override {
    PeerRequest request = About(PeerAsk::kAbortUpload, upload.key);
    request.match = upload.id;
    return peer_->Ask(request, {}, {}, kListPatienceBytes, ctx).status();
  }

 private:
  // In pieces of one version.
  Result<ObjectInfo> Read(const GetRequest& request, const Context& ctx) const {
    HR_RETURN_IF_ERROR(ctx.Check());
    HR_RETURN_IF_ERROR(CheckKey(name(), request.key));
    PeerRequest ask = About(PeerAsk::kGet, request.key);
    ask.match = request.if_match;
    ObjectInfo info;
    uint64_t done = 0;
    do {
      const uint64_t bytes = std::min(kReadBytes, request.out.size() - done);
      ask.offset = request.offset + done;
      ask.number = bytes;
      HR_ASSIGN_OR_RETURN(
          info, OneObject(peer_->Ask(ask, {}, request.out.subspan(done, bytes), bytes, ctx), name(),
                          request.key));
      if (request.out.size() > bytes) ask.match = info.etag;
      done += bytes;
    } while (done < request.out.size());
    return info;
  }

  const std::shared_ptr<Peer> peer_;
  TaskPool pool_;  // last: its tasks use the rest
};

}  // namespace

Result<std::shared_ptr<ObjectStore>> OpenPeerStore(const std::string& authority,
                                                   const PeerStoreOptions& options) {
  auto endpoint = ParseTcpEndpoint(authority);
  if (!endpoint.ok()) return std::move(endpoint).status().Prefix("peer://");
  return std::make_shared<PeerStore>(std::make_shared<Peer>(*endpoint, options), options.threads);
}

}  // namespace headrace::object
