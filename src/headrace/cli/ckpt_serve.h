// `headrace ckpt serve`. Internal to cli.
#pragma once

#include <cstdint>
#include <string>

#include "headrace/cli/commands.h"

namespace headrace::cli {

struct PeerServing {
  std::string listen = "127.0.0.1:7171", token_file;
  uint64_t size_bytes = 0;
};

// Keeps the checkpoints of other nodes in a folder until it is ended by a signal.
Result<ExitCode> ServePeers(const std::string& folder, const PeerServing& serving,
                            Session* session);

}  // namespace headrace::cli
