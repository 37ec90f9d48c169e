#include "headrace/env/exchange.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <list>
#include <utility>
#include <vector>

#include "headrace/env/file.h"
#include "headrace/env/local_address.h"
#include "headrace/env/posix_descriptor.h"
#include "headrace/env/process.h"
#include "headrace/env/socket_calls.h"

namespace headrace {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kLookMs = 100;   // how long a server without descriptors waits for one
constexpr int kBacklog = 256;  // connections that the system keeps until they are accepted
constexpr std::string_view kWhat = "a local socket";

// Of this user or of root.
bool IsTrustedPeer(int descriptor) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  return ::getsockopt(descriptor, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
         (peer.uid == ::geteuid() || peer.uid == 0);
}

struct Connection {
  Descriptor descriptor;
  Clock::time_point deadline, gives_way_at;
  std::string received, answer;
  size_t sent = 0, looks = 0;
  bool fresh = false;  // some of `received` has not been looked at
  bool ended = false;  // the client sends no more
  bool answering = false;
};

class StreamServer final : public ExchangeServer {
 public:
  StreamServer(Descriptor listener, Descriptor wake, std::string path, uint16_t port,
               const Options& options, Answer answer)
      : listener_(std::move(listener)),
        wake_(std::move(wake)),
        path_(std::move(path)),
        port_(port),
        options_(options),
        answer_(std::move(answer)),
        fork_generation_(ForkGeneration()) {}
  ~StreamServer() override;
  StreamServer(const StreamServer&) = delete;
  StreamServer& operator=(const StreamServer&) = delete;

  Status Start() {
    HR_ASSIGN_OR_RETURN(thread_, Thread::Start(options_.thread_name, [this] { Run(); }));
    return OkStatus();
  }
  uint16_t port() const override { return port_; }

 private:
  void Run();
  int WaitMs(Clock::time_point now) const;
  std::list<Connection>::iterator GivesWay(Clock::time_point now);
  bool IsFull() const { return connections_.size() >= options_.max_connections; }
  void Accept(Clock::time_point now);
  bool Serve(Connection* one, Clock::time_point now);
  bool Receive(Connection* one);
  bool Send(Connection* one);

  const Descriptor listener_, wake_;
  const std::string path_;  // of a local socket
  const uint16_t port_;
  const Options options_;
  const Answer answer_;
  const uint64_t fork_generation_;
  // Of the thread alone.
  std::list<Connection> connections_;
  Clock::time_point next_answer_ = Clock::time_point::min();
  bool refused_ = false;  // the system had no descriptor for a new connection

