// The connections that clients of this process have. For tests only. Thread-safe.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <vector>

namespace headrace::net {

// The descriptors of this process that are connected to `port` of 127.0.0.1.
inline std::vector<int> SocketsTo(uint16_t port) {
  constexpr int kDescriptors = 1024;
  std::vector<int> found;
  for (int fd = 0; fd < kDescriptors; ++fd) {
    sockaddr_in peer{};
    socklen_t size = sizeof(peer);
    if (::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) == 0 &&
        peer.sin_family == AF_INET && ntohs(peer.sin_port) == port)
      found.push_back(fd);
  }
  return found;
}

}  // namespace headrace::net
