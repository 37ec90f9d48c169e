#include "headrace/net/testing/fault_server.h"

#include <arpa/inet.h>
#include <fmt/core.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <list>
#include <mutex>
#include <thread>
#include <utility>

#include "headrace/base/ascii.h"
#include "headrace/base/mutex.h"
#include "headrace/base/text.h"
#include "headrace/net/testing/server_tls.h"

namespace headrace::net {

namespace {

using std::chrono::milliseconds;

// The reason after the status in the first line; no client here looks at it.
const char* Reason(int status) {
  switch (status / 100) {
    case 2:
      return "Fine";
    case 3:
      return "Elsewhere";
    case 4:
      return "Refused";
    default:
      return "Status";
  }
}

// Reads a request's head, up to and without its empty line.
ServerRequest ReadHead(std::string_view head) {
  ServerRequest request;
  std::string_view first = head.substr(0, head.find("\r\n"));
  size_t space = first.find(' '), last_space = first.rfind(' ');
  request.method = first.substr(0, space);
  if (space != std::string_view::npos && last_space > space)
    request.target = first.substr(space + 1, last_space - space - 1);
  head.remove_prefix(first.size());
  while (head.starts_with("\r\n")) {
    head.remove_prefix(2);
    std::string_view line = head.substr(0, head.find("\r\n"));
    head.remove_prefix(line.size());
    size_t colon = line.find(':');
    if (colon == std::string_view::npos) continue;
    request.headers.push_back(
        {Lower(line.substr(0, colon)), std::string(Trim(line.substr(colon + 1)))});
  }
  return request;
}

bool Names(const std::vector<HttpHeader>& headers, std::string_view name) {
  return std::any_of(headers.begin(), headers.end(),
                     [&](const HttpHeader& header) { return Lower(header.name) == name; });
}

// The answer's head, with the length that it tells.
std::string Head(const ServerAnswer& answer, uint64_t told_length) {
  std::string head = answer.before;
  head += fmt::format("HTTP/1.1 {} {}\r\n", answer.status, Reason(answer.status));
  for (const HttpHeader& header : answer.headers)
    head += fmt::format("{}: {}\r\n", header.name, header.value);
  if (answer.chunked)
    head += "Transfer-Encoding: chunked\r\n";
  else if (!Names(answer.headers, "content-length") && answer.status != 204 && answer.status != 304)
    head += fmt::format("Content-Length: {}\r\n", told_length);
  if (answer.close) head += "Connection: close\r\n";
  return head + "\r\n";
}

void AddToNoProxy() {
  const char* before = std::getenv("no_proxy");
  if (!before) before = std::getenv("NO_PROXY");
  std::string hosts = before && *before ? std::string(before) + "," : "";
  ::setenv("no_proxy", (hosts + "127.0.0.1").c_str(), 1);
}

// OpenSSL writes to closed connections without keeping the signal away.
void BlockSigpipe() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

[[noreturn]] void CannotListen() {
  std::perror("the tests' HTTP server cannot listen on 127.0.0.1");
  std::abort();
}

}  // namespace

class FaultServer::Impl {
 public:
  Impl(Handler handler, Transport transport);
  ~Impl();

  struct Connection {
    int fd = -1;  // -1: closed
    uint64_t number = 0;
    bool busy = false;  // a request is being read or answered
    bool close_when_idle = false;
    std::thread thread;
    // Of the thread alone.
    std::unique_ptr<ServerStream> stream;
    std::string unread;
  };
  struct Injected {
    Fault fault;
    uint64_t times;
    Match match;
  };

  void AcceptAll();
  void Serve(Connection* connection);
  bool ReadMore(Connection* connection);
  std::optional<ServerRequest> Read(Connection* connection);
  ServerAnswer Ask(const ServerRequest& request);
  bool Answer(Connection* connection, const ServerRequest& request, const ServerAnswer& answer);
  bool SendBody(Connection* connection, const ServerAnswer& answer);
  bool SendPiece(Connection* connection, const ServerAnswer& answer, std::string_view piece);
  bool Send(Connection* connection, std::string_view bytes, bool body);
  bool Pause(milliseconds time);
  void NoteSent();
  void SetBusy(Connection* connection);
  bool SetIdle(Connection* connection);
  void Close(Connection* connection, Cut cut);

