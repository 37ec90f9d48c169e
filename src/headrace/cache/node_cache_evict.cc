// Room for new blocks: what NodeCache counts, looks for and gives up.
#include <algorithm>

#include "headrace/base/text.h"
#include "headrace/cache/node_cache.h"

namespace headrace::cache {
namespace {

int64_t Minus(uint64_t bytes) { return -static_cast<int64_t>(bytes); }

}  // namespace

// How many bytes must go before `cost` more fit, which are counted already.
uint64_t NodeCache::MissingBytes(CacheState* state, uint64_t cost) {
  uint64_t used = state->used_bytes(), limit = state->limit_bytes();
  uint64_t missing = used > limit ? used - limit : 0;
  auto free = fs_->FreeBytes(paths_.root());  // nothing is told here, under a lock
  if (free.ok() && *free < state->free_floor_bytes() + cost)
    missing = std::max(missing, state->free_floor_bytes() + cost - *free);
  return missing;
}

// The bytes are counted first and looked at then, so that processes that arrive together cannot
// pass the limit together.
Status NodeCache::Reserve(CacheState* state, uint64_t cost, const Newcomer& newcomer) {
  constexpr int kAttempts = 8;
  MutexLock one_at_a_time(&reserve_mu_);
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    state->AddUsed(static_cast<int64_t>(cost));
    uint64_t missing = MissingBytes(state, cost);
    if (missing == 0) return OkStatus();
    state->AddUsed(Minus(cost));
    if (newcomer.displace == Displace::kNothing) break;
    HR_ASSIGN_OR_RETURN(uint64_t evicted, Evict(state, missing, newcomer));
    if (evicted == 0) break;
  }
  return Error(Code::kResourceExhausted,
               "no room for {} more: {} of {} are in use, pinned or being written; raise the "
               "limit, unpin, or free space on the disk",
               FormatSize(cost), FormatSize(state->used_bytes()), FormatSize(state->limit_bytes()));
}

Result<uint64_t> NodeCache::MakeRoom(uint64_t bytes) {
  Use use = Begin(Side::kWrite, Context());
  if (!use) return Status(Code::kUnavailable, "the cache does not work at the moment");
  uint64_t used = use.state()->used_bytes(), limit = use.state()->limit_bytes();
  uint64_t wanted = used + bytes > limit ? used + bytes - limit : 0;
  return wanted == 0 ? uint64_t{0} : Evict(use.state(), wanted, {});
}

bool NodeCache::HasRoom(uint64_t bytes) {
  Use use = Peek();
  if (!use) return false;
  auto free = FreeBytes();
  if (free.status().code() == Code::kPermissionDenied ||
      use.state()->used_bytes() + bytes > use.state()->limit_bytes())
    return false;
  return !free.ok() || *free >= use.state()->free_floor_bytes() + bytes;
}

bool NodeCache::MakeRoomFor(uint64_t bytes, const ExpectedUse& expected, Displace displace) {
  if (HasRoom(bytes)) return true;
  Use use = Peek();
  if (!use || displace == Displace::kNothing) return false;
  {
    MutexLock one_at_a_time(&reserve_mu_);
    uint64_t missing = MissingBytes(use.state(), bytes);
    uint64_t used = use.state()->used_bytes(), limit = use.state()->limit_bytes();
    if (used + bytes > limit) missing = std::max(missing, used + bytes - limit);
    (void)Evict(use.state(), missing, {expected, displace});
  }
  return HasRoom(bytes);
}

// One process at a time looks for victims. Another one that waits for it will likely find room.
Result<uint64_t> NodeCache::Evict(CacheState* state, uint64_t bytes, const Newcomer& newcomer) {
  constexpr int kAttempts = 1000;
  Mutex mu;
  CondVar never;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    auto lock = fs_->Lock(paths_.State("evict.lock"));
    if (lock.ok()) return EvictLocked(state, bytes, newcomer);
    if (lock.status().code() != Code::kFailedPrecondition) return std::move(lock).status();
    MutexLock waiting(&mu);
    never.WaitFor(&mu, std::chrono::milliseconds(2));
  }
  return Status(Code::kUnavailable, "another process has been evicting from the cache for long");
}

Result<uint64_t> NodeCache::EvictLocked(CacheState* state, uint64_t bytes,
                                        const Newcomer& newcomer) {
  uint64_t before = state->used_bytes();
  HR_ASSIGN_OR_RETURN(CacheContents contents, ListCache(fs_, paths_));
  uint64_t regained = CorrectCount(state, contents, before, bytes);
  if (regained < bytes) regained += EvictFarthest(state, &contents, bytes - regained, newcomer);
  RemoveOrphans(state, contents);
  return regained;
}

