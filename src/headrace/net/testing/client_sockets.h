// The connections that clients of this process have. For tests only. Thread-safe.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <span>
#include <utility>
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

// How many sockets of this process to these ports were open at one and the same moment: those that
// two looks in a row both found.
inline size_t SocketsAtOnce(std::span<const uint16_t> ports) {
  auto look = [&] {
    std::set<std::pair<uint16_t, uint16_t>> found;  // both ends
    for (uint16_t port : ports) {
      for (int fd : SocketsTo(port)) {
        sockaddr_in own{};
        socklen_t size = sizeof(own);
        if (::getsockname(fd, reinterpret_cast<sockaddr*>(&own), &size) == 0)
          found.emplace(ntohs(own.sin_port), port);
      }
    }
    return found;
  };
  const auto before = look(), after = look();
  return static_cast<size_t>(
      std::ranges::count_if(before, [&](const auto& one) { return after.contains(one); }));
}

}  // namespace headrace::net