  std::unique_ptr<ServerTls> tls;  // null: not encrypted
  int listener = -1;
  uint16_t port = 0;
  std::thread acceptor;
  std::atomic<uint64_t> bytes_sent{0}, body_bytes_sent{0};

  mutable Mutex mu;
  CondVar stop_cv;
  bool stopping HR_GUARDED_BY(mu) = false;
  Handler handler HR_GUARDED_BY(mu);
  std::deque<ServerAnswer> enqueued HR_GUARDED_BY(mu);
  std::deque<Injected> injected HR_GUARDED_BY(mu);
  uint64_t resets HR_GUARDED_BY(mu) = 0;
  std::list<Connection> connections HR_GUARDED_BY(mu);
  std::vector<ServerRequest> requests HR_GUARDED_BY(mu);
  uint64_t num_requests HR_GUARDED_BY(mu) = 0;
  uint64_t num_connections HR_GUARDED_BY(mu) = 0;
  uint64_t active HR_GUARDED_BY(mu) = 0, peak HR_GUARDED_BY(mu) = 0;
  std::chrono::steady_clock::time_point last_sent HR_GUARDED_BY(mu){};
  std::chrono::nanoseconds longest_pause HR_GUARDED_BY(mu){0};
};

FaultServer::Impl::Impl(Handler made_with, Transport transport) : handler(std::move(made_with)) {
  if (transport == Transport::kTls) tls = std::make_unique<ServerTls>();
  static std::once_flag once;
  std::call_once(once, AddToNoProxy);
  listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  if (listener < 0 || ::bind(listener, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      ::listen(listener, 512) != 0 ||
      ::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size) != 0)
    CannotListen();
  port = ntohs(address.sin_port);
  acceptor = std::thread([this] { AcceptAll(); });
}

FaultServer::Impl::~Impl() {
  {
    MutexLock lock(&mu);
    stopping = true;
    stop_cv.NotifyAll();
  }
  ::shutdown(listener, SHUT_RDWR);
  acceptor.join();
  ::close(listener);
  std::list<Connection> ended;
  {
    MutexLock lock(&mu);
    for (Connection& connection : connections)
      if (connection.fd >= 0) ::shutdown(connection.fd, SHUT_RDWR);
    ended.swap(connections);  // the addresses of the nodes stay
  }
  for (Connection& connection : ended) connection.thread.join();
}

void FaultServer::Impl::AcceptAll() {
  for (;;) {
    int fd = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0 && (errno == EINTR || errno == ECONNABORTED)) continue;
    MutexLock lock(&mu);
    if (fd < 0 || stopping) {
      if (fd >= 0) ::close(fd);
      return;
    }
    ++num_connections;
    int one = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    Connection& connection = connections.emplace_back();
    connection.fd = fd;
    connection.number = num_connections;
    if (resets > 0) {
      --resets;
      linger hard{1, 0};
      ::setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
      ::close(fd);
      connections.pop_back();
      continue;
    }
    connection.thread = std::thread([this, &connection] { Serve(&connection); });
  }
}

void FaultServer::Impl::Serve(Connection* connection) {
  BlockSigpipe();
  connection->stream = tls ? tls->Accept(connection->fd) : PlainStream(connection->fd);
  bool open = connection->stream != nullptr;
  while (open) {
    auto request = Read(connection);
    if (!request) break;
    ServerAnswer answer = Ask(*request);
    open = Answer(connection, *request, answer);
    if (open) open = request->Header("connection") != "close";
    open = SetIdle(connection) && open;
    if (!open) Close(connection, answer.cut_at || answer.drop ? answer.cut : Cut::kClose);
  }
  Close(connection, Cut::kClose);
}

// Returns false when the client is gone.
bool FaultServer::Impl::ReadMore(Connection* connection) {
  char piece[64 << 10];
  long bytes = connection->stream->Receive(piece, sizeof(piece));
  if (bytes <= 0) return false;
  connection->unread.append(piece, static_cast<size_t>(bytes));
  return true;
}

