#include "headrace/object/peer/peer_server.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <list>
#include <utility>
#include <vector>

#include "headrace/base/crc32c.h"
#include "headrace/base/mutex.h"
#include "headrace/env/exchange.h"
#include "headrace/env/file.h"
#include "headrace/env/process.h"
#include "headrace/object/dir/dir_store.h"
#include "headrace/object/object_key.h"
#include "headrace/object/pause.h"
#include "headrace/object/peer/peer_ledger.h"
#include "headrace/object/peer/peer_protocol.h"
#include "headrace/object/peer/peer_stream.h"
#include "headrace/object/peer/peer_uploads.h"
#include "headrace/object/peer/token.h"

namespace headrace::object {
namespace {

using Clock = Context::Clock;

constexpr std::chrono::seconds kIdlePatience(60);  // for the next request of a connection
constexpr std::chrono::milliseconds kLook(200);    // how often it looks after connections
constexpr std::string_view kLockName = ".headrace-peer.lock";  // no key's path

// An answer and the data that go with it.
struct PeerReply {
  PeerAnswer answer;
  std::vector<std::byte> data;
};

PeerReply Failed(Status status) {
  PeerReply reply;
  reply.answer.status = std::move(status);
  return reply;
}

class FolderServer final : public PeerServer {
 public:
  FolderServer(const PeerServerOptions& options, std::unique_ptr<FileLock> lock,
               std::shared_ptr<ObjectStore> store, std::unique_ptr<TcpListener> listener)
      : options_(options),
        endpoint_{options.listen.address, listener->port()},
        lock_(std::move(lock)),
        store_(std::move(store)),
        ledger_(options.size_bytes),
        uploads_(store_.get(), &ledger_),
        listener_(std::move(listener)) {}
  ~FolderServer() override;
  FolderServer(const FolderServer&) = delete;
  FolderServer& operator=(const FolderServer&) = delete;

  Status CountWhatIsThere();
  Status Start() {
    HR_ASSIGN_OR_RETURN(thread_, Thread::Start("hr-peer", [this] { Run(); }));
    return OkStatus();
  }
  const TcpEndpoint& endpoint() const override { return endpoint_; }
  uint64_t used_bytes() override { return ledger_.used_bytes(); }

 private:
  struct Session {
    std::unique_ptr<TcpSocket> socket;
    std::atomic<bool> ended{false};
    std::unique_ptr<Thread> thread;  // last: uses the rest
  };

  Context Within(std::chrono::nanoseconds patience) const {
    Context ctx;
    ctx.cancelled = &stopping_;
    return WithinPatience(ctx, patience);
  }
  // Writes of one key go one after the other, so that the ledger is told in their order.
  Mutex* LockOf(const std::string& key) { return &key_mu_[Crc32c(AsBytes(key)) % key_mu_.size()]; }

  void Run();
  void Admit();
  void Serve(Session* session);
  Status Greet(TcpSocket* socket);
  Status ServeOne(TcpSocket* socket);
  Result<PeerReply> Receive(TcpSocket* socket, const PeerRequest& request, const PeerFrame& frame);
  PeerReply Do(const PeerRequest& request, Bytes data, const Context& ctx);

  PeerReply DoHead(const PeerRequest& request, const Context& ctx);
  PeerReply DoGet(const PeerRequest& request, const Context& ctx);
  PeerReply DoPut(const PeerRequest& request, Bytes data, const Context& ctx);
  PeerReply DoDelete(const PeerRequest& request, const Context& ctx);
  PeerReply DoList(const PeerRequest& request, const Context& ctx);
  PeerReply DoUpload(const PeerRequest& request, Bytes data, const Context& ctx);

