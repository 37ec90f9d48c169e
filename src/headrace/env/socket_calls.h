// What the sockets of env share: numeric addresses, listening, and waiting under a context.
// Internal to env. Safe from any thread.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "headrace/base/context.h"
#include "headrace/base/status.h"
#include "headrace/env/posix_descriptor.h"

namespace headrace {

struct TcpAddress {
  sockaddr_storage storage{};
  socklen_t bytes = 0;
  bool loopback = false;  // only this machine reaches it

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};
// kInvalidArgument: not numeric as "127.0.0.1", "::1" or "0.0.0.0".
Result<TcpAddress> ParseTcpAddress(const std::string& text, uint16_t port);

// A socket that is bound there and does not yet listen; port 0: a free one. `taken` is the port
// that it has.
//   kInvalidArgument  no numeric address.
//   kAlreadyExists    the port is taken.
Result<Descriptor> BindTcp(const std::string& address, uint16_t port, uint16_t* taken);

// Waits until a socket is ready for `events` (POLLIN, POLLOUT). Looks at the context about ten
// times a second. `what` is for messages.
Status WaitForSocket(int descriptor, short events, std::string_view what, const Context& ctx);

}  // namespace headrace
