#include "headrace/net/http_client.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "headrace/base/mutex.h"
#include "headrace/net/curl_client.h"

namespace headrace::net {

namespace {

constexpr uint32_t kMaxConnections = 65536;

Status CheckOptions(const HttpClientOptions& options) {
  for (uint32_t limit : {options.max_connections, options.max_connections_per_host})
    if (limit < 1 || limit > kMaxConnections)
      return Error(Code::kInvalidArgument, "a limit of connections: expected 1 to {}, found {}",
                   kMaxConnections, limit);
  if (options.connect_timeout.count() < 1 || options.stall_timeout.count() < 1 ||
      options.slow_window.count() < 1)
    return Error(
        Code::kInvalidArgument,
        "connect_timeout, stall_timeout and slow_window: expected at least 1 ms, found {}, {} and "
        "{} ms",
        options.connect_timeout.count(), options.stall_timeout.count(),
        options.slow_window.count());
  if (options.user_agent.find_first_of(std::string_view("\r\n\0", 3)) != std::string::npos)
    return Error(Code::kInvalidArgument, "user_agent has a line end or a NUL");
  return OkStatus();
}

// What Fetch waits for. Shared, since the client's thread may still be at it when the waiter goes.
struct Answer {
  Mutex mu;
  CondVar came;
  std::optional<Result<HttpResponse>> value HR_GUARDED_BY(mu);
};

}  // namespace

std::string_view HttpResponse::Header(std::string_view name) const {
  auto found = std::find_if(headers.begin(), headers.end(),
                            [&](const HttpHeader& header) { return header.name == name; });
  return found == headers.end() ? std::string_view() : std::string_view(found->value);
}

Result<std::unique_ptr<HttpClient>> HttpClient::Create(const HttpClientOptions& options) {
  HR_RETURN_IF_ERROR(CheckOptions(options));
  return CurlClient::Create(options);
}

Result<HttpResponse> HttpClient::Fetch(HttpRequest request, const Context& ctx) {
  auto answer = std::make_shared<Answer>();
  Submit(std::move(request), ctx, [answer](Result<HttpResponse> value) {
    MutexLock lock(&answer->mu);
    answer->value = std::move(value);
    answer->came.NotifyAll();
  });
  MutexLock lock(&answer->mu);
  while (!answer->value) answer->came.Wait(&answer->mu);
  return *std::move(answer->value);
}

}  // namespace headrace::net
