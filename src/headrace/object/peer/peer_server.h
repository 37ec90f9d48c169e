// Keeps objects for other nodes in a folder of this one (`headrace ckpt serve`): the other side of
// PeerStore. An object counts once it is here whole, checked against its CRC32C, and synced. Keys
// are names and no paths: none leaves the folder (object/dir/key_path.h). Bounded: the bytes that
// it holds, connections, the size of each message, and how long a caller may take. What it is sent
// is not encrypted. Thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "headrace/base/status.h"
#include "headrace/env/tcp_socket.h"

namespace headrace::object {

struct PeerServerOptions {
  TcpEndpoint listen{"127.0.0.1", 0};  // port 0: a free one
  // What callers must show to know: at least 16 characters. Empty: nothing, for an address that
  // only this machine reaches.
  std::string token;
  uint64_t size_bytes = 0;  // that it may hold, names and unfinished objects included
  uint32_t max_connections = 64;
  // For one step of an exchange, besides 1 s for each MiB.
  std::chrono::nanoseconds patience = std::chrono::seconds(10);
};

class PeerServer {
 public:
  // Makes the folder when it is missing, gives up what was being sent to a server before, and
  // listens.
  //   kInvalidArgument     an address that others reach without a token, one that is too short, or
  //                        no size.
  //   kFailedPrecondition  another server has the folder.
  //   kAlreadyExists       the port is taken.
  static Result<std::unique_ptr<PeerServer>> Start(const std::string& folder,
                                                   const PeerServerOptions& options);
  // Ends all connections; what was being sent is given up.
  virtual ~PeerServer() = default;

  virtual const TcpEndpoint& endpoint() const = 0;
  virtual uint64_t used_bytes() = 0;
};

}  // namespace headrace::object
