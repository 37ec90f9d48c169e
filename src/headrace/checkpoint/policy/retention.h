// Which checkpoints are kept. Pure logic: gives a plan, which is shown (dry run) or carried out by
// others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "headrace/checkpoint/policy/level.h"

namespace headrace::checkpoint {

struct RetentionRules {
  size_t keep_last = 3;     // the newest ones; the very newest full one stays always
  uint64_t keep_every = 0;  // those whose step is a multiple of it; 0: none
  // The newest that is durable at this level stays whatever the other rules say.
  Level level = Level::kLocal;
};

struct RetentionCandidate {
  uint64_t step = 0;
  Level level = Level::kLocal;  // up to which it is durable
  bool light = false;           // not all of the state: cannot take the place of a full one
  bool in_use = false;          // being read or drained: stays this time
};

struct RetentionDecision {
  bool keep = false;
  std::string why;  // "one of the last 3", "step 1000 is a multiple of 500"
};

// Decides for each candidate, which are in order from the oldest to the newest. Light ones are
// counted apart from full ones; the full one that a light one needs stays as long as that does.
std::vector<RetentionDecision> PlanRetention(const RetentionRules& rules,
                                             std::span<const RetentionCandidate> candidates);

}  // namespace headrace::checkpoint
