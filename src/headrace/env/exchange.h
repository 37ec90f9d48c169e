// Short exchanges over a stream: a client sends one request, gets one answer, and the connection
// ends. For the admin server of a process and those who ask it. Nothing a client does can take more
// than its small share: connections, bytes and time are bounded, and one thread serves all.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "headrace/base/context.h"
#include "headrace/base/status.h"

namespace headrace {

class ExchangeServer {
 public:
  struct Options {
    std::string thread_name = "hr-exchange";
    size_t max_connections = 16;  // more wait until one of these ends or gives way
    size_t max_request_bytes = 16 << 10;
    // A request that comes in more pieces ends the connection: each is a look at all that came.
    size_t max_pieces = 256;
    std::chrono::nanoseconds timeout = std::chrono::seconds(5);  // of a whole exchange
    // While more wait than there is room for, a connection gives way to the next one after this
    // time, but for one whose request has come and was not looked at yet. So clients that say
    // nothing keep nobody waiting for as long as `timeout`.
    std::chrono::nanoseconds grace = std::chrono::milliseconds(250);
    // At least this long between the starts of two answers, so that a client that asks without end
    // takes no more than a small share of a processor.
    std::chrono::nanoseconds pause = std::chrono::milliseconds(2);
  };
  // Given all that came so far (at most max_request_bytes), returns the answer to send, or nothing
  // while the request is not whole. Empty: ends the connection without an answer. Called on the
  // server's thread.
  using Answer = std::function<std::optional<std::string>(std::string_view received)>;

  // Listens at a path, which it makes, for processes of this user and of root. Its folder must be
  // writable by this user alone.
  //   kAlreadyExists       something is there.
  //   kInvalidArgument     the path is longer than the 107 bytes that the system takes.
  //   kFailedPrecondition  others may write to the folder.
  //   kResourceExhausted   no more threads or descriptors.
  static Result<std::unique_ptr<ExchangeServer>> ListenLocal(const std::string& path,
                                                             const Options& options, Answer answer);
  // Listens at a numeric address ("127.0.0.1", "::1", "0.0.0.0"); port 0: a free one.
  //   kInvalidArgument  no numeric address.
  //   kAlreadyExists    the port is taken.
  static Result<std::unique_ptr<ExchangeServer>> ListenTcp(const std::string& address,
                                                           uint16_t port, const Options& options,
                                                           Answer answer);
  // Ends the thread and all connections; removes the path. In a child forked since, lets go of the
  // memory alone.
  virtual ~ExchangeServer() = default;

  virtual uint16_t port() const = 0;  // 0 for a path
};

// True for an address that only this machine reaches: 127.0.0.0/8 and ::1.
bool IsLoopback(const std::string& address);

// Sends `request` to whoever listens at `path` and returns all it answers, until it closes.
//   kNotFound           nobody listens there.
//   kPermissionDenied   the listener is another user's process.
//   kResourceExhausted  the answer has more than `limit_bytes`.
//   kUnavailable        the connection broke off.
//   kDeadlineExceeded, kCancelled
Result<std::string> ExchangeLocal(const std::string& path, std::string_view request,
                                  uint64_t limit_bytes, const Context& ctx);

}  // namespace headrace