std::optional<ServerRequest> FaultServer::Impl::Read(Connection* connection) {
  std::string& unread = connection->unread;
  size_t head_bytes = 0;
  while ((head_bytes = unread.find("\r\n\r\n")) == std::string::npos) {
    if (!ReadMore(connection)) return std::nullopt;
    SetBusy(connection);
  }
  ServerRequest request = ReadHead(std::string_view(unread).substr(0, head_bytes));
  request.connection = connection->number;
  unread.erase(0, head_bytes + 4);
  if (request.Header("expect") == "100-continue" &&
      !Send(connection, "HTTP/1.1 100 Continue\r\n\r\n", false))
    return std::nullopt;
  std::string length(request.Header("content-length"));
  size_t body_bytes = length.empty() ? 0 : std::strtoull(length.c_str(), nullptr, 10);
  while (unread.size() < body_bytes)
    if (!ReadMore(connection)) return std::nullopt;
  request.body = unread.substr(0, body_bytes);
  unread.erase(0, body_bytes);
  return request;
}

// Books the request and makes its answer.
ServerAnswer FaultServer::Impl::Ask(const ServerRequest& request) {
  Handler ask;
  Fault fault;
  ServerAnswer answer;
  {
    MutexLock lock(&mu);
    requests.push_back(request);
    ++num_requests;
    peak = std::max(peak, ++active);
    if (!enqueued.empty()) {
      answer = std::move(enqueued.front());
      enqueued.pop_front();
    } else {
      ask = handler;
    }
    auto found = std::find_if(injected.begin(), injected.end(), [&](const Injected& one) {
      return !one.match || one.match(request);
    });
    if (found != injected.end()) {
      fault = found->fault;
      if (--found->times == 0) injected.erase(found);
    }
  }
  if (ask) answer = ask(request);
  if (fault) fault(request, answer);
  return answer;
}

// Sends the answer. Returns false when the connection should end.
bool FaultServer::Impl::Answer(Connection* connection, const ServerRequest& request,
                               const ServerAnswer& answer) {
  bool open = false;
  uint64_t told = answer.content_length.value_or(answer.body.size());
  if (answer.hang) {
    while (Pause(milliseconds(60000))) {
    }
  } else if (!answer.drop && Pause(answer.first_byte_delay) &&
             Send(connection, Head(answer, told), false)) {
    bool has_body = request.method != "HEAD";
    open = (!has_body || SendBody(connection, answer)) && !answer.close &&
           (!has_body || answer.chunked || told == answer.body.size());
  }
  MutexLock lock(&mu);
  --active;
  return open;
}

bool FaultServer::Impl::SendBody(Connection* connection, const ServerAnswer& answer) {
  std::string_view rest(answer.body);
  if (answer.cut_at) rest = rest.substr(0, *answer.cut_at);
  size_t piece_bytes = answer.drip_bytes > 0 ? answer.drip_bytes : 256 << 10;
  while (!rest.empty()) {
    std::string_view piece = rest.substr(0, piece_bytes);
    rest.remove_prefix(piece.size());
    if (!SendPiece(connection, answer, piece)) return false;
    if (answer.drip_bytes > 0 && !rest.empty() && !Pause(answer.drip_delay)) return false;
  }
  if (answer.cut_at) return false;
  return !answer.chunked || Send(connection, "0\r\n\r\n", false);
}

bool FaultServer::Impl::SendPiece(Connection* connection, const ServerAnswer& answer,
                                  std::string_view piece) {
  if (!answer.chunked) return Send(connection, piece, true);
  return Send(connection, fmt::format("{:x}\r\n", piece.size()), false) &&
         Send(connection, piece, true) && Send(connection, "\r\n", false);
}

bool FaultServer::Impl::Send(Connection* connection, std::string_view bytes, bool body) {
  while (!bytes.empty()) {
    long sent = connection->stream->Send(bytes);
    if (sent < 1) return false;
    bytes.remove_prefix(static_cast<size_t>(sent));
    bytes_sent += static_cast<uint64_t>(sent);
    if (body) body_bytes_sent += static_cast<uint64_t>(sent);
    NoteSent();
  }
  return true;
}

void FaultServer::Impl::NoteSent() {
  MutexLock lock(&mu);
  auto now = std::chrono::steady_clock::now();
  longest_pause = std::max<std::chrono::nanoseconds>(longest_pause, now - last_sent);
  last_sent = now;
}

// Returns false when the server ends meanwhile.
bool FaultServer::Impl::Pause(milliseconds time) {
  auto end = std::chrono::steady_clock::now() + time;
  MutexLock lock(&mu);
  while (!stopping) {
    auto now = std::chrono::steady_clock::now();
    if (now >= end) return true;
    stop_cv.WaitFor(&mu, end - now);
  }
  return false;
}