  std::unique_ptr<Thread> thread_;
};

StreamServer::~StreamServer() {
  if (ForkGeneration() != fork_generation_) {
    [[maybe_unused]] Thread* not_here = thread_.release();
    return;
  }
  const uint64_t one = 1;
  [[maybe_unused]] ssize_t written = ::write(wake_.get(), &one, sizeof(one));
  thread_.reset();
  if (!path_.empty()) ::unlink(path_.c_str());
}

// Until the first deadline, until an answer may be given that waits for its turn, or, when all
// places are taken, until the first may be given to another.
int StreamServer::WaitMs(Clock::time_point now) const {
  auto until = Clock::time_point::max();
  for (const Connection& one : connections_) {
    until = std::min(until, one.fresh ? next_answer_ : one.deadline);
    if (IsFull() && one.gives_way_at > now) until = std::min(until, one.gives_way_at);
  }
  if (refused_) until = std::min(until, now + std::chrono::milliseconds(kLookMs));
  if (until == Clock::time_point::max()) return -1;
  auto left = std::chrono::ceil<std::chrono::milliseconds>(until - now).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 60'000));
}

void StreamServer::Run() {
  std::vector<pollfd> waiting;
  for (;;) {
    const Clock::time_point before = Clock::now();
    const bool has_room = !refused_ && (!IsFull() || GivesWay(before) != connections_.end());
    waiting.assign({{wake_.get(), POLLIN, 0},
                    {listener_.get(), static_cast<short>(has_room ? POLLIN : 0), 0}});
    for (const Connection& one : connections_) {
      // One that has to wait for its turn is not asked for more, nor whether it is still there:
      // the system would say so again and again.
      const bool held = one.fresh && before < next_answer_;
      const short events = one.answering ? POLLOUT : POLLIN;
      waiting.push_back({held ? -1 : one.descriptor.get(), events, 0});
    }
    if (::poll(waiting.data(), waiting.size(), WaitMs(before)) < 0 && errno != EINTR) return;
    if (waiting[0].revents != 0) return;
    const Clock::time_point now = Clock::now();
    refused_ = false;
    // Past its deadline goes who has not said all or taken all by then, and not who waits for us.
    connections_.remove_if(
        [&](Connection& one) { return !Serve(&one, now) || (now >= one.deadline && !one.fresh); });
    if (waiting[1].revents != 0) Accept(now);
  }
}

// Whose place the next one gets: the oldest that has had its time, rather one that says nothing
// than one that takes its answer slowly.
std::list<Connection>::iterator StreamServer::GivesWay(Clock::time_point now) {
  auto slow = connections_.end();
  for (auto one = connections_.begin(); one != connections_.end(); ++one) {
    if (one->fresh || now < one->gives_way_at) continue;
    if (!one->answering) return one;
    if (slow == connections_.end()) slow = one;
  }
  return slow;
}

void StreamServer::Accept(Clock::time_point now) {
  for (;;) {
    const auto gone = IsFull() ? GivesWay(now) : connections_.end();
    if (IsFull() && gone == connections_.end()) return;
    Descriptor taken(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!taken.valid()) {
      refused_ = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
      return;
    }
    if (!path_.empty() && !IsTrustedPeer(taken.get())) continue;
    if (gone != connections_.end()) connections_.erase(gone);
    Connection& made = connections_.emplace_back();
    made.descriptor = std::move(taken);
    made.deadline = now + options_.timeout;
    made.gives_way_at = now + options_.grace;
  }
}

// False when the connection has ended.
bool StreamServer::Serve(Connection* one, Clock::time_point now) {
  if (!one->answering) {
    if (!Receive(one)) return false;
    if (!one->fresh) return !one->ended;
    if (now < next_answer_) return true;
    one->fresh = false;
    ++one->looks;
    std::optional<std::string> answer = answer_(one->received);
    if (!answer)
      return !one->ended && one->received.size() < options_.max_request_bytes &&
             one->looks < options_.max_pieces;
    if (answer->empty()) return false;
    next_answer_ = Clock::now() + options_.pause;
    one->answer = *std::move(answer);
    one->answering = true;
  }
  return Send(one);
}

// Takes what has come. False when the connection broke.
bool StreamServer::Receive(Connection* one) {
  std::array<char, 4096> piece;
  while (one->received.size() < options_.max_request_bytes) {
    const size_t room = std::min(piece.size(), options_.max_request_bytes - one->received.size());
    const ssize_t got = ::recv(one->descriptor.get(), piece.data(), room, 0);
    if (got > 0) {
      one->received.append(piece.data(), static_cast<size_t>(got));
      one->fresh = true;
      continue;
    }
    if (got < 0 && errno == EINTR) continue;
    if (got == 0) one->ended = true;
    return got == 0 || errno == EAGAIN || errno == EWOULDBLOCK;
  }
  return true;
}

// False when all is sent, or cannot be.
bool StreamServer::Send(Connection* one) {
  while (one->sent < one->answer.size()) {
    const ssize_t put = ::send(one->descriptor.get(), one->answer.data() + one->sent,
                               one->answer.size() - one->sent, MSG_NOSIGNAL);
    if (put > 0) {
      one->sent += static_cast<size_t>(put);
      continue;
    }
    if (put < 0 && errno == EINTR) continue;
    return put < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
  }
  ::shutdown(one->descriptor.get(), SHUT_WR);
  return false;
}

Result<std::unique_ptr<ExchangeServer>> StartServer(Descriptor listener, std::string path,
                                                    uint16_t port,
                                                    const ExchangeServer::Options& options,
                                                    ExchangeServer::Answer answer) {
  if (::listen(listener.get(), kBacklog) != 0) return PathError(errno, "listen at", path);
  Descriptor wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.valid()) return PathError(errno, "make an event for", path);
  auto server = std::make_unique<StreamServer>(std::move(listener), std::move(wake),
                                               std::move(path), port, options, std::move(answer));
  HR_RETURN_IF_ERROR(server->Start());
  return std::unique_ptr<ExchangeServer>(std::move(server));
}

