// The link to the origin: passes the connections of clients on to a server on this machine, counts
// the bytes and, when told so, lets no more of them through than a rate.
//
//   headrace_origin_link SERVER_PORT [BYTES_PER_SECOND]
//
// Listens on a free port of 127.0.0.1. Prints {"port": N}, then answers each line on standard input
// with {"down_bytes": N, "up_bytes": N, "connections": N}: what went through so far, HTTP headers
// included, down being from the server to the clients. A line "rate N" sets the rate first; 0 is
// none. Ends with standard input. All connections share the rate, in both directions each.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

namespace headrace::floor {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kPiece = 64 * 1024;  // bytes that are passed on at once
constexpr int kBacklog = 128;
constexpr std::chrono::milliseconds kPauseAfterFailure{10};
// What a link that was idle may send at once: a few milliseconds' worth, as in a real queue.
constexpr double kBurstSeconds = 0.005;

// Bytes get their turn in the order of asking.
class RateLimit {
 public:
  void Set(double bytes_per_second) {
    const std::lock_guard<std::mutex> lock(mutex_);
    rate_ = bytes_per_second;
  }

  // Waits until `bytes` may go through.
  void Take(size_t bytes) {
    Clock::time_point turn;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (rate_ <= 0) return;
      const auto burst = std::chrono::duration<double>(kBurstSeconds);
      const auto earliest = Clock::now() - std::chrono::duration_cast<Clock::duration>(burst);
      free_at_ = std::max(free_at_, earliest);
      const std::chrono::duration<double> spent(static_cast<double>(bytes) / rate_);
      free_at_ += std::chrono::duration_cast<Clock::duration>(spent);
      turn = free_at_;
    }
    std::this_thread::sleep_until(turn);
  }

 private:
  std::mutex mutex_;
  double rate_ = 0;
  Clock::time_point free_at_;
};

// One direction of the link.
struct Direction {
  RateLimit limit;
  std::atomic<uint64_t> bytes{0};
};

struct Link {
  Direction down, up;
  std::atomic<uint64_t> connections{0};
};

bool SendAll(int to, const char* data, size_t size) {
  while (size > 0) {
    const ssize_t sent = send(to, data, size, MSG_NOSIGNAL);
    if (sent <= 0) return false;
    data += sent;
    size -= static_cast<size_t>(sent);
  }
  return true;
}

// Until one side is closed; then both are shut down, so that the other direction ends too.
void PassOn(int from, int to, Direction* direction) {
  std::vector<char> piece(kPiece);
  while (true) {
    const ssize_t got = recv(from, piece.data(), piece.size(), 0);
    if (got <= 0) break;
    direction->limit.Take(static_cast<size_t>(got));
    direction->bytes += static_cast<uint64_t>(got);
    if (!SendAll(to, piece.data(), static_cast<size_t>(got))) break;
  }
  shutdown(from, SHUT_RDWR);
  shutdown(to, SHUT_RDWR);
}

sockaddr_in Loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

void SendAtOnce(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

void Serve(int client, int server_port, Link* link) {
  const int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_in address = Loopback(server_port);
  if (connect(server, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) {
    SendAtOnce(client);
    SendAtOnce(server);
    try {
      std::thread up(PassOn, client, server, &link->up);
      PassOn(server, client, &link->down);
      up.join();
    } catch (const std::system_error&) {
      // No thread to be had: the client sees its connection end.
    }
  }
  close(server);
  close(client);
}

// For ever: a connection that cannot be taken, for lack of descriptors or threads, is no reason to
// let all later ones wait without an end.
void Accept(int listener, int server_port, Link* link) {
  while (true) {
    const int client = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    if (client < 0) {
      std::this_thread::sleep_for(kPauseAfterFailure);
      continue;
    }
    ++link->connections;
    try {
      std::thread(Serve, client, server_port, link).detach();
    } catch (const std::system_error&) {
      close(client);
    }
  }
}

int Listen(int* port) {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = Loopback(0);
  socklen_t size = sizeof(address);
  auto* plain = reinterpret_cast<sockaddr*>(&address);
  if (listener < 0 || bind(listener, plain, size) != 0 || listen(listener, kBacklog) != 0 ||
      getsockname(listener, plain, &size) != 0) {
    return -1;
  }
  *port = ntohs(address.sin_port);
  return listener;
}

void SetRate(double bytes_per_second, Link* link) {
  link->down.limit.Set(bytes_per_second);
  link->up.limit.Set(bytes_per_second);
}

// Until standard input ends.
void AnswerLines(Link* link) {
  for (std::string line; std::getline(std::cin, line);) {
    if (line.rfind("rate ", 0) == 0) SetRate(std::atof(line.c_str() + 5), link);
    std::printf("{\"down_bytes\": %llu, \"up_bytes\": %llu, \"connections\": %llu}\n",
                static_cast<unsigned long long>(link->down.bytes),
                static_cast<unsigned long long>(link->up.bytes),
                static_cast<unsigned long long>(link->connections));
    std::fflush(stdout);
  }
}

int Main(int argc, char** argv) {
  if (argc < 2 || argc > 3) {
    std::fprintf(stderr, "usage: headrace_origin_link SERVER_PORT [BYTES_PER_SECOND]\n");
    return 2;
  }
  std::signal(SIGPIPE, SIG_IGN);
  const int server_port = std::atoi(argv[1]);
  static Link link;  // the threads of connections never end before the process does
  if (argc == 3) SetRate(std::atof(argv[2]), &link);
  int port = 0;
  const int listener = Listen(&port);
  if (listener < 0) {
    std::perror("headrace_origin_link: cannot listen on 127.0.0.1");
    return 1;
  }
  std::thread(Accept, listener, server_port, &link).detach();
  std::printf("{\"port\": %d}\n", port);
  std::fflush(stdout);
  AnswerLines(&link);
  std::_Exit(0);
}

}  // namespace
}  // namespace headrace::floor

int main(int argc, char** argv) { return headrace::floor::Main(argc, argv); }