void FaultServer::Impl::SetBusy(Connection* connection) {
  MutexLock lock(&mu);
  connection->busy = true;
}

// Returns false when the connection should end now.
bool FaultServer::Impl::SetIdle(Connection* connection) {
  MutexLock lock(&mu);
  connection->busy = false;
  return !connection->close_when_idle;
}

void FaultServer::Impl::Close(Connection* connection, Cut cut) {
  MutexLock lock(&mu);
  if (connection->fd < 0) return;
  linger hard{1, 0};
  if (cut == Cut::kReset) ::setsockopt(connection->fd, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
  ::close(connection->fd);
  connection->fd = -1;
}

FaultServer::FaultServer(Handler handler, Transport transport)
    : impl_(std::make_unique<Impl>(std::move(handler), transport)) {}
FaultServer::~FaultServer() = default;

uint16_t FaultServer::port() const { return impl_->port; }
std::string FaultServer::url() const {
  return fmt::format("{}://127.0.0.1:{}", impl_->tls ? "https" : "http", impl_->port);
}

std::string FaultServer::certificate_pem() const {
  return impl_->tls ? impl_->tls->certificate_pem() : "";
}

void FaultServer::SetHandler(Handler handler) {
  MutexLock lock(&impl_->mu);
  impl_->handler = std::move(handler);
}

void FaultServer::Enqueue(std::vector<ServerAnswer> answers) {
  MutexLock lock(&impl_->mu);
  for (ServerAnswer& answer : answers) impl_->enqueued.push_back(std::move(answer));
}

void FaultServer::Inject(Fault fault, uint64_t times, Match match) {
  if (times == 0) return;
  MutexLock lock(&impl_->mu);
  impl_->injected.push_back({std::move(fault), times, std::move(match)});
}

void FaultServer::ResetConnections(uint64_t count) {
  MutexLock lock(&impl_->mu);
  impl_->resets = count;
}

void FaultServer::Heal() {
  MutexLock lock(&impl_->mu);
  impl_->enqueued.clear();
  impl_->injected.clear();
  impl_->resets = 0;
}

void FaultServer::CloseIdle() {
  MutexLock lock(&impl_->mu);
  for (Impl::Connection& connection : impl_->connections)
    if (connection.fd >= 0 && !connection.busy)
      ::shutdown(connection.fd, SHUT_RDWR);
    else
      connection.close_when_idle = true;
}

std::vector<ServerRequest> FaultServer::requests() const {
  MutexLock lock(&impl_->mu);
  return impl_->requests;
}

uint64_t FaultServer::num_requests() const {
  MutexLock lock(&impl_->mu);
  return impl_->num_requests;
}

uint64_t FaultServer::CountRequests(const Match& match) const {
  MutexLock lock(&impl_->mu);
  return static_cast<uint64_t>(
      std::count_if(impl_->requests.begin(), impl_->requests.end(), match));
}

uint64_t FaultServer::num_connections() const {
  MutexLock lock(&impl_->mu);
  return impl_->num_connections;
}

uint64_t FaultServer::open_connections() const {
  MutexLock lock(&impl_->mu);
  return static_cast<uint64_t>(
      std::count_if(impl_->connections.begin(), impl_->connections.end(),
                    [](const Impl::Connection& connection) { return connection.fd >= 0; }));
}

uint64_t FaultServer::peak_requests() const {
  MutexLock lock(&impl_->mu);
  return impl_->peak;
}

uint64_t FaultServer::bytes_sent() const { return impl_->bytes_sent; }
uint64_t FaultServer::body_bytes_sent() const { return impl_->body_bytes_sent; }

void FaultServer::WatchPauses() {
  MutexLock lock(&impl_->mu);
  impl_->last_sent = std::chrono::steady_clock::now();
  impl_->longest_pause = {};
}

std::chrono::nanoseconds FaultServer::longest_pause() const {
  MutexLock lock(&impl_->mu);
  return std::max<std::chrono::nanoseconds>(impl_->longest_pause,
                                            std::chrono::steady_clock::now() - impl_->last_sent);
}

void FaultServer::ClearRequests() {
  MutexLock lock(&impl_->mu);
  impl_->requests.clear();
}

}  // namespace headrace::net