Result<Descriptor> ConnectLocal(const std::string& path) {
  HR_ASSIGN_OR_RETURN(sockaddr_un address, LocalAddress(path));
  Descriptor descriptor(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!descriptor.valid()) return PathError(errno, "make", "a local socket");
  if (::connect(descriptor.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) !=
      0) {
    if (errno == ENOENT || errno == ECONNREFUSED)
      return Error(Code::kNotFound, "no process listens at {}", path);
    if (errno == EAGAIN)
      return Error(Code::kUnavailable, "too many others wait for the process at {}", path);
    return PathError(errno, "connect to", path);
  }
  ucred peer{};
  socklen_t size = sizeof(peer);
  if (::getsockopt(descriptor.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0)
    return PathError(errno, "ask for the peer at", path);
  if (peer.uid != ::geteuid() && ::geteuid() != 0)
    return Error(Code::kPermissionDenied, "the process at {} belongs to user {}", path, peer.uid);
  return descriptor;
}

Status SendAll(int descriptor, std::string_view data, const Context& ctx) {
  while (!data.empty()) {
    HR_RETURN_IF_ERROR(WaitForSocket(descriptor, POLLOUT, kWhat, ctx));
    const ssize_t put = ::send(descriptor, data.data(), data.size(), MSG_NOSIGNAL);
    if (put > 0) {
      data.remove_prefix(static_cast<size_t>(put));
    } else if (put < 0 && errno != EAGAIN && errno != EINTR) {
      return Error(Code::kUnavailable, "the process on the other side of a socket is gone");
    }
  }
  return OkStatus();
}

}  // namespace

Result<std::unique_ptr<ExchangeServer>> ExchangeServer::ListenLocal(const std::string& path,
                                                                    const Options& options,
                                                                    Answer answer) {
  HR_ASSIGN_OR_RETURN(sockaddr_un address, LocalAddress(path));
  HR_RETURN_IF_ERROR(CheckSocketFolder(std::string(DirectoryName(path))));
  Descriptor listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener.valid()) return PathError(errno, "make", "a local socket");
  if (::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    if (errno == EADDRINUSE) return Error(Code::kAlreadyExists, "{} is there already", path);
    return PathError(errno, "listen at", path);
  }
  auto server = ::chmod(path.c_str(), 0600) == 0
                    ? StartServer(std::move(listener), path, 0, options, std::move(answer))
                    : PathError(errno, "listen at", path);
  if (!server.ok()) ::unlink(path.c_str());
  return server;
}

Result<std::unique_ptr<ExchangeServer>> ExchangeServer::ListenTcp(const std::string& address,
                                                                  uint16_t port,
                                                                  const Options& options,
                                                                  Answer answer) {
  uint16_t taken = 0;
  HR_ASSIGN_OR_RETURN(Descriptor listener, BindTcp(address, port, &taken));
  return StartServer(std::move(listener), "", taken, options, std::move(answer));
}

bool IsLoopback(const std::string& address) {
  auto parsed = ParseTcpAddress(address, 0);
  return parsed.ok() && parsed->loopback;
}

Result<std::string> ExchangeLocal(const std::string& path, std::string_view request,
                                  uint64_t limit_bytes, const Context& ctx) {
  HR_ASSIGN_OR_RETURN(Descriptor descriptor, ConnectLocal(path));
  HR_RETURN_IF_ERROR(SendAll(descriptor.get(), request, ctx));
  std::string answer;
  std::array<char, 16384> piece;
  for (;;) {
    HR_RETURN_IF_ERROR(WaitForSocket(descriptor.get(), POLLIN, kWhat, ctx));
    const ssize_t got = ::recv(descriptor.get(), piece.data(), piece.size(), 0);
    if (got == 0) return answer;
    if (got < 0) {
      if (errno == EAGAIN || errno == EINTR) continue;
      return Error(Code::kUnavailable, "the process at {} broke off", path);
    }
    if (answer.size() + static_cast<size_t>(got) > limit_bytes)
      return Error(Code::kResourceExhausted, "the answer of {} has more than {} bytes", path,
                   limit_bytes);
    answer.append(piece.data(), static_cast<size_t>(got));
  }
}

}  // namespace headrace
