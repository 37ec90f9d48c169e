// Connections to one peer: opened when needed, kept for the next request. Internal to object/peer.
// Thread-safe; of one process (PerProcess).
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "headrace/base/context.h"
#include "headrace/base/mutex.h"
#include "headrace/base/status.h"
#include "headrace/env/tcp_socket.h"

namespace headrace::object {

class PeerConnections {
 public:
  PeerConnections(TcpEndpoint peer, std::string token, std::chrono::nanoseconds patience)
      : peer_(std::move(peer)), token_(std::move(token)), patience_(patience) {}

  // One that the peer has let in. Where it could not be reached a moment ago it is not tried again
  // at once, so that many calls do not wait one after the other.
  //   kPermissionDenied  the token is missing or wrong.
  Result<std::unique_ptr<TcpSocket>> Take(const Context& ctx);
  // Gives one back whose last answer has come whole.
  void Give(std::unique_ptr<TcpSocket> socket);
  // One broke: the others may have, too.
  void Forget();

 private:
  using Clock = Context::Clock;
  struct Idle {
    std::unique_ptr<TcpSocket> socket;
    Clock::time_point since;
  };

  Result<std::unique_ptr<TcpSocket>> Open(const Context& ctx) const;

  const TcpEndpoint peer_;
  const std::string token_;
  const std::chrono::nanoseconds patience_;  // to connect and be let in
  Mutex mu_;                                 // leaf
  std::vector<Idle> idle_ HR_GUARDED_BY(mu_);
  Status refused_ HR_GUARDED_BY(mu_);  // the last try to connect
  Clock::time_point refused_until_ HR_GUARDED_BY(mu_) = Clock::time_point::min();
};

}  // namespace headrace::object
