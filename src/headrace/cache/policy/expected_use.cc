#include "headrace/cache/policy/expected_use.h"

#include <algorithm>

namespace headrace::cache {

uint64_t DistanceOfUse(const ExpectedUse& use, std::span<const PlanProgress> plans, Tick now) {
  if (use.plan == kNoPlan) return use.at < now ? now - use.at : 0;
  if (use.plan >= plans.size() || use.at < plans[use.plan].position) return kFarthest;
  const PlanProgress& plan = plans[use.plan];
  constexpr double kNsPerMs = 1e6, kLongest = 1e18;
  double distance = static_cast<double>(use.at - plan.position) *
                    static_cast<double>(std::max<uint64_t>(plan.ns_per_position, 1)) / kNsPerMs;
  Tick stood = now > plan.advanced ? now - plan.advanced : 0;
  if (stood > kPlanGraceMs) distance += static_cast<double>(stood);
  return static_cast<uint64_t>(std::min(distance, kLongest));
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
