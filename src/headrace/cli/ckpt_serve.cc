#include "headrace/cli/ckpt_serve.h"

#include <chrono>
#include <utility>

#include "headrace/base/text.h"
#include "headrace/env/tcp_socket.h"
#include "headrace/object/pause.h"
#include "headrace/object/peer/peer_server.h"
#include "headrace/object/peer/token.h"

namespace headrace::cli {

Result<ExitCode> ServePeers(const std::string& folder, const PeerServing& serving,
                            Session* session) {
  if (IsUrl(folder))
    return Error(Code::kInvalidArgument, "{} is no folder of this node", EscapeText(folder));
  object::PeerServerOptions options;
  auto listen = ParseTcpEndpoint(serving.listen);
  if (!listen.ok()) return std::move(listen).status().Prefix("--listen");
  options.listen = *std::move(listen);
  options.size_bytes = serving.size_bytes;
  const std::string& file =
      serving.token_file.empty() ? session->storage.peer_token_file : serving.token_file;
  options.token = session->storage.peer_token;
  if (!file.empty()) {
    HR_ASSIGN_OR_RETURN(options.token, object::ReadTokenFile(session->fs, file));
  }
  HR_ASSIGN_OR_RETURN(auto server, object::PeerServer::Start(folder, options));
  const std::string url = "peer://" + server->endpoint().Text();
  if (session->json)
    session->out->Print(Json::MakeObject().Set("url", url).Set("used_bytes", server->used_bytes()));
  else
    session->out->Print("{}  {} of {} used\n", url, FormatSize(server->used_bytes()),
                        FormatSize(options.size_bytes));
  HR_RETURN_IF_ERROR(session->out->Flush());
  // To be ended is what it waits for.
  while (object::PauseFor(std::chrono::hours(1), session->ctx).ok()) continue;
  return ExitCode::kOk;
}

}  // namespace headrace::cli
