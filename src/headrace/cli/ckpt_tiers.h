// `headrace ckpt drain` and `explain`. Internal to cli.
#pragma once

#include <cstdint>
#include <string>

#include "headrace/cli/commands.h"

namespace headrace::cli {

// Brings what is only on this node to the destination, as the helper that began it would have; one
// that still runs is watched instead. `home` is the first folder among the store's tiers.
Result<ExitCode> DrainTiers(const std::string& home, uint64_t limit, Session* session);

// Tells where each checkpoint is durable, and what is lost with this node.
Result<ExitCode> ExplainStore(const std::string& url, Session* session);

}  // namespace headrace::cli
