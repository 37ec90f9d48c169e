#include "headrace/cache/cache_state.h"

#include <algorithm>

namespace headrace::cache {
namespace {

// Words of the file of counters.
constexpr size_t kUsed = 1, kLimit = 2, kFreeFloor = 3, kClockBase = 4, kLastTick = 5;
constexpr size_t kPlans = 16, kWordsPerPlan = 4;
constexpr size_t kNumCounters = kPlans + kWordsPerPlan * kNumPlans;

// A use is one word, [tag 12 bits][plan 6 bits][when 46 bits], in one of the 8 places that the
// block's hash allows: a line of the processor's cache. Tags are never 0, so 0 is a free place.
constexpr size_t kWays = 8;
constexpr int kPlanBits = 6, kWhenBits = 46;
constexpr uint64_t kWhenMask = (uint64_t{1} << kWhenBits) - 1;

uint64_t TagOf(const BlockId& id) { return (id.Hash() >> 52) % 4095 + 1; }
uint64_t TagOfWord(uint64_t word) { return word >> (kPlanBits + kWhenBits); }

uint64_t EncodeUse(const BlockId& id, const ExpectedUse& use) {
  return TagOf(id) << (kPlanBits + kWhenBits) | uint64_t{use.plan % kNumPlans} << kWhenBits |
         std::min(use.at, kWhenMask);
}

ExpectedUse DecodeUse(uint64_t word) {
  return {static_cast<uint32_t>(word >> kWhenBits) % kNumPlans, word & kWhenMask};
}

size_t FirstWay(const SharedWords& uses, const BlockId& id) {
  return id.Hash() % (uses.size() / kWays) * kWays;
}

}  // namespace

Result<std::unique_ptr<CacheState>> CacheState::Open(FileSystem* fs,
                                                     const std::string& counters_path,
                                                     const std::string& uses_path,
                                                     uint64_t use_words,
                                                     std::function<uint64_t()> steady_ms) {
  std::unique_ptr<CacheState> state(new CacheState);
  HR_ASSIGN_OR_RETURN(state->counters_, fs->OpenSharedWords(counters_path, kNumCounters));
  HR_ASSIGN_OR_RETURN(state->uses_,
                      fs->OpenSharedWords(uses_path, std::max<uint64_t>(use_words, kWays)));
  state->steady_ms_ = std::move(steady_ms);
  return state;
}

Status CacheState::Check() const {
  (void)counters_->Load(kLimit);
  HR_RETURN_IF_ERROR(counters_->Check());
  return uses_->Check();
}

void CacheState::StartClock() {
  uint64_t last = counters_->Load(kLastTick);
  if (steady_ms_() + counters_->Load(kClockBase) < last)
    counters_->Store(kClockBase, last - steady_ms_());
}

Tick CacheState::Now() const {
  constexpr uint64_t kStoreEveryMs = 1000;
  Tick now = steady_ms_() + counters_->Load(kClockBase);
  if (now >= counters_->Load(kLastTick) + kStoreEveryMs) counters_->Store(kLastTick, now);
  return now & kWhenMask;
}

uint64_t CacheState::used_bytes() const { return counters_->Load(kUsed); }
uint64_t CacheState::AddUsed(int64_t bytes) {
  uint64_t used = counters_->Add(kUsed, static_cast<uint64_t>(bytes));
  if (static_cast<int64_t>(used) >= 0) return used;
  counters_->Store(kUsed, 0);  // more was taken away than was ever there: it counted too little
  return 0;
}
void CacheState::SetUsed(uint64_t bytes) { counters_->Store(kUsed, bytes); }
uint64_t CacheState::limit_bytes() const { return counters_->Load(kLimit); }
uint64_t CacheState::free_floor_bytes() const { return counters_->Load(kFreeFloor); }
void CacheState::SetLimits(uint64_t limit_bytes, uint64_t free_floor_bytes) {
  counters_->Store(kLimit, limit_bytes);
  counters_->Store(kFreeFloor, free_floor_bytes);
}

std::optional<size_t> CacheState::FindWord(const BlockId& id) const {
  size_t first = FirstWay(*uses_, id);
  uint64_t tag = TagOf(id);
  for (size_t i = first; i < first + kWays; ++i)
    if (TagOfWord(uses_->Load(i)) == tag) return i;
  return std::nullopt;
}

void CacheState::SetUse(const BlockId& id, const ExpectedUse& use) {
  std::optional<size_t> place = FindWord(id);
  if (!place) {
    // A free place, else that of the block without a plan that was not used for longest, else any.
    size_t first = FirstWay(*uses_, id);
    uint64_t oldest = kWhenMask + 1;
    place = first + TagOf(id) % kWays;
    for (size_t i = first; i < first + kWays; ++i) {
      uint64_t word = uses_->Load(i);
      uint64_t when = word == 0 ? 0 : DecodeUse(word).at;
      if (DecodeUse(word).plan != kNoPlan || when >= oldest) continue;
      oldest = when;
      place = i;
    }
  }
  uses_->Store(*place, EncodeUse(id, use));
}

bool CacheState::IsClaimed(const ExpectedUse& use, Tick now) const {
  size_t at = kPlans + kWordsPerPlan * use.plan;
  return use.at >= counters_->Load(at) && now <= counters_->Load(at + 1) + kPlanGraceMs;
}

void CacheState::Touch(const BlockId& id) {
  // Coarse: the order need not be finer, and most reads then only load.
  constexpr Tick kCoarseMs = 64;
  Tick now = Now();
  if (std::optional<size_t> place = FindWord(id)) {
    ExpectedUse use = DecodeUse(uses_->Load(*place));
    if (use.plan == kNoPlan ? use.at + kCoarseMs > now : IsClaimed(use, now)) return;
  }
  SetUse(id, {kNoPlan, now});
}

std::optional<ExpectedUse> CacheState::Use(const BlockId& id) const {
  std::optional<size_t> place = FindWord(id);
  if (!place) return std::nullopt;
  return DecodeUse(uses_->Load(*place));
}

void CacheState::Forget(const BlockId& id) {
  if (std::optional<size_t> place = FindWord(id)) uses_->Store(*place, 0);
}

void CacheState::SetProgress(uint32_t plan, const PlanProgress& progress) {
  if (plan == kNoPlan || plan >= kNumPlans) return;
  size_t at = kPlans + kWordsPerPlan * plan;
  counters_->Store(at, progress.position);
  counters_->Store(at + 1, progress.advanced);
  counters_->Store(at + 2, progress.ns_per_position);
}

std::vector<PlanProgress> CacheState::AllProgress() const {
  std::vector<PlanProgress> all(kNumPlans);
  for (size_t plan = 1; plan < kNumPlans; ++plan) {
    size_t at = kPlans + kWordsPerPlan * plan;
    all[plan] = {counters_->Load(at), counters_->Load(at + 1), counters_->Load(at + 2)};
  }
  return all;
}

}  // namespace headrace::cache
