#include "headrace/checkpoint/policy/retention.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>

namespace headrace::checkpoint {
namespace {

using Candidates = std::span<const RetentionCandidate>;

void Keep(RetentionDecision* decision, std::string why) {
  if (decision->keep) return;
  *decision = {true, std::move(why)};
}

// The newest full one that is durable at `level`; when there is none, at the highest level that any
// has. candidates.size() when there is no full one.
size_t NewestDurable(Candidates candidates, Level level) {
  size_t best = candidates.size();
  for (size_t i = candidates.size(); i-- > 0;) {
    const RetentionCandidate& c = candidates[i];
    if (c.light) continue;
    if (c.level >= level) return i;
    if (best == candidates.size() || c.level > candidates[best].level) best = i;
  }
  return best;
}

void KeepLast(size_t count, bool light, Candidates candidates,
              std::vector<RetentionDecision>* decisions) {
  for (size_t i = candidates.size(); i-- > 0 && count > 0;) {
    if (candidates[i].light != light) continue;
    Keep(&(*decisions)[i], "one of the newest");
    --count;
  }
}

void KeepEvery(uint64_t steps, Candidates candidates, std::vector<RetentionDecision>* decisions) {
  std::set<std::pair<uint64_t, bool>> seen;  // of several attempts the newest counts
  for (size_t i = candidates.size(); i-- > 0 && steps > 0;) {
    const RetentionCandidate& c = candidates[i];
    if (c.step % steps != 0 || !seen.emplace(c.step, c.light).second) continue;
    Keep(&(*decisions)[i], fmt::format("step {} is a multiple of {}", c.step, steps));
  }
}

// What a light one that stays is put together with: the newest full one before it, and those that
// have come farther than all newer ones, as far as the light one itself has: when the nearer tiers
// are lost, they are what is left.
void KeepFullOnes(Candidates candidates, std::vector<RetentionDecision>* decisions) {
  for (size_t light = 0; light < candidates.size(); ++light) {
    if (!candidates[light].light || !(*decisions)[light].keep) continue;
    std::optional<Level> reached;
    for (size_t i = light; i-- > 0 && (!reached || *reached < candidates[light].level);) {
      if (candidates[i].light || (reached && candidates[i].level <= *reached)) continue;
      Keep(&(*decisions)[i], fmt::format("light step {} needs it", candidates[light].step));
      reached = candidates[i].level;
    }
  }
}

}  // namespace

std::vector<RetentionDecision> PlanRetention(const RetentionRules& rules, Candidates candidates) {
  std::vector<RetentionDecision> decisions(candidates.size());
  const size_t durable = NewestDurable(candidates, rules.level);
  if (durable < candidates.size()) {
    const Level level = candidates[durable].level;
    Keep(&decisions[durable],
         fmt::format("the newest that is durable at {}", LevelName(std::min(level, rules.level))));
  }
  KeepLast(std::max<size_t>(rules.keep_last, 1), false, candidates, &decisions);
  KeepLast(rules.keep_last, true, candidates, &decisions);
  KeepEvery(rules.keep_every, candidates, &decisions);
  for (size_t i = 0; i < candidates.size(); ++i)
    if (candidates[i].in_use) Keep(&decisions[i], "in use just now");
  KeepFullOnes(candidates, &decisions);
  for (RetentionDecision& decision : decisions)
    if (!decision.keep) decision.why = "no rule keeps it";
  return decisions;
}

}  // namespace headrace::checkpoint
