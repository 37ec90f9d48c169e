// HTTP/1.1 (and HTTPS) requests over kept-alive connections, many at once. One client serves a
// whole process: its thread drives all transfers, so that a request costs no thread. Thread-safe.
//
// No retries here: they happen at one level, in object/ (RetryingStore). Only where a kept
// connection turns out to be dead before a byte of the answer came, a request without a body (GET,
// HEAD, DELETE) is sent again on a new one; a PUT or POST never is.
//
// libcurl does the transfers; it is loaded when the first client is made, since a program that
// reads only local files must not need it. Proxies are those of the environment: http_proxy,
// https_proxy, all_proxy, no_proxy.
//
// A client made before a fork() cannot be used in the child: every request there fails with
// kFailedPrecondition, and destroying it there leaves the parent's connections alone.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/bytes.h"
#include "headrace/base/context.h"
#include "headrace/base/status.h"

namespace headrace::net {

struct HttpHeader {
  std::string name, value;
};

struct HttpRequest {
  std::string method = "GET";       // GET, HEAD, PUT, POST or DELETE
  std::string url;                  // sent as it is: already encoded
  std::vector<HttpHeader> headers;  // names and values without line ends
  Bytes body;                       // must outlive the request; a GET or HEAD has none
  // Where the body of a 2xx answer goes, when not empty; must outlive the request. An answer that
  // is larger is kDataLoss. Without it the body comes in HttpResponse::body.
  MutableBytes into;
  uint64_t max_body_bytes = 16 << 20;  // of HttpResponse::body; more is kResourceExhausted
};

struct HttpResponse {
  int status = 0;
  std::vector<HttpHeader> headers;           // in order; names in lower case
  std::string body;                          // of an answer that did not go to `into`
  uint64_t body_bytes = 0;                   // received, wherever they went
  uint64_t first_byte_ns = 0, total_ns = 0;  // since the request was submitted
  // The value of the first header with this name (lower case); empty when there is none.
  std::string_view Header(std::string_view name) const;
};

struct HttpClientOptions {
  uint32_t max_connections = 64;  // to all hosts together; further requests wait
  uint32_t max_connections_per_host = 32;
  std::chrono::milliseconds connect_timeout{5000};
  // A transfer that gets no byte for so long is ended with kUnavailable.
  std::chrono::milliseconds stall_timeout{20000};
  // So is one into HttpRequest::into that gets fewer than `slow_bytes` in such a time: a connection
  // that drips would hold its reader for hours, and another one need not.
  std::chrono::milliseconds slow_window{30000};
  uint64_t slow_bytes = 4 << 10;
  std::string user_agent = "headrace";
  std::string ca_file = "";  // certificates to trust; empty: the system's
  bool verify_tls = true;
};

class HttpClient {
 public:
  using Done = std::function<void(Result<HttpResponse>)>;

  // kUnimplemented, with what to install, when libcurl is not there. kInvalidArgument for a limit
  // or timeout of nothing.
  static Result<std::unique_ptr<HttpClient>> Create(const HttpClientOptions& options);
  // Ends what is still running with kCancelled, and waits for it. Not to be called by a `done`.
  virtual ~HttpClient() = default;

  // Starts a request and returns; `done` is called once, on the client's thread (in a forked child
  // on the caller's), and must not block: it may call Submit, not Fetch. Any answer of the server
  // is a value, whatever its status: also 3xx, which is not followed. Failures name method and URL,
  // without the URL's query, which can hold secrets.
  //   kUnavailable        no connection, connection cut, no byte for stall_timeout, hardly any in
  //                       slow_window, TLS failure; a body that ended before its told length, as a
  //                       cut at a proxy looks.
  //   kDataLoss           the body is larger than `into`; a status line that cannot be read.
  //   kDeadlineExceeded, kCancelled  from the Context; noticed within 100 ms.
  //   kInvalidArgument    no URL, a header with a line end.
  //   kResourceExhausted  a body over max_body_bytes, headers over 1 MiB, no memory.
  virtual void Submit(HttpRequest request, const Context& ctx, Done done) = 0;
  // The same, waiting for the answer.
  Result<HttpResponse> Fetch(HttpRequest request, const Context& ctx);
};

}  // namespace headrace::net