// Takes off what was counted and is not there: left by killed processes, or removed by others in
// bulk. Adds what is there and was not counted. Returns how many bytes were taken off.
uint64_t NodeCache::CorrectCount(CacheState* state, const CacheContents& contents, uint64_t before,
                                 uint64_t bytes) {
  uint64_t being_written = 0, regained = 0;
  for (const BlockId& id : contents.unfinished) {
    being_written += BlockCost(id.length);
    if (!RemoveUnfinished(fs_, paths_, id)) continue;
    state->AddUsed(Minus(BlockCost(id.length)));
    regained += BlockCost(id.length);
  }
  uint64_t counted = std::max(before, state->used_bytes());
  uint64_t slack = state->limit_bytes() / 16 + being_written + bytes;
  if (contents.bytes > counted) {
    state->AddUsed(static_cast<int64_t>(contents.bytes - counted));
  } else if (counted - contents.bytes > slack) {
    state->AddUsed(Minus(counted - contents.bytes - slack));
    regained += counted - contents.bytes - slack;
  }
  return regained;
}

// Removes victims from the disk and from `contents`. Returns their bytes.
uint64_t NodeCache::EvictFarthest(CacheState* state, CacheContents* contents, uint64_t bytes,
                                  const Newcomer& newcomer) {
  std::vector<PlanProgress> plans = state->AllProgress();
  Tick now = state->Now();
  std::vector<EvictionCandidate> candidates;
  candidates.reserve(contents->blocks.size());
  for (const BlockId& id : contents->blocks) {
    auto use = state->Use(id);
    bool stays = std::binary_search(contents->pinned.begin(), contents->pinned.end(), id.object) ||
                 !MayDisplace(newcomer.displace, newcomer.use, use, plans, now);
    candidates.push_back(
        {use ? DistanceOfUse(*use, plans, now) : kFarthest, BlockCost(id.length), stays});
  }
  for (const SideFileEntry& side : contents->side_files) {
    auto use = state->Use(UseOfSide(side.id));
    // One in use is as good as claimed by a plan.
    bool in_use = use && now <= use->at + kPlanGraceMs;
    bool stays = newcomer.displace == Displace::kUnclaimed
                     ? in_use
                     : !MayDisplace(newcomer.displace, newcomer.use, use, plans, now);
    candidates.push_back({use ? DistanceOfUse(*use, plans, now) : kFarthest, side.cost, stays});
  }
  // Somewhat more than is needed at once, since looking costs time: of large caches a quarter of a
  // percent.
  uint64_t spare = contents->blocks.size() < 512 ? 0 : contents->bytes / 400;
  uint64_t evicted = 0;
  std::vector<BlockId> gone;
  for (size_t victim : ChooseVictims(candidates, bytes + spare)) {
    if (victim >= contents->blocks.size()) {
      if (DropSideFile(state, contents->side_files[victim - contents->blocks.size()]))
        evicted += candidates[victim].cost;
      continue;
    }
    const BlockId& id = contents->blocks[victim];
    if (!DropFrom(state, id)) continue;
    counts_.evicted_blocks += 1;
    counts_.evicted_bytes += id.length;
    evicted += candidates[victim].cost;
    gone.push_back(id);
  }
  std::sort(gone.begin(), gone.end());
  std::erase_if(contents->blocks, [&](const BlockId& id) {
    return std::binary_search(gone.begin(), gone.end(), id);
  });
  return evicted;
}

bool NodeCache::DropSideFile(CacheState* state, const SideFileEntry& side) {
  if (!RemoveSideFile(fs_, paths_, side.id)) return false;
  state->AddUsed(Minus(side.cost));
  state->Forget(UseOfSide(side.id));
  return true;
}

Status NodeCache::CountSide(uint64_t bytes) {
  Use use = Peek();
  if (!use || !healthy())
    return Error(Code::kUnavailable, "the cache {} does not work at the moment",
                 EscapeText(paths_.root()));
  return Reserve(use.state(), bytes, {});
}

void NodeCache::UncountSide(uint64_t bytes) {
  if (Use use = Peek()) use.state()->AddUsed(Minus(bytes));
}

void NodeCache::TouchSide(const ObjectId& id) { Touch(UseOfSide(id)); }

void NodeCache::FailSide(bool reading, const Status& why) {
  Fail(reading ? Side::kRead : Side::kWrite, why);
}

// Descriptors of which no block was found.
void NodeCache::RemoveOrphans(CacheState* state, const CacheContents& contents) {
  for (const ObjectId& object : contents.descriptors) {
    auto first = std::lower_bound(
        contents.blocks.begin(), contents.blocks.end(), object,
        [](const BlockId& block, const ObjectId& wanted) { return block.object < wanted; });
    bool has_blocks = first != contents.blocks.end() && first->object == object;
    if (has_blocks || std::binary_search(contents.pinned.begin(), contents.pinned.end(), object))
      continue;
    if (fs_->Remove(paths_.Descriptor(object)).ok()) state->AddUsed(Minus(kDescriptorCost));
  }
}

}  // namespace headrace::cache
