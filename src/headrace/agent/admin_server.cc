#include "headrace/agent/admin_server.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "headrace/base/json.h"
#include "headrace/base/metrics_text.h"
#include "headrace/base/text.h"
#include "headrace/base/trace_json.h"
#include "headrace/env/file.h"
#include "headrace/env/process.h"
#include "headrace/env/process_usage.h"
#include "headrace/env/runtime_directory.h"

namespace headrace::agent {

namespace {

constexpr uint64_t kMaxAnswerBytes = 16 << 20;
constexpr std::string_view kSocketSuffix = ".sock";
constexpr int64_t kLeftAfterNs = 10'000'000'000;
constexpr uint64_t kMaxTraceSeconds = 60;

Result<Json> ObjectIn(const std::string& body) {
  HR_ASSIGN_OR_RETURN(Json parsed, Json::Parse(body));
  if (!parsed.is_object() || parsed.members().empty())
    return Status(Code::kInvalidArgument, "expected an object, as {\"threads\": 4}");
  return parsed;
}

// The number behind "from="; nothing when there is no such query.
std::optional<uint64_t> FromIn(std::string_view query) {
  constexpr std::string_view kName = "from=";
  uint64_t from = 0;
  if (!query.starts_with(kName)) return std::nullopt;
  const char* end = query.data() + query.size();
  const auto parsed = std::from_chars(query.data() + kName.size(), end, from);
  if (parsed.ec != std::errc() || parsed.ptr != end) return std::nullopt;
  return from;
}

Json SettingsJson(const ProcessSnapshot& snapshot) {
  Json all = *snapshot.ToJson().Find("settings");
  return Json::MakeObject().Set("settings", std::move(all));
}

}  // namespace

std::optional<std::string> AdminApi::Answer(std::string_view received) const {
  auto request = net::ReadRequest(received);
  if (!request.ok())
    return Failure(net::StatusForFailure(request.status().code()), request.status().message());
  if (!*request) return std::nullopt;
  return Respond(**request);
}

std::string AdminApi::Respond(const net::ReceivedRequest& request) const {
  if (request.path == "/healthz") return net::WriteAnswer(200, "text/plain", "ok\n");
  if (auto refused = RefuseStranger(request, access_.token, access_.local)) return *refused;
  if (request.path == "/settings") {
    if (request.method != "POST") return Failure(405, "POST only", {{"Allow", "POST"}});
    return ChangeSettings(request);
  }
  if (request.path == "/trace") return AboutTrace(request);
  if (request.path != "/metrics" && request.path != "/snapshot")
    return Failure(404, "there are /healthz, /metrics, /snapshot, /settings and /trace");
  if (request.method != "GET") return Failure(405, "GET only", {{"Allow", "GET"}});
  const ProcessSnapshot snapshot = watch_->Snapshot();
  if (request.path == "/snapshot") return Json200(snapshot.ToJson());
  return net::WriteAnswer(200, kPrometheusContentType, PrometheusText({&snapshot, 1}));
}

// What is wrong with a request that changes something, as an answer; nothing when it may.
std::optional<std::string> AdminApi::Refusal(const net::ReceivedRequest& request) const {
  if (access_.read_only)
    return Failure(403,
                   "this address only tells: what changes something goes over the admin socket, or "
                   "over HTTP with a token");
  // A page of a browser cannot send this type without asking first, and it is never allowed to.
  if (!request.Header("content-type").starts_with("application/json"))
    return Failure(415, "expected Content-Type: application/json");
  return std::nullopt;
}

std::string AdminApi::AboutTrace(const net::ReceivedRequest& request) const {
  if (request.method == "POST") return KeepTracing(request);
  if (request.method != "GET") return Failure(405, "GET or POST", {{"Allow", "GET, POST"}});
  const std::optional<uint64_t> from = FromIn(request.query);
  if (!from) return Failure(400, "expected /trace?from=NUMBER");
  return net::WriteAnswer(200, "application/json", TraceChunkText(ReadTrace(*from, kTraceEvents)));
}

std::string AdminApi::KeepTracing(const net::ReceivedRequest& request) const {
  if (auto refusal = Refusal(request)) return *std::move(refusal);
  auto parsed = ObjectIn(request.body);
  const Json* seconds = parsed.ok() ? parsed->Find("seconds") : nullptr;
  if (seconds == nullptr || !seconds->is_integer() || seconds->AsUint() < 1 ||
      seconds->AsUint() > kMaxTraceSeconds)
    return Failure(400, fmt::format("expected {{\"seconds\": 1 to {}}}", kMaxTraceSeconds));
  auto next = KeepTraceOn(std::chrono::seconds(seconds->AsUint()));
  if (!next.ok())
    return Failure(net::StatusForFailure(next.status().code()), next.status().message());
  return Json200(Json::MakeObject().Set("next", *next).Set("now_ns", NowNanos()));
}

std::string AdminApi::ChangeSettings(const net::ReceivedRequest& request) const {
  if (auto refusal = Refusal(request)) return *std::move(refusal);
  auto parsed = ObjectIn(request.body);
  if (!parsed.ok()) return Failure(400, parsed.status().message());
  const std::string_view agent = request.Header("user-agent");
  ProcessWatch::Author author;
  author.by = !agent.empty() ? agent : access_.local ? "the admin socket" : "HTTP";
  for (const auto& [name, value] : parsed->members()) {
    if (!value.is_integer() || (value.AsUint() == 0 && value.AsInt() != 0))
      return Failure(400, EscapeText(name) + ": expected a whole number");
    Status changed = watch_->ChangeSetting(EscapeText(name), value.AsUint(), author);
    if (!changed.ok()) return Failure(net::StatusForFailure(changed.code()), changed.message());
  }
  return Json200(SettingsJson(watch_->Snapshot()));
}

AdminSocket::AdminSocket(std::unique_ptr<AdminApi> api, std::string path)
    : api_(std::move(api)), path_(std::move(path)) {}

Result<std::unique_ptr<AdminSocket>> AdminSocket::Start(ProcessWatch* watch) {
  HR_ASSIGN_OR_RETURN(std::string folder, MakeRuntimeDirectory());
  // Processes of several containers may share the folder, and have the same ids.
  std::string path = fmt::format("{}/{}-{:08x}{}", folder, ProcessId(),
                                 static_cast<uint32_t>(WallClockNanos() >> 10), kSocketSuffix);
  auto api = std::make_unique<AdminApi>(watch, AdminApi::Access{});
  std::unique_ptr<AdminSocket> socket(new AdminSocket(std::move(api), std::move(path)));
  ExchangeServer::Options options;
  options.thread_name = "hr-admin";
  HR_ASSIGN_OR_RETURN(socket->server_,
                      ExchangeServer::ListenLocal(socket->path_, options,
                                                  [api = socket->api_.get()](std::string_view in) {
                                                    return api->Answer(in);
                                                  }));
  return socket;
}

Result<std::unique_ptr<AdminHttp>> AdminHttp::Start(ProcessWatch* watch,
                                                    const HttpOptions& options) {
  HR_RETURN_IF_ERROR(CheckHttpOptions(options));
  AdminApi::Access access;
  access.token = options.token;
  access.local = false;
  access.read_only = options.token.empty();
  std::unique_ptr<AdminHttp> http(new AdminHttp(std::make_unique<AdminApi>(watch, access)));
  ExchangeServer::Options limits = options.limits;
  limits.thread_name = "hr-admin-http";
  HR_ASSIGN_OR_RETURN(http->server_,
                      ExchangeServer::ListenTcp(options.address, options.port, limits,
                                                [api = http->api_.get()](std::string_view in) {
                                                  return api->Answer(in);
                                                }));
  return http;
}

Result<std::vector<std::string>> FindAdminSockets(int64_t pid) {
  auto folder = FindRuntimeDirectory();
  if (folder.status().code() == Code::kNotFound) return std::vector<std::string>();
  if (!folder.ok()) return folder.status();
  HR_ASSIGN_OR_RETURN(std::vector<DirectoryEntry> entries, PosixFileSystem()->List(*folder));
  const std::string prefix = pid == 0 ? "" : fmt::format("{}-", pid);
  std::vector<std::string> paths;
  for (const DirectoryEntry& entry : entries)
    if (entry.name.starts_with(prefix) && entry.name.ends_with(kSocketSuffix))
      paths.push_back(JoinPath(*folder, entry.name));
  std::sort(paths.begin(), paths.end());
  return paths;
}

namespace {

// Removes what a process that was killed has left behind. One that has just made its path may not
// listen yet.
void RemoveIfLeft(const std::string& path) {
  auto info = PosixFileSystem()->Stat(path);
  if (info.ok() && WallClockNanos() - info->mtime_ns > kLeftAfterNs)
    (void)PosixFileSystem()->Remove(path);
}

// The body of the answer to a request, whose status is 200.
Result<std::string> Ask(const std::string& path, const std::string& request, const Context& ctx) {
  auto answer = ExchangeLocal(path, request, kMaxAnswerBytes, ctx);
  if (!answer.ok()) {
    if (answer.status().code() == Code::kNotFound) RemoveIfLeft(path);
    return answer.status();
  }
  const size_t body = answer->find("\r\n\r\n");
  if (body == std::string::npos || !answer->starts_with("HTTP/1.1 "))
    return Error(Code::kDataLoss, "the process at {} answered what is no HTTP", path);
  std::string content = answer->substr(body + 4);
  const std::string_view status = std::string_view(*answer).substr(9, 3);
  if (status == "200") return content;
  std::string why = content;
  if (auto json = Json::Parse(content); json.ok() && json->Find("error"))
    why = json->Find("error")->AsString();
  return Error(status == "404" ? Code::kNotFound : Code::kInvalidArgument, "{}", EscapeText(why));
}

std::string PostRequest(std::string_view target, const Json& json,
                        std::string_view by = "headrace") {
  const std::string body = json.Dump();
  return fmt::format(
      "POST {} HTTP/1.1\r\nHost: localhost\r\nUser-Agent: {}\r\n"
      "Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{}",
      target, EscapeText(by), body.size(), body);
}

}  // namespace

Result<ProcessSnapshot> AskSnapshot(const std::string& path, const Context& ctx) {
  HR_ASSIGN_OR_RETURN(std::string body,
                      Ask(path, "GET /snapshot HTTP/1.1\r\nHost: localhost\r\n\r\n", ctx));
  auto json = Json::Parse(body);
  if (!json.ok())
    return Error(Code::kDataLoss, "the process at {} answered what is no snapshot: {}", path,
                 json.status().message());
  return ProcessSnapshot::FromJson(*json);
}

Status AskSetting(const std::string& path, const std::string& name, uint64_t value,
                  const std::string& by, const Context& ctx) {
  return Ask(path, PostRequest("/settings", Json::MakeObject().Set(name, value), by), ctx).status();
}

Result<TraceBegun> AskToTrace(const std::string& path, uint64_t seconds, const Context& ctx) {
  HR_ASSIGN_OR_RETURN(
      std::string body,
      Ask(path, PostRequest("/trace", Json::MakeObject().Set("seconds", seconds)), ctx));
  auto json = Json::Parse(body);
  if (!json.ok() || json->Find("next") == nullptr || json->Find("now_ns") == nullptr)
    return Error(Code::kDataLoss, "the process at {} does not say whether it traces", path);
  return TraceBegun{json->Find("next")->AsUint(), json->Find("now_ns")->AsUint()};
}

Result<TraceChunk> AskTrace(const std::string& path, uint64_t from, const Context& ctx) {
  const std::string request =
      fmt::format("GET /trace?from={} HTTP/1.1\r\nHost: localhost\r\n\r\n", from);
  HR_ASSIGN_OR_RETURN(std::string body, Ask(path, request, ctx));
  auto chunk = TraceChunkFrom(body);
  if (chunk.ok()) return chunk;
  return Error(Code::kDataLoss, "the process at {} answered what is no trace: {}", path,
               chunk.status().message());
}

}  // namespace headrace::agent
