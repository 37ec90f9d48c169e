#include "headrace/agent/node_agent.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "headrace/agent/admin_server.h"
#include "headrace/agent/dashboard.h"
#include "headrace/base/metrics_text.h"
#include "headrace/base/text.h"
#include "headrace/doctor/machine_probe.h"

namespace headrace::agent {

namespace {

constexpr uint64_t kApiVersion = 1;
constexpr std::chrono::milliseconds kLeastInterval{100};
constexpr std::chrono::seconds kAskTimeout{1};     // for one process
constexpr std::chrono::seconds kStoreTimeout{10};  // for all checkpoint stores together
constexpr uint64_t kStoresLessOften = 5;
// A process that did not answer is asked again in the round so many later.
constexpr uint64_t kSilentRounds = 15;
// An answer may take some milliseconds to make: with this pause a client that asks without end
// takes no more than a part of one processor.
constexpr std::chrono::milliseconds kPause{20};

// The value of a member of a query, "a=1&b=2"; nothing when it is not there. No member of ours has
// characters that are written with a '%' but ids of processes, which hold none.
std::optional<std::string> QueryValue(std::string_view query, std::string_view name) {
  while (!query.empty()) {
    const size_t end = query.find('&');
    std::string_view one = query.substr(0, end);
    query = end == std::string_view::npos ? "" : query.substr(end + 1);
    if (one.starts_with(name) && one.substr(name.size()).starts_with('='))
      return std::string(one.substr(name.size() + 1));
  }
  return std::nullopt;
}

uint64_t QueryCount(std::string_view query, std::string_view name, uint64_t otherwise) {
  const std::optional<std::string> text = QueryValue(query, name);
  uint64_t count = 0;
  if (!text) return otherwise;
  auto parsed = std::from_chars(text->data(), text->data() + text->size(), count);
  return parsed.ec == std::errc() && parsed.ptr == text->data() + text->size() ? count : otherwise;
}

std::string FileAnswer(const DashboardFile& file) {
  return net::WriteAnswer(
      200, file.content_type, file.content,
      {{"Content-Security-Policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src "
        "data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
       {"Referrer-Policy", "no-referrer"},
       {"Cross-Origin-Opener-Policy", "same-origin"},
       {"Cross-Origin-Resource-Policy", "same-origin"}});
}

}  // namespace

std::optional<std::string> NodeApi::Answer(std::string_view received) {
  auto request = net::ReadRequest(received);
  if (!request.ok())
    return Failure(net::StatusForFailure(request.status().code()), request.status().message());
  if (!*request) return std::nullopt;
  return Respond(**request);
}

std::string NodeApi::Respond(const net::ReceivedRequest& request) {
  if (request.path == "/healthz") return net::WriteAnswer(200, "text/plain", "ok\n");
  const DashboardFile* file = FindDashboardFile(request.path);
  if (file == nullptr)
    if (auto refused = RefuseStranger(request, token_, false)) return *refused;
  if (request.method != "GET") return Failure(405, "GET only", {{"Allow", "GET"}});
  if (file != nullptr) return FileAnswer(*file);
  if (request.path == "/metrics") return net::WriteAnswer(200, kPrometheusContentType, Metrics());
  if (auto json = ApiJson(request)) return Json200(json->Set("version", kApiVersion));
  return Failure(404,
                 "there are /, /healthz, /metrics and /api/v1/: node, history, findings, "
                 "caches, checkpoints, datasets");
}

std::string NodeApi::Metrics() {
  std::vector<ProcessSnapshot> snapshots;
  std::vector<MetricValue> node;
  {
    MutexLock lock(&mu_);
    snapshots = view_.Snapshots();
    node = view_.NodeMetrics();
    node.insert(node.end(), stores_.metrics.begin(), stores_.metrics.end());
  }
  return NodePrometheusText(snapshots, node);
}

std::optional<Json> NodeApi::ApiJson(const net::ReceivedRequest& request) {
  constexpr std::string_view kPrefix = "/api/v1/";
  if (!request.path.starts_with(kPrefix)) return std::nullopt;
  const std::string_view name = std::string_view(request.path).substr(kPrefix.size());
  MutexLock lock(&mu_);
  if (name == "node") {
    Json node = view_.NodeJson();
    node.Set("host", EscapeText(host_)).Set("program", HEADRACE_VERSION);
    if (!fault_.ok()) node.Set("error", fault_.ToString());
    return node.Set("unix_ns", WallClockNanos());
  }
  if (name == "history") {
    constexpr uint64_t kMostSeconds = 7 * 86'400;
    const auto span =
        std::clamp<uint64_t>(QueryCount(request.query, "seconds", 3600), 1, kMostSeconds);
    const auto points = QueryCount(request.query, "points", 120);
    return view_.HistoryJson(static_cast<double>(span), std::min<uint64_t>(points, 1000),
                             QueryValue(request.query, "process").value_or(""));
  }
  if (name == "findings") return view_.FindingsJson();
  if (name == "datasets") return view_.DatasetsJson();
  if (name == "caches") return stores_.caches;
  if (name == "checkpoints") return stores_.checkpoints;
  return std::nullopt;
}

void NodeApi::Look(double now_s, std::vector<NodeView::Seen> seen, Status fault) {
  MutexLock lock(&mu_);
  fault_ = std::move(fault);
  view_.Look(now_s, std::move(seen));
}

void NodeApi::SetStores(Stores stores) {
  MutexLock lock(&mu_);
  view_.SetFacts(stores.facts);
  stores_ = std::move(stores);
}

std::vector<std::string> NodeApi::DatasetNames() {
  MutexLock lock(&mu_);
  return view_.DatasetNames();
}

namespace {

NodeView::Options ViewOptions(const NodeAgent::Options& options) {
  NodeView::Options view;
  view.interval_s = static_cast<double>(options.interval.count()) * 1e-9;
  view.machine = doctor::ReadMachine(options.stores.fs).facts;
  return view;
}

}  // namespace

NodeAgent::NodeAgent(Options options)
    : options_(std::move(options)),
      api_(ViewOptions(options_), options_.http.token),
      begin_ns_(NowNanos()) {}

Result<std::unique_ptr<NodeAgent>> NodeAgent::Start(Options options) {
  HR_RETURN_IF_ERROR(CheckHttpOptions(options.http));
  if (options.interval < kLeastInterval)
    return Error(Code::kInvalidArgument, "processes are looked at each {} at most, not each {}",
                 FormatDuration(kLeastInterval), FormatDuration(options.interval));
  std::unique_ptr<NodeAgent> agent(new NodeAgent(std::move(options)));
  NodeAgent* self = agent.get();
  ExchangeServer::Options limits = self->options_.http.limits;
  limits.thread_name = "hr-agent-http";
  limits.pause = std::max<std::chrono::nanoseconds>(limits.pause, kPause);
  const HttpOptions& http = self->options_.http;
  HR_ASSIGN_OR_RETURN(
      agent->server_,
      ExchangeServer::ListenTcp(http.address, http.port, limits, [self](std::string_view received) {
        return self->api_.Answer(received);
      }));
  HR_ASSIGN_OR_RETURN(agent->processes_,
                      Thread::Start("hr-agent", [self] { self->WatchProcesses(); }));
  HR_ASSIGN_OR_RETURN(agent->stores_,
                      Thread::Start("hr-agent-store", [self] { self->WatchStores(); }));
  return agent;
}

NodeAgent::~NodeAgent() {
  cancelled_ = true;
  MutexLock lock(&mu_);
  ending_ = true;
  ending_changed_.NotifyAll();
}

bool NodeAgent::PauseUntil(uint64_t then_ns) {
  MutexLock lock(&mu_);
  while (!ending_) {
    const uint64_t now = NowNanos();
    if (now >= then_ns) return true;
    (void)ending_changed_.WaitFor(&mu_, std::chrono::nanoseconds(then_ns - now));
  }
  return false;
}

Result<std::vector<NodeView::Seen>> NodeAgent::AskAll(uint64_t round) {
  HR_ASSIGN_OR_RETURN(std::vector<std::string> sockets, FindAdminSockets());
  std::vector<NodeView::Seen> seen;
  std::erase_if(asked_again_, [&](const auto& one) {
    return !std::binary_search(sockets.begin(), sockets.end(), one.first);
  });
  for (const std::string& path : sockets) {
    std::string id(BaseName(path));
    auto silent = asked_again_.find(path);
    if (silent != asked_again_.end() && round < silent->second) {
      seen.push_back({std::move(id), std::nullopt});
      continue;
    }
    Context ctx;
    ctx.cancelled = &cancelled_;
    ctx.deadline = Context::Clock::now() + kAskTimeout;
    auto snapshot = AskSnapshot(path, ctx);
    if (snapshot.status().code() == Code::kNotFound) continue;  // nobody is behind it
    if (snapshot.ok()) {
      asked_again_.erase(path);
      seen.push_back({std::move(id), *std::move(snapshot)});
    } else {
      asked_again_[path] = round + kSilentRounds;
      seen.push_back({std::move(id), std::nullopt});
    }
  }
  return seen;
}

void NodeAgent::WatchProcesses() {
  for (uint64_t round = 0;; ++round) {
    const uint64_t next = NowNanos() + static_cast<uint64_t>(options_.interval.count());
    auto asked = AskAll(round);
    const Status status = asked.status();
    std::vector<NodeView::Seen> seen;
    if (asked.ok()) seen = *std::move(asked);
    api_.Look(static_cast<double>(NowNanos() - begin_ns_) * 1e-9, std::move(seen), status);
    if (!PauseUntil(next)) return;
  }
}

void NodeAgent::WatchStores() {
  NodeStoreWatch watch(options_.stores);
  while (true) {
    const uint64_t next =
        NowNanos() + kStoresLessOften * static_cast<uint64_t>(options_.interval.count());
    Context ctx;
    ctx.cancelled = &cancelled_;
    ctx.deadline = Context::Clock::now() + kStoreTimeout;
    NodeApi::Stores stores;
    stores.caches = watch.LookAtCaches();
    stores.metrics = watch.CacheMetrics();
    stores.checkpoints = watch.LookAtCheckpoints(ctx);
    stores.facts = watch.LookAtDatasets(api_.DatasetNames());
    api_.SetStores(std::move(stores));
    if (!PauseUntil(next)) return;
  }
}

}  // namespace headrace::agent
