#include "headrace/env/socket_calls.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>

#include <cerrno>
#include <cstring>

namespace headrace {
namespace {

constexpr int kLookMs = 100;  // how often a waiting call looks at its context

uint16_t PortOf(const TcpAddress& address) {
  sockaddr_in v4{};
  sockaddr_in6 v6{};
  std::memcpy(&v4, &address.storage, sizeof(v4));
  std::memcpy(&v6, &address.storage, sizeof(v6));
  return ntohs(address.storage.ss_family == AF_INET ? v4.sin_port : v6.sin6_port);
}

}  // namespace

Result<TcpAddress> ParseTcpAddress(const std::string& text, uint16_t port) {
  TcpAddress address;
  sockaddr_in v4{};
  sockaddr_in6 v6{};
  if (::inet_pton(AF_INET, text.c_str(), &v4.sin_addr) == 1) {
    v4.sin_family = AF_INET;
    v4.sin_port = htons(port);
    std::memcpy(&address.storage, &v4, sizeof(v4));
    address.bytes = sizeof(v4);
    address.loopback = (ntohl(v4.sin_addr.s_addr) >> 24) == 127;
    return address;
  }
  if (::inet_pton(AF_INET6, text.c_str(), &v6.sin6_addr) == 1) {
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(port);
    std::memcpy(&address.storage, &v6, sizeof(v6));
    address.bytes = sizeof(v6);
    address.loopback = IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr);
    return address;
  }
  return Error(Code::kInvalidArgument,
               "{} is no numeric address: expected one as 127.0.0.1, ::1 or 0.0.0.0", text);
}

Result<Descriptor> BindTcp(const std::string& address, uint16_t port, uint16_t* taken) {
  HR_ASSIGN_OR_RETURN(TcpAddress at, ParseTcpAddress(address, port));
  const std::string name = fmt::format("{} port {}", address, port);
  Descriptor listener(
      ::socket(at.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener.valid()) return PathError(errno, "make a socket for", name);
  const int on = 1;
  ::setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (::bind(listener.get(), at.get(), at.bytes) != 0) {
    if (errno == EADDRINUSE) return Error(Code::kAlreadyExists, "{} is taken", name);
    return PathError(errno, "listen at", name);
  }
  if (::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&at.storage), &at.bytes) != 0)
    return PathError(errno, "ask for the port of", name);
  *taken = PortOf(at);
  return listener;
}

Status WaitForSocket(int descriptor, short events, std::string_view what, const Context& ctx) {
  for (;;) {
    HR_RETURN_IF_ERROR(ctx.Check());
    pollfd one{descriptor, events, 0};
    const int ready = ::poll(&one, 1, kLookMs);
    if (ready > 0) return OkStatus();
    if (ready < 0 && errno != EINTR) return PathError(errno, "wait for", what);
  }
}

}  // namespace headrace
