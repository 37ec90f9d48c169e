// The agent of a node: finds the jobs of this user by their admin sockets, looks at them each few
// seconds, and serves what it knows over HTTP:
//
//   GET /                          the dashboard, and its files
//   GET /healthz                   "ok"
//   GET /metrics                   Prometheus' text format: all processes, and the node's sums
//   GET /api/v1/node               who runs, and what each does now
//   GET /api/v1/history            what they did: ?seconds=3600&points=120&process=ID
//   GET /api/v1/findings           the doctor's word on each run
//   GET /api/v1/caches             the node's cache
//   GET /api/v1/checkpoints        checkpoints, and where each is safe
//   GET /api/v1/datasets           what is known of the data sets that are read
//
// docs/reference/agent-api.md has the members. It only tells: nothing can be changed through it.
// Who may ask is as for AdminHttp, but the dashboard's own files, which say nothing of this node,
// are for everybody. Jobs do not need it, and nothing they do waits for it.
#pragma once

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "headrace/agent/http_access.h"
#include "headrace/agent/node_store_watch.h"
#include "headrace/agent/node_view.h"
#include "headrace/base/mutex.h"
#include "headrace/base/status.h"
#include "headrace/env/exchange.h"
#include "headrace/env/process.h"
#include "headrace/env/process_usage.h"

namespace headrace::agent {

// What the agent knows, and its answers. Thread-safe.
class NodeApi {
 public:
  NodeApi(NodeView::Options view, std::string token)
      : token_(std::move(token)), host_(HostName()), view_(std::move(view)) {}

  // For ExchangeServer: the answer to what came so far, or nothing while more must come.
  std::optional<std::string> Answer(std::string_view received) HR_EXCLUDES(mu_);

  // What a look at processes or stores has found. `fault`: why the sockets could not be looked for.
  void Look(double now_s, std::vector<NodeView::Seen> seen, Status fault = OkStatus())
      HR_EXCLUDES(mu_);
  struct Stores {
    Json caches = Json::MakeObject(), checkpoints = Json::MakeObject();
    std::vector<MetricValue> metrics;
    std::map<std::string, doctor::DatasetFacts> facts;
  };
  void SetStores(Stores stores) HR_EXCLUDES(mu_);
  std::vector<std::string> DatasetNames() HR_EXCLUDES(mu_);

 private:
  std::string Respond(const net::ReceivedRequest& request) HR_EXCLUDES(mu_);
  std::string Metrics() HR_EXCLUDES(mu_);
  std::optional<Json> ApiJson(const net::ReceivedRequest& request) HR_EXCLUDES(mu_);

  const std::string token_, host_;
  Mutex mu_;  // order: none is taken under it; no I/O under it
  NodeView view_ HR_GUARDED_BY(mu_);
  Status fault_ HR_GUARDED_BY(mu_);
  Stores stores_ HR_GUARDED_BY(mu_);
};

class NodeAgent {
 public:
  struct Options {
    HttpOptions http;
    std::chrono::nanoseconds interval = std::chrono::seconds(2);  // at least 100 ms
    NodeStoreWatch::Options stores;
  };
  // kInvalidArgument: an interval below 100 ms, and as CheckHttpOptions. Others are those of
  // ExchangeServer::ListenTcp; kResourceExhausted when a thread is refused.
  static Result<std::unique_ptr<NodeAgent>> Start(Options options);
  // Ends the server and waits for the threads. A look that is under way is broken off, but for one
  // at a store that is kept waiting: that ends with the `cancelled` of the stores' settings.
  ~NodeAgent();
  uint16_t port() const { return server_->port(); }

 private:
  explicit NodeAgent(Options options);
  void WatchProcesses() HR_EXCLUDES(mu_);
  void WatchStores() HR_EXCLUDES(mu_);
  Result<std::vector<NodeView::Seen>> AskAll(uint64_t round);
  // False: the agent ends.
  bool PauseUntil(uint64_t then_ns) HR_EXCLUDES(mu_);

  const Options options_;
  NodeApi api_;
  const uint64_t begin_ns_;
  // Sockets that were silent, and the round in which they are asked again. Of WatchProcesses alone.
  std::map<std::string, uint64_t> asked_again_;
  std::atomic<bool> cancelled_{false};
  Mutex mu_;  // order: none is taken under it
  CondVar ending_changed_;
  bool ending_ HR_GUARDED_BY(mu_) = false;
  std::unique_ptr<ExchangeServer> server_;      // ends before the api
  std::unique_ptr<Thread> processes_, stores_;  // last: joined first
};

}  // namespace headrace::agent
