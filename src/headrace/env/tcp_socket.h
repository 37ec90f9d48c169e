// Streams of bytes between machines. A socket is for one sender and one receiver at a time; what
// goes over it is neither hidden nor checked here.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "headrace/base/bytes.h"
#include "headrace/base/context.h"
#include "headrace/base/status.h"

namespace headrace {

// Where somebody listens, as people write it: "127.0.0.1:9399", "[::1]:9399".
struct TcpEndpoint {
  std::string address;  // numeric, without brackets
  uint16_t port = 0;

  std::string Text() const;
};
// "localhost" is 127.0.0.1. kInvalidArgument: not ADDRESS:PORT, or no numeric address.
Result<TcpEndpoint> ParseTcpEndpoint(std::string_view text);

// Failures of every call: kUnavailable when the other side is gone or cannot be reached;
// kDeadlineExceeded, kCancelled (looked at about ten times a second), after which a part may have
// come through.
class TcpSocket {
 public:
  // Speaks to whoever listens at a numeric address. kInvalidArgument: it is none.
  static Result<std::unique_ptr<TcpSocket>> Connect(const std::string& address, uint16_t port,
                                                    const Context& ctx);
  virtual ~TcpSocket() = default;

  // Sends all of it.
  virtual Status Send(Bytes data, const Context& ctx) = 0;
  // Fills `out`.
  virtual Status Receive(MutableBytes out, const Context& ctx) = 0;
};

class TcpListener {
 public:
  // Listens at a numeric address; port 0: a free one.
  //   kInvalidArgument  no numeric address.
  //   kAlreadyExists    the port is taken.
  static Result<std::unique_ptr<TcpListener>> Listen(const std::string& address, uint16_t port);
  virtual ~TcpListener() = default;

  // Waits for the next connection, from whomever. kDeadlineExceeded, kCancelled;
  // kResourceExhausted: no descriptor is left for it.
  virtual Result<std::unique_ptr<TcpSocket>> Accept(const Context& ctx) = 0;
  virtual uint16_t port() const = 0;
};

}  // namespace headrace
