// What a process tells and takes over its admin socket, and over HTTP where the user asks for it:
//
//   GET  /healthz    "ok"
//   GET  /metrics    Prometheus' text format
//   GET  /snapshot   ProcessSnapshot as JSON
//   POST /settings   {"threads": 4}: changes settings inside their bounds, one after the other up
//                    to one that is refused; answers with all of them. Over HTTP only with a token.
//                    The request's User-Agent is kept as who did it.
//   POST /trace      {"seconds": 3}: traces for so long, at most a minute; answers with the number
//                    of the next event and the time
//   GET  /trace?from=N  the events from number N on, kTraceEvents at most: TraceChunkText
//
// The socket lies in the runtime directory and is for this user and root. HTTP is on loopback by
// default; any other address needs a token, and then each request but /healthz must carry it
// ("Authorization: Bearer TOKEN"). Nothing that is secret is in any answer, and no page of a
// browser can ask: requests with an Origin, or with a Host that is no address of this machine, are
// refused. One client cannot hold up another for long, and none the process
// (ExchangeServer::Options).
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/agent/http_access.h"
#include "headrace/agent/process_watch.h"
#include "headrace/base/context.h"
#include "headrace/base/status.h"
#include "headrace/base/trace_ring.h"
#include "headrace/env/exchange.h"
#include "headrace/net/request_reader.h"

namespace headrace::agent {

inline constexpr size_t kTraceEvents = 2048;  // of one answer: a millisecond's work

// Answers requests. Thread-safe.
class AdminApi {
 public:
  struct Access {
    std::string token;       // empty: none is asked for
    bool local = true;       // over the socket: whoever reaches it may ask
    bool read_only = false;  // settings are told, not changed
  };
  AdminApi(ProcessWatch* watch, Access access) : watch_(watch), access_(std::move(access)) {}

  // For ExchangeServer: the answer to what came so far, or nothing while more must come.
  std::optional<std::string> Answer(std::string_view received) const;

 private:
  std::string Respond(const net::ReceivedRequest& request) const;
  std::optional<std::string> Refusal(const net::ReceivedRequest& request) const;
  std::string AboutTrace(const net::ReceivedRequest& request) const;
  std::string KeepTracing(const net::ReceivedRequest& request) const;
  std::string ChangeSettings(const net::ReceivedRequest& request) const;

  ProcessWatch* const watch_;
  const Access access_;
};

// The socket of this process. A forked child has none until it starts one.
class AdminSocket {
 public:
  // Makes the runtime directory and listens in it. Failures: MakeRuntimeDirectory's and
  // ExchangeServer::ListenLocal's.
  static Result<std::unique_ptr<AdminSocket>> Start(ProcessWatch* watch);
  const std::string& path() const { return path_; }

 private:
  AdminSocket(std::unique_ptr<AdminApi> api, std::string path);
  std::unique_ptr<AdminApi> api_;
  std::string path_;
  std::unique_ptr<ExchangeServer> server_;  // ends before the api
};

class AdminHttp {
 public:
  // Failures are those of CheckHttpOptions and of ExchangeServer::ListenTcp.
  static Result<std::unique_ptr<AdminHttp>> Start(ProcessWatch* watch, const HttpOptions& options);
  uint16_t port() const { return server_->port(); }

 private:
  explicit AdminHttp(std::unique_ptr<AdminApi> api) : api_(std::move(api)) {}
  std::unique_ptr<AdminApi> api_;
  std::unique_ptr<ExchangeServer> server_;  // ends before the api
};

// ---- the other side ----

// Admin sockets in the runtime directory, by path; some may have nobody behind them. `pid` 0: all.
// Empty when there is no such directory.
Result<std::vector<std::string>> FindAdminSockets(int64_t pid = 0);

// The snapshot of the process behind a socket. Failures: ExchangeLocal's; kDataLoss for an answer
// that is none. A path that nobody listens at, and that is not new, is removed.
Result<ProcessSnapshot> AskSnapshot(const std::string& path, const Context& ctx);
// Asks it to change a setting, on behalf of `by` ("headrace doctor"). Failures as the process tells
// them.
Status AskSetting(const std::string& path, const std::string& name, uint64_t value,
                  const std::string& by, const Context& ctx);

// Asks it to trace for so long from now on; ask again before it is over. Failures as AskSnapshot.
struct TraceBegun {
  uint64_t next = 0;    // the number of the next event
  uint64_t now_ns = 0;  // by the process's clock
};
Result<TraceBegun> AskToTrace(const std::string& path, uint64_t seconds, const Context& ctx);
// Some of the events from number `from` on, from the oldest on. Failures as AskSnapshot.
Result<TraceChunk> AskTrace(const std::string& path, uint64_t from, const Context& ctx);

}  // namespace headrace::agent
