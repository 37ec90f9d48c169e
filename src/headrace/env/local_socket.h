// Messages between processes of one user on one machine, with which descriptors can be sent. Each
// message arrives whole, in order. A socket is for one sender and one receiver at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "headrace/base/bytes.h"
#include "headrace/base/context.h"
#include "headrace/base/status.h"

namespace headrace {

class LocalSocket {
 public:
  static constexpr size_t kMaxMessageBytes = 64 << 10;

  struct Message {
    std::string content;
    int descriptor = -1;  // the receiver's own: it must close it
  };

  // Speaks to whoever listens at `path`.
  //   kNotFound          nobody does, or nobody does any more.
  //   kPermissionDenied  the listener is another user's process.
  static Result<std::unique_ptr<LocalSocket>> Connect(const std::string& path);
  virtual ~LocalSocket() = default;

  // kUnavailable when the other side is gone; kInvalidArgument for a message that is empty or
  // longer than kMaxMessageBytes; kDeadlineExceeded, kCancelled (looked at about ten times a
  // second). `descriptor`, if any, stays the caller's.
  virtual Status Send(Bytes message, const Context& ctx, int descriptor = -1) = 0;
  // Waits for the next message. Failures as Send.
  virtual Result<Message> Receive(const Context& ctx) = 0;
  // The process on the other side when it connected.
  virtual int64_t peer_process() const = 0;
};

class LocalListener {
 public:
  // Listens at `path`, which it makes, only for this user. Its folder must be there and be
  // writable by this user alone.
  //   kAlreadyExists       another process listens there.
  //   kInvalidArgument     the path is longer than the 107 bytes that the system takes.
  //   kFailedPrecondition  others may write to the folder.
  static Result<std::unique_ptr<LocalListener>> Listen(const std::string& path);
  // Removes the path, unless it is another listener's by now.
  virtual ~LocalListener() = default;

  // Waits for the next process of this user; others are sent away. kDeadlineExceeded, kCancelled.
  virtual Result<std::unique_ptr<LocalSocket>> Accept(const Context& ctx) = 0;
};

}  // namespace headrace
