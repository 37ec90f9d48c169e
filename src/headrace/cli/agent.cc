// headrace agent: watches the jobs of a node, and serves metrics, an API and the dashboard.
#include <algorithm>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "headrace/agent/node_agent.h"
#include "headrace/cli/commands.h"
#include "headrace/cli/locate.h"
#include "headrace/env/tcp_socket.h"
#include "headrace/object/pause.h"
#include "headrace/object/peer/token.h"

namespace headrace::cli {
namespace {

class AgentCommand final : public Command {
 public:
  void Declare(Arguments* arguments) override;
  Result<ExitCode> Run(Session* session) override;

 private:
  Result<agent::NodeAgent::Options> ReadOptions(Session* session) const;

  std::string listen_ = "127.0.0.1:9399", token_file_;
  CacheArguments cache_;
  std::vector<std::string> stores_;
  uint64_t interval_s_ = 2;
};

void AgentCommand::Declare(Arguments* arguments) {
  arguments->Texts("stores", &stores_, 0,
                   "Checkpoint stores to show: folders (the first one of a store with tiers) or "
                   "URLs");
  arguments->Text("--listen", &listen_,
                  "Where to serve: ADDRESS:PORT, numeric; port 0 takes a free one; else "
                  "127.0.0.1:9399");
  arguments->Text("--token-file", &token_file_,
                  "A file with a token of at least 16 characters, which each request must then "
                  "carry. Needed for an address that other machines reach");
  arguments->Text("--cache-dir", &cache_.directory,
                  "The node's cache to show and keep, or several directories with ':' between; "
                  "else HEADRACE_CACHE_DIR");
  arguments->Count("--interval", &interval_s_, "Seconds between two looks at the jobs");
  arguments->Note(
      "Finds the jobs of this user by their admin sockets, as `headrace top` does, and keeps what "
      "they did in\nmemory: an hour in looks of 2 seconds, a day in minutes. Serves a dashboard at "
      "/, Prometheus' format at\n/metrics and JSON at /api/v1/. Where the disk of the cache has "
      "less free space than the cache is to\nleave, blocks are given up. Nothing can be changed "
      "through it, and jobs do not need it.\nRuns until SIGTERM or SIGINT, and ends with code 0 "
      "then.");
  arguments->Example("headrace agent", "Then look at http://127.0.0.1:9399/");
  arguments->Example("headrace agent --listen 0.0.0.0:9399 --token-file /etc/headrace/token",
                     "For other machines, too");
  arguments->Example("headrace agent /nvme/ckpt --cache-dir /nvme/cache",
                     "With the life of checkpoints, and the cache kept");
}

Result<agent::NodeAgent::Options> AgentCommand::ReadOptions(Session* session) const {
  constexpr uint64_t kMostSeconds = 3600;
  agent::NodeAgent::Options options;
  auto listen = ParseTcpEndpoint(listen_);
  if (!listen.ok()) return std::move(listen).status().Prefix("--listen");
  options.http.address = listen->address;
  options.http.port = listen->port;
  if (!token_file_.empty()) {
    HR_ASSIGN_OR_RETURN(options.http.token, object::ReadTokenFile(session->fs, token_file_));
  }
  options.interval = std::chrono::seconds(std::clamp<uint64_t>(interval_s_, 1, kMostSeconds));
  options.stores.fs = session->fs;
  options.stores.storage = session->storage;
  options.stores.checkpoints = stores_;
  HR_ASSIGN_OR_RETURN(cache::BlockCacheOptions cache, ReadCacheArguments(cache_));
  options.stores.cache_directories = cache.node.directory;
  return options;
}

Result<ExitCode> AgentCommand::Run(Session* session) {
  HR_ASSIGN_OR_RETURN(agent::NodeAgent::Options options, ReadOptions(session));
  const std::string address = options.http.address;
  HR_ASSIGN_OR_RETURN(auto agent, agent::NodeAgent::Start(std::move(options)));
  const std::string url = fmt::format("http://{}/", TcpEndpoint{address, agent->port()}.Text());
  if (session->json)
    session->out->Print(Json::MakeObject().Set("url", url));
  else
    session->out->Print("{}\n", url);
  HR_RETURN_IF_ERROR(session->out->Flush());
  // To be ended is what it waits for.
  while (object::PauseFor(std::chrono::hours(1), session->ctx).ok()) continue;
  return ExitCode::kOk;
}

}  // namespace

std::unique_ptr<Command> MakeAgentCommand() { return std::make_unique<AgentCommand>(); }

}  // namespace headrace::cli