  const PeerServerOptions options_;
  const TcpEndpoint endpoint_;
  const std::unique_ptr<FileLock> lock_;
  const std::shared_ptr<ObjectStore> store_;
  PeerLedger ledger_;
  PeerUploads uploads_;
  const std::unique_ptr<TcpListener> listener_;
  std::array<Mutex, 1024> key_mu_;  // before those of ledger and uploads
  std::atomic<bool> stopping_{false};
  std::list<std::unique_ptr<Session>> sessions_;  // of the thread
  std::unique_ptr<Thread> thread_;                // last: uses the rest
};

FolderServer::~FolderServer() {
  stopping_ = true;
  thread_.reset();
  sessions_.clear();  // each waits for its thread
  for (const PendingUpload& upload : uploads_.List("")) (void)uploads_.Abort(upload.id, {});
}

Status FolderServer::CountWhatIsThere() {
  const Context ctx;
  HR_ASSIGN_OR_RETURN(const auto left, store_->ListUploads("", ctx));
  for (const PendingUpload& upload : left) HR_RETURN_IF_ERROR(store_->AbortUpload(upload, ctx));
  ListRequest request;
  do {
    HR_ASSIGN_OR_RETURN(ListPage page, store_->List(request, ctx));
    for (const ObjectInfo& object : page.objects)
      ledger_.Add(object.key, PeerLedger::ChargeOf(object.size_bytes));
    request.token = std::move(page.next);
  } while (!request.token.empty());
  return OkStatus();
}

// --- connections ---------------------------------------------------------------------------------

void FolderServer::Run() {
  while (!stopping_) {
    std::erase_if(sessions_, [](const auto& session) { return session->ended.load(); });
    if (sessions_.size() < options_.max_connections)
      Admit();
    else
      (void)PauseFor(kLook, Within(kLook));
  }
}

void FolderServer::Admit() {
  auto socket = listener_->Accept(Within(kLook));
  if (socket.status().code() == Code::kResourceExhausted) (void)PauseFor(kLook, Within(kLook));
  if (!socket.ok()) return;
  auto session = std::make_unique<Session>();
  session->socket = *std::move(socket);
  auto thread = Thread::Start("hr-peer-caller", [this, raw = session.get()] { Serve(raw); });
  if (!thread.ok()) return;  // the caller sees that the connection ends
  session->thread = *std::move(thread);
  sessions_.push_back(std::move(session));
}

void FolderServer::Serve(Session* session) {
  Status status = Greet(session->socket.get());
  while (status.ok()) status = ServeOne(session->socket.get());
  session->ended = true;
}

// Lets in who knows the token. Until then nobody can make it take more than a few KiB.
Status FolderServer::Greet(TcpSocket* socket) {
  const Context ctx = Within(options_.patience);
  PeerAnswer greeting;
  greeting.next = RandomToken();
  HR_RETURN_IF_ERROR(SendPeerMessage(socket, EncodePeerAnswer(greeting), {}, ctx));
  HR_ASSIGN_OR_RETURN(const PeerHead head, ReceivePeerHead(socket, kMaxPeerRequestBytes, ctx));
  HR_ASSIGN_OR_RETURN(const PeerRequest hello, DecodePeerRequest(AsBytes(head.bytes)));
  PeerAnswer welcome;
  if (hello.ask != PeerAsk::kHello || head.frame.data_bytes != 0)
    welcome.status = Status(Code::kInvalidArgument, "a caller has to say hello first");
  else if (!options_.token.empty() && !IsTokenProof(hello.key, options_.token, greeting.next))
    welcome.status = Status(Code::kPermissionDenied,
                            hello.key.empty()
                                ? "it wants a token: HEADRACE_PEER_TOKEN, or peer_token_file among "
                                  "the storage options"
                                : "the token is not the one it was started with");
  HR_RETURN_IF_ERROR(SendPeerMessage(socket, EncodePeerAnswer(welcome), {}, ctx));
  return welcome.status;
}

// Fails when the connection is of no use any more.
Status FolderServer::ServeOne(TcpSocket* socket) {
  HR_ASSIGN_OR_RETURN(const PeerHead head,
                      ReceivePeerHead(socket, kMaxPeerRequestBytes, Within(kIdlePatience)));
  HR_ASSIGN_OR_RETURN(const PeerRequest request, DecodePeerRequest(AsBytes(head.bytes)));
  HR_ASSIGN_OR_RETURN(PeerReply reply, Receive(socket, request, head.frame));
  return SendPeerMessage(socket, EncodePeerAnswer(reply.answer), reply.data,
                         Within(PatienceFor(reply.data.size(), options_.patience)));
}

// Takes the data of a request, and does what it asks for once they are here whole and right.
Result<PeerReply> FolderServer::Receive(TcpSocket* socket, const PeerRequest& request,
                                        const PeerFrame& frame) {
  const bool brings = request.ask == PeerAsk::kPut || request.ask == PeerAsk::kPutPart;
  const Context ctx = Within(PatienceFor(frame.data_bytes, options_.patience));
  Context work;
  work.cancelled = &stopping_;
  if (!brings) {
    HR_RETURN_IF_ERROR(SkipPeerData(socket, frame, ctx));
    return Do(request, {}, work);
  }
  std::vector<std::byte> data;
  const Status received = ReceivePeerData(socket, frame, &data, ctx);
  if (received.code() == Code::kDataLoss)
    return Failed(Status(Code::kUnavailable, std::string(received.message())));
  HR_RETURN_IF_ERROR(received);
  return Do(request, data, work);
}

// --- requests ------------------------------------------------------------------------------------

PeerReply FolderServer::Do(const PeerRequest& request, Bytes data, const Context& ctx) {
  switch (request.ask) {
    case PeerAsk::kHead:
      return DoHead(request, ctx);
    case PeerAsk::kGet:
      return DoGet(request, ctx);
    case PeerAsk::kPut:
      return DoPut(request, data, ctx);
    case PeerAsk::kDelete:
      return DoDelete(request, ctx);
    case PeerAsk::kList:
      return DoList(request, ctx);
    case PeerAsk::kStartUpload:
    case PeerAsk::kPutPart:
    case PeerAsk::kCompleteUpload:
    case PeerAsk::kListUploads:
    case PeerAsk::kAbortUpload:
      return DoUpload(request, data, ctx);
    case PeerAsk::kHello:
      break;
  }
  return Failed(Status(Code::kInvalidArgument, "a caller says hello once"));
}

PeerReply FolderServer::DoHead(const PeerRequest& request, const Context& ctx) {
  auto info = store_->Head(request.key, ctx);
  if (!info.ok()) return Failed(info.status());
  PeerReply reply;
  reply.answer.objects.push_back(*std::move(info));
  return reply;
}

// Takes memory for no more than the object has.
PeerReply FolderServer::DoGet(const PeerRequest& request, const Context& ctx) {
  if (request.number > kMaxPeerDataBytes)
    return Failed(Error(Code::kInvalidArgument, "at most {} bytes are read at once, not {}",
                        kMaxPeerDataBytes, request.number));
  PeerReply reply;
  if (request.number > 0) {
    auto there = store_->Head(request.key, ctx);
    if (!there.ok()) return Failed(there.status());
    if (request.offset > there->size_bytes || request.number > there->size_bytes - request.offset)
      return Failed(OutsideObject(store_->name(), request.key, request.offset, request.number,
                                  there->size_bytes));
    reply.data.resize(request.number);
  }
  auto info = store_->Get(
      {.key = request.key, .offset = request.offset, .out = reply.data, .if_match = request.match},
      ctx);
  if (!info.ok()) return Failed(info.status());
  reply.answer.objects.push_back(*std::move(info));
  return reply;
}

PeerReply FolderServer::DoPut(const PeerRequest& request, Bytes data, const Context& ctx) {
  const uint64_t charge = PeerLedger::ChargeOf(data.size());
  Status room = ledger_.Reserve(charge);
  if (!room.ok()) return Failed(std::move(room));
  PutOptions options;
  options.if_absent = request.if_absent;
  options.if_match = request.match;
  MutexLock lock(LockOf(request.key));
  auto etag = store_->Put(request.key, data, options, ctx);
  if (!etag.ok()) {
    ledger_.Release(charge);
    return Failed(etag.status());
  }
  ledger_.Settle(request.key, charge);
  PeerReply reply;
  reply.answer.next = *std::move(etag);
  return reply;
}

PeerReply FolderServer::DoDelete(const PeerRequest& request, const Context& ctx) {
  MutexLock lock(LockOf(request.key));
  Status removed = store_->Delete(request.key, ctx);
  if (removed.ok()) ledger_.Remove(request.key);
  return Failed(std::move(removed));
}

PeerReply FolderServer::DoList(const PeerRequest& request, const Context& ctx) {
  ListRequest list;
  list.prefix = request.key;
  list.delimiter = request.delimiter;
  list.after = request.after;
  list.token = request.token;
  list.max = static_cast<uint32_t>(std::clamp<uint64_t>(request.number, 1, kMaxPeerListed));
  auto page = store_->List(list, ctx);
  if (!page.ok()) return Failed(page.status());
  PeerReply reply;
  reply.answer.objects = std::move(page->objects);
  reply.answer.prefixes = std::move(page->prefixes);
  reply.answer.next = std::move(page->next);
  return reply;
}

PeerReply FolderServer::DoUpload(const PeerRequest& request, Bytes data, const Context& ctx) {
  PeerReply reply;
  PeerAnswer& answer = reply.answer;
  Result<std::string> told = std::string();
  if (request.ask == PeerAsk::kPutPart) {
    answer.status = uploads_.PutPart(request.match, request.key, request.number, data, ctx);
  } else if (request.ask == PeerAsk::kAbortUpload) {
    answer.status = uploads_.Abort(request.match, ctx);
  } else if (request.ask == PeerAsk::kListUploads) {
    answer.uploads = uploads_.List(request.key);
  } else if (request.ask == PeerAsk::kStartUpload) {
    told = uploads_.Start(request.key, ctx);
  } else {
    MutexLock lock(LockOf(request.key));
    told = uploads_.Complete(request.match, request.key, request.number, ctx);
  }
  if (!told.ok()) return Failed(told.status());
  answer.next = *std::move(told);
  return reply;
}

Status CheckOptions(const PeerServerOptions& options) {
  if (options.size_bytes == 0)
    return Status(Code::kInvalidArgument,
                  "how many bytes may it hold for others? Say it, as --size 64GiB");
  if (!IsLoopback(options.listen.address) && options.token.empty())
    return Error(Code::kInvalidArgument,
                 "{} can be reached from other machines: give a token (--token-file, or "
                 "HEADRACE_PEER_TOKEN), or use 127.0.0.1",
                 options.listen.address);
  if (!options.token.empty() && options.token.size() < kMinTokenBytes)
    return Error(Code::kInvalidArgument, "a token has at least {} characters", kMinTokenBytes);
  return OkStatus();
}

}  // namespace

namespace {

// What a server that was killed left half written; who holds the lock is the only one who writes.
Status RemoveLeftovers(FileSystem* fs, const std::string& folder) {
  HR_ASSIGN_OR_RETURN(const auto entries, fs->List(folder));
  for (const DirectoryEntry& entry : entries) {
    const std::string path = JoinPath(folder, entry.name);
    if (entry.kind == FileKind::kDirectory)
      HR_RETURN_IF_ERROR(RemoveLeftovers(fs, path));
    else if (entry.name.starts_with(kTemporaryPrefix))
      HR_RETURN_IF_ERROR(fs->Remove(path));
  }
  return OkStatus();
}

}  // namespace

Result<std::unique_ptr<PeerServer>> PeerServer::Start(const std::string& folder,
                                                      const PeerServerOptions& options) {
  HR_RETURN_IF_ERROR(CheckOptions(options));
  FileSystem* fs = PosixFileSystem();
  HR_RETURN_IF_ERROR(fs->MakeDirectories(folder));
  auto lock = fs->Lock(JoinPath(folder, kLockName));
  if (lock.status().code() == Code::kFailedPrecondition)
    return Error(Code::kFailedPrecondition, "another server keeps {} already", folder);
  HR_RETURN_IF_ERROR(lock.status());
  HR_RETURN_IF_ERROR(RemoveLeftovers(fs, folder));
  HR_ASSIGN_OR_RETURN(auto store, OpenDirStore(folder, {}));
  HR_ASSIGN_OR_RETURN(auto listener,
                      TcpListener::Listen(options.listen.address, options.listen.port));
  auto server = std::make_unique<FolderServer>(options, *std::move(lock), std::move(store),
                                               std::move(listener));
  HR_RETURN_IF_ERROR(server->CountWhatIsThere());
  HR_RETURN_IF_ERROR(server->Start());
  return std::unique_ptr<PeerServer>(std::move(server));
}

}  // namespace headrace::object
