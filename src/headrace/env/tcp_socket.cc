#include "headrace/env/tcp_socket.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <utility>

#include "headrace/base/text.h"
#include "headrace/env/socket_calls.h"

namespace headrace {
namespace {

constexpr std::string_view kWhat = "a connection";

Status GoneError() { return Status(Code::kUnavailable, "the other side of a connection is gone"); }

class StreamSocket final : public TcpSocket {
 public:
  explicit StreamSocket(Descriptor descriptor) : descriptor_(std::move(descriptor)) {}
  Status Send(Bytes data, const Context& ctx) override;
  Status Receive(MutableBytes out, const Context& ctx) override;

 private:
  const Descriptor descriptor_;
};

// Of a descriptor that is connected. Small questions do not wait for company.
std::unique_ptr<TcpSocket> SocketOf(Descriptor descriptor) {
  const int on = 1;
  ::setsockopt(descriptor.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  return std::make_unique<StreamSocket>(std::move(descriptor));
}

Status StreamSocket::Send(Bytes data, const Context& ctx) {
  HR_RETURN_IF_ERROR(ctx.Check());
  while (!data.empty()) {
    const ssize_t put = ::send(descriptor_.get(), data.data(), data.size(), MSG_NOSIGNAL);
    if (put >= 0) {
      data = data.subspan(static_cast<size_t>(put));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      HR_RETURN_IF_ERROR(WaitForSocket(descriptor_.get(), POLLOUT, kWhat, ctx));
    } else if (errno != EINTR) {
      return GoneError();
    }
  }
  return OkStatus();
}

Status StreamSocket::Receive(MutableBytes out, const Context& ctx) {
  HR_RETURN_IF_ERROR(ctx.Check());
  while (!out.empty()) {
    const ssize_t got = ::recv(descriptor_.get(), out.data(), out.size(), 0);
    if (got > 0) {
      out = out.subspan(static_cast<size_t>(got));
    } else if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      HR_RETURN_IF_ERROR(WaitForSocket(descriptor_.get(), POLLIN, kWhat, ctx));
    } else if (got == 0 || errno != EINTR) {
      return GoneError();
    }
  }
  return OkStatus();
}

class StreamListener final : public TcpListener {
 public:
  StreamListener(Descriptor descriptor, uint16_t port)
      : descriptor_(std::move(descriptor)), port_(port) {}
  Result<std::unique_ptr<TcpSocket>> Accept(const Context& ctx) override;
  uint16_t port() const override { return port_; }

 private:
  const Descriptor descriptor_;
  const uint16_t port_;
};

Result<std::unique_ptr<TcpSocket>> StreamListener::Accept(const Context& ctx) {
  for (;;) {
    HR_RETURN_IF_ERROR(WaitForSocket(descriptor_.get(), POLLIN, kWhat, ctx));
    Descriptor taken(::accept4(descriptor_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (taken.valid()) return SocketOf(std::move(taken));
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
      return Error(Code::kResourceExhausted, "no descriptor or memory is left for a connection");
    // Any other fault is that of one connection, which is gone by now.
  }
}

}  // namespace

std::string TcpEndpoint::Text() const {
  return address.find(':') == std::string::npos ? fmt::format("{}:{}", address, port)
                                                : fmt::format("[{}]:{}", address, port);
}

Result<TcpEndpoint> ParseTcpEndpoint(std::string_view text) {
  const size_t colon = std::min(text.rfind(':'), text.size());
  const std::string_view port = text.substr(std::min(colon + 1, text.size()));
  TcpEndpoint endpoint;
  endpoint.address = text.substr(0, colon);
  if (endpoint.address.starts_with('[') && endpoint.address.ends_with(']'))
    endpoint.address = endpoint.address.substr(1, endpoint.address.size() - 2);
  if (endpoint.address == "localhost") endpoint.address = "127.0.0.1";
  const auto parsed = std::from_chars(port.data(), port.data() + port.size(), endpoint.port);
  if (endpoint.address.empty() || port.empty() || parsed.ec != std::errc() ||
      parsed.ptr != port.data() + port.size())
    return Error(Code::kInvalidArgument, "expected ADDRESS:PORT as 127.0.0.1:9399, found '{}'",
                 EscapeText(text));
  HR_RETURN_IF_ERROR(ParseTcpAddress(endpoint.address, endpoint.port).status());
  return endpoint;
}

Result<std::unique_ptr<TcpSocket>> TcpSocket::Connect(const std::string& address, uint16_t port,
                                                      const Context& ctx) {
  HR_ASSIGN_OR_RETURN(const TcpAddress at, ParseTcpAddress(address, port));
  const std::string name = fmt::format("{} port {}", address, port);
  Descriptor descriptor(
      ::socket(at.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!descriptor.valid()) return PathError(errno, "make a socket for", name);
  int fault = ::connect(descriptor.get(), at.get(), at.bytes) == 0 ? 0 : errno;
  if (fault == EINPROGRESS || fault == EINTR) {
    HR_RETURN_IF_ERROR(WaitForSocket(descriptor.get(), POLLOUT, name, ctx));
    socklen_t size = sizeof(fault);
    if (::getsockopt(descriptor.get(), SOL_SOCKET, SO_ERROR, &fault, &size) != 0) fault = errno;
  }
  if (fault != 0)
    return Error(Code::kUnavailable, "{}", PathError(fault, "connect to", name).message());
  return SocketOf(std::move(descriptor));
}

Result<std::unique_ptr<TcpListener>> TcpListener::Listen(const std::string& address,
                                                         uint16_t port) {
  uint16_t taken = 0;
  HR_ASSIGN_OR_RETURN(Descriptor descriptor, BindTcp(address, port, &taken));
  if (::listen(descriptor.get(), 128) != 0) return PathError(errno, "listen at", address);
  return std::unique_ptr<TcpListener>(
      std::make_unique<StreamListener>(std::move(descriptor), taken));
}

}  // namespace headrace
