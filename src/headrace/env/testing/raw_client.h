// Clients of an exchange server (env/exchange.h) that do what a test says, and not what is polite.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace headrace {

// One connection. Of one thread.
class RawClient {
 public:
  // To a port of this machine.
  explicit RawClient(uint16_t port) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  }
  // To a local socket.
  explicit RawClient(const std::string& path)
      : fd_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    EXPECT_LT(path.size(), sizeof(address.sun_path));
    std::memcpy(address.sun_path, path.data(), path.size());
    EXPECT_EQ(::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  }
  ~RawClient() { ::close(fd_); }
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  // What the system takes at once. The server may have closed before: false.
  bool Send(std::string_view text) {
    return ::send(fd_, text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT) > 0;
  }
  // All until the server closes.
  std::string ReadAll() {
    std::string all;
    char piece[4096];
    for (;;) {
      ssize_t got = ::recv(fd_, piece, sizeof(piece), 0);
      if (got <= 0) return all;
      all.append(piece, static_cast<size_t>(got));
    }
  }

 private:
  const int fd_;
};

// What a server answers. A client that comes to a halt for longer than the server waits (on a busy
// machine) asks again. `where`: a port or a path.
template <typename Where>
std::string AskUntilAnswered(const Where& where, std::string_view request) {
  std::string answer;
  while (answer.empty()) {
    RawClient client(where);
    (void)client.Send(request);
    answer = client.ReadAll();
  }
  return answer;
}

// Clients that take what they can of an HTTP server and keep it: they say nothing, half a request,
// or one byte after the other; have a head without end; send a thousand requests at once; or ask
// and do not listen.
template <typename Where>
std::vector<std::unique_ptr<RawClient>> HostileClients(const Where& where, int number) {
  constexpr std::string_view kAsk = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n";
  const std::string request = std::string(kAsk) + "\r\n";
  std::string many;
  for (int i = 0; i < 1000; ++i) many += request;
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < number; ++i) {
    clients.push_back(std::make_unique<RawClient>(where));
    RawClient* client = clients.back().get();
    if (i % 6 == 1) (void)client->Send(kAsk);
    if (i % 6 == 3) (void)client->Send("GET / HTTP/1.1\r\nX: " + std::string(1 << 20, 'x'));
    if (i % 6 == 4) (void)client->Send(many);
    if (i % 6 == 5) (void)client->Send(request);
  }
  for (char c : kAsk)
    for (size_t i = 2; i < clients.size(); i += 6) (void)clients[i]->Send({&c, 1});
  return clients;
}

}  // namespace headrace
