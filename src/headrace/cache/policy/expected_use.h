// Which blocks leave a cache first. Pure logic on a given clock: the simulator runs it too.
//
// For each block it is kept when it is expected to be used: with a plan the position of its next
// use in that plan, without one the time of its last use. Both become a distance in time from now,
// and the farthest goes first. So
//   * with a plan it is Belady's rule: what was just used, and is needed in the next epoch only,
//   goes
//     before what is still needed in this one. A block that is fetched because it is needed now
//     takes the place of such a one. With one pass an epoch the hit ratio reaches the cached
//     fraction, which no policy can pass;
//   * without plans it is LRU;
//   * distances in a plan are counted by its own progress: a job that is slow or pauses loses
//     nothing. One that has died turns into LRU by and by.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

namespace headrace::cache {

// Milliseconds on the clock of a cache, which does not go back and stands still while the machine
// is off.
using Tick = uint64_t;

// How far a job has come in its plan. Positions are counted in any unit, on over all epochs.
struct PlanProgress {
  uint64_t position = 0;
  Tick advanced = 0;             // when it came there
  uint64_t ns_per_position = 0;  // how fast it goes; 0: not known yet, 1 ms is assumed
};

inline constexpr uint32_t kNoPlan = 0;
struct ExpectedUse {
  uint32_t plan = kNoPlan;
  uint64_t at = 0;  // kNoPlan: the Tick of its last use; else the position of its next use
};

inline constexpr uint64_t kFarthest = std::numeric_limits<uint64_t>::max();
// A plan that has not moved for so long begins to age.
inline constexpr Tick kPlanGraceMs = 600'000;

// How far from `now` the use is expected, in nanoseconds. plans[0] is not used; a plan that is not
// there, or has passed the position, has no use for the block: kFarthest.
uint64_t DistanceOfUse(const ExpectedUse& use, std::span<const PlanProgress> plans, Tick now);

// What may be given up for a new block.
enum class Displace : uint8_t {
  kFarther,    // what is needed later than the new one; where no plan needs that one, anything
  kUnclaimed,  // what no live plan has a use for
  kNothing,
};
// True when a block that is used like `old` may go for one that is used like `fresh`. `old` is
// empty when nothing is known of it.
bool MayDisplace(Displace displace, const ExpectedUse& fresh, const std::optional<ExpectedUse>& old,
                 std::span<const PlanProgress> plans, Tick now);

struct EvictionCandidate {
  uint64_t distance = 0;  // DistanceOfUse; kFarthest when nothing is known
  uint64_t cost = 0;      // bytes that its eviction gives back
  bool pinned = false;
};

// Chooses candidates, farthest first, until they give back `bytes_wanted` or none is left that may
// go. Equal ones go in the order given. Returns their indices.
std::vector<size_t> ChooseVictims(std::span<const EvictionCandidate> candidates,
                                  uint64_t bytes_wanted);

}  // namespace headrace::cache
