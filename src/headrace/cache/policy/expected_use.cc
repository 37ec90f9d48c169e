#include "headrace/cache/policy/expected_use.h"

#include <algorithm>

namespace headrace::cache {

uint64_t DistanceOfUse(const ExpectedUse& use, std::span<const PlanProgress> plans, Tick now) {
  constexpr double kNsPerMs = 1e6, kLongest = 1e19;
  auto age_ns = [now](Tick since) {
    return since < now ? static_cast<double>(now - since) * kNsPerMs : 0;
  };
  double distance;
  if (use.plan == kNoPlan) {
    distance = age_ns(use.at);
  } else {
    if (use.plan >= plans.size() || use.at < plans[use.plan].position) return kFarthest;
    const PlanProgress& plan = plans[use.plan];
    double speed = plan.ns_per_position ? static_cast<double>(plan.ns_per_position) : kNsPerMs;
    distance = static_cast<double>(use.at - plan.position) * speed;
    if (now > plan.advanced + kPlanGraceMs) distance += age_ns(plan.advanced);
  }
  return static_cast<uint64_t>(std::min(distance, kLongest));
}

bool MayDisplace(Displace displace, const ExpectedUse& fresh, const std::optional<ExpectedUse>& old,
                 std::span<const PlanProgress> plans, Tick now) {
  uint64_t distance = old ? DistanceOfUse(*old, plans, now) : kFarthest;
  switch (displace) {
    case Displace::kFarther:
      return fresh.plan == kNoPlan || distance > DistanceOfUse(fresh, plans, now);
    case Displace::kUnclaimed:
      return distance == kFarthest || old->plan == kNoPlan ||
             now > plans[old->plan].advanced + kPlanGraceMs;
    case Displace::kNothing:
      return false;
  }
  return false;
}

std::vector<size_t> ChooseVictims(std::span<const EvictionCandidate> candidates,
                                  uint64_t bytes_wanted) {
  // A heap: mostly a few are wanted of many.
  struct Entry {
    uint64_t distance;
    size_t index;
    bool operator<(const Entry& other) const {
      return distance != other.distance ? distance < other.distance : index > other.index;
    }
  };
  std::vector<Entry> heap;
  heap.reserve(candidates.size());
  for (size_t i = 0; i < candidates.size(); ++i)
    if (!candidates[i].pinned) heap.push_back({candidates[i].distance, i});
  std::make_heap(heap.begin(), heap.end());
  std::vector<size_t> victims;
  for (uint64_t got = 0; got < bytes_wanted && !heap.empty(); heap.pop_back()) {
    std::pop_heap(heap.begin(), heap.end());
    victims.push_back(heap.back().index);
    got += candidates[heap.back().index].cost;
  }
  return victims;
}

}  // namespace headrace::cache
