// A certificate for 127.0.0.1 made on the spot, and encrypted connections with it. For tests only.
// ServerTls is thread-safe, a stream has one owner at a time.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace headrace::net {

// The bytes of an accepted connection, encrypted or not. Does not own the descriptor.
class ServerStream {
 public:
  virtual ~ServerStream() = default;
  // At most `size` bytes; 0 or less when the connection has ended.
  virtual long Receive(char* out, size_t size) = 0;
  // Some of the bytes, at least one; less than 1 when the connection has ended.
  virtual long Send(std::string_view bytes) = 0;
};

std::unique_ptr<ServerStream> PlainStream(int fd);

class ServerTls {
 public:
  // Makes key and certificate. Ends the test program when it cannot.
  ServerTls();
  ~ServerTls();
  ServerTls(const ServerTls&) = delete;
  ServerTls& operator=(const ServerTls&) = delete;

  const std::string& certificate_pem() const { return pem_; }
  // Greets the client; null when that fails, for instance because it does not trust us.
  std::unique_ptr<ServerStream> Accept(int fd);

 private:
  struct Rep;
  std::unique_ptr<Rep> rep_;
  std::string pem_;
};

}  // namespace headrace::net
