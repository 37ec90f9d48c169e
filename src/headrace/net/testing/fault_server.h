// A small HTTP/1.1 server on 127.0.0.1 that does what a test says, faults included. For tests only.
// Thread-safe. A thread for each connection; kept alive until the client closes.
//
//   FaultServer server([&](const ServerRequest& request) { return AnswerRange(request, content);
//   }); server.Inject(StatusFault(503, "1"), 2);     // the next two requests get 503, Retry-After:
//   1 server.Inject(CutFault(1000));               // the one after them is cut in its body
//   ... request server.url() + "/bucket/key" ...
//   EXPECT_EQ(server.num_requests(), 4u);
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/net/http_client.h"

namespace headrace::net {

// A request as it came.
struct ServerRequest {
  std::string method;
  std::string target;               // path and query as they were sent, not decoded
  std::vector<HttpHeader> headers;  // names in lower case
  std::string body;
  uint64_t connection = 0;  // the number of its connection, from 1 in the order of accepting
  // The value of the first header with this name (lower case); empty when there is none.
  std::string_view Header(std::string_view name) const;
  // The part of the target before "?".
  std::string_view path() const;
  // The decoded value of `name` in the query; empty when there is none.
  std::string Query(std::string_view name) const;
};

// How a connection ends in the middle of an answer.
enum class Cut {
  kClose,  // in order (FIN): the client sees a body that is too short
  kReset,  // RST: the client sees a broken connection
};

// An answer, and what is wrong with it. Content-Length is added unless `headers` or `chunked` say
// otherwise; for HEAD it tells the body's size and no body is sent.
struct ServerAnswer {
  int status = 200;
  std::vector<HttpHeader> headers;
  std::string body;

  std::optional<uint64_t> content_length;  // told instead of the body's size
  bool chunked = false;                    // Transfer-Encoding: chunked
  bool close = false;                      // closes the connection after the answer
  // Sent first, as it is: blocks like "HTTP/1.1 100 Continue\r\n\r\n".
  std::string before;
  std::chrono::milliseconds first_byte_delay{0};
  uint64_t drip_bytes = 0;                  // > 0: the body goes out in pieces of so many bytes,
  std::chrono::milliseconds drip_delay{0};  // with so long a wait after each
  std::optional<uint64_t> cut_at;           // ends the connection at this byte of the body
  Cut cut = Cut::kReset;
  bool drop = false;  // no answer at all: ends the connection as `cut` says
  bool hang = false;  // no answer, and the connection stays open until the server is destroyed
};

// What may be done to the answer that the handler gave.
using Fault = std::function<void(const ServerRequest&, ServerAnswer&)>;
// Instead of the answer: `status`, an empty body, and Retry-After where it is not empty.
Fault StatusFault(int status, const std::string& retry_after = "");
// The connection is cut at byte `at` of the body, in order or by a reset.
Fault CutFault(uint64_t at, Cut cut = Cut::kReset);
// The body lacks its last `bytes` bytes, Content-Length does not: then the connection is closed.
Fault ShortBodyFault(uint64_t bytes = 1);
// A 206 answer tells a range that begins `by` bytes later than the one asked for.
Fault WrongRangeFault(uint64_t by = 1);
Fault SlowFirstByteFault(std::chrono::milliseconds delay);
Fault DripFault(uint64_t bytes, std::chrono::milliseconds delay);
// 307 to `location`.
Fault RedirectFault(const std::string& location);
// The connection ends where the answer should begin.
Fault DropFault(Cut cut = Cut::kReset);
// No answer ever.
Fault HangFault();

// Answers GET and HEAD as a server of static files does: 200, or 206 with Content-Range for
// "Range: bytes=a-b", "bytes=a-" and "bytes=-n", or 416 when the range begins behind the end.
ServerAnswer AnswerRange(const ServerRequest& request, std::string_view content,
                         std::string_view etag = "");

enum class Transport {
  kPlain,
  kTls,  // with a certificate made on the spot, see certificate_pem()
};

class FaultServer {
 public:
  using Handler = std::function<ServerAnswer(const ServerRequest&)>;
  using Match = std::function<bool(const ServerRequest&)>;

  // Listens on 127.0.0.1 and a free port, and adds 127.0.0.1 to the environment's no_proxy, so make
  // one before the first client. Without a handler each answer is 200 with an empty body.
  // The handler is called from several threads at once. Ends the test program when it cannot
  // listen.
  explicit FaultServer(Handler handler = nullptr, Transport transport = Transport::kPlain);
  // Closes all connections, in the middle of answers too, and waits for the threads.
  ~FaultServer();
  FaultServer(const FaultServer&) = delete;
  FaultServer& operator=(const FaultServer&) = delete;

  uint16_t port() const;
  std::string url() const;  // "http://127.0.0.1:PORT" (https with TLS), no slash at the end
  // What a client must trust (as the content of a file, for HttpClientOptions::ca_file).
  std::string certificate_pem() const;

  void SetHandler(Handler handler);
  // Answers the next requests with these, in this order, instead of asking the handler (list pages,
  // for instance). Faults apply to them too.
  void Enqueue(std::vector<ServerAnswer> answers);
  // Does `fault` to the answers of the next `times` requests that match (all, without `match`).
  // What was injected earlier goes first; a request meets one fault at most.
  void Inject(Fault fault, uint64_t times = 1, Match match = nullptr);
  // Resets the next `count` connections as soon as they are accepted.
  void ResetConnections(uint64_t count);
  // Takes back what was enqueued and injected and has not been used.
  void Heal();
  // Closes the connections that are open now as a keep-alive timeout does: at once, or where an
  // answer is under way when it is out.
  void CloseIdle();

  // Requests whose head and body were read, in the order in which they came.
  std::vector<ServerRequest> requests() const;
  uint64_t num_requests() const;
  // How many of them match.
  uint64_t CountRequests(const Match& match) const;
  uint64_t num_connections() const;   // accepted since the start
  uint64_t open_connections() const;  // now
  uint64_t peak_requests() const;     // most requests that were under way at once
  uint64_t bytes_sent() const;        // of answers, heads included
  uint64_t body_bytes_sent() const;   // of their bodies
  void ClearRequests();               // forgets requests(), keeps the other counts
  // The longest time since WatchPauses() in which nothing was sent, the one until now included. By
  // it a test that speaks of a server that keeps sending knows when the machine held it up.
  void WatchPauses();
  std::chrono::nanoseconds longest_pause() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace headrace::net
