#include "headrace/cache/prefetch.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <optional>
#include <queue>
#include <unordered_map>
#include <utility>
#include <vector>

#include "headrace/base/stage_timer.h"
#include "headrace/cache/policy/request_limit.h"

namespace headrace::cache {
namespace {

constexpr uint64_t kMinAheadBlocks = 4;
constexpr uint64_t kGroupBytes = 16 << 20;

// What fetches under way report to. Outlives the prefetcher where they do.
struct Progress {
  Progress(const PrefetchLimits& bounds, uint32_t first_requests)
      : limits(bounds), limit({.start = first_requests, .most = bounds.max_requests}) {}

  Mutex mu;  // order: none is taken under it
  CondVar changed_cv;
  bool stopping HR_GUARDED_BY(mu) = false;
  uint64_t position HR_GUARDED_BY(mu) = 0, reached HR_GUARDED_BY(mu) = 0;
  uint64_t in_flight_bytes HR_GUARDED_BY(mu) = 0;
  uint32_t in_flight_requests HR_GUARDED_BY(mu) = 0;
  bool refused HR_GUARDED_BY(mu) = false;  // the cache takes nothing at the moment
  bool taken HR_GUARDED_BY(mu) = false;    // it has taken something since
  PrefetchLimits limits HR_GUARDED_BY(mu);
  bool limits_changed HR_GUARDED_BY(mu) = false;  // and the prefetcher's thread has not looked
  RequestLimit limit HR_GUARDED_BY(mu);
  PrefetchCounters counters HR_GUARDED_BY(mu);
  Status failure HR_GUARDED_BY(mu);
};

// Neighbouring blocks, asked for together.
struct Group {
  uint64_t first_use = 0;
  std::vector<BlockCache::Wanted> wanted = {};
  uint64_t bytes = 0;
};

void Report(Progress* progress, uint64_t bytes, BlockCache::Fetched how, const Status& status) {
  MutexLock lock(&progress->mu);
  progress->in_flight_bytes -= bytes;
  bool all_in_use = progress->in_flight_requests >= progress->limit.limit();
  switch (how) {
    case BlockCache::Fetched::kWasHere:
      progress->counters.present_blocks += 1;
      break;
    case BlockCache::Fetched::kFetched:
      progress->counters.fetched_blocks += 1;
      progress->taken = true;
      progress->limit.Succeed(all_in_use);
      break;
    case BlockCache::Fetched::kRefused:
      progress->counters.refused_blocks += 1;
      progress->refused = true;
      break;
    case BlockCache::Fetched::kFailed:
      progress->counters.failed_blocks += 1;
      if (status.code() == Code::kUnavailable && progress->limit.Overload(NowNanos() / 1'000'000))
        progress->counters.overloads += 1;
      progress->failure = status;
      break;
  }
  progress->changed_cv.NotifyAll();
}

// What the blocks of a range take in memory.
uint64_t WholeBlocks(const PlannedRead& read, const CachedObject& object) {
  const uint64_t first = read.offset / object.block_bytes;
  const uint64_t last = (read.offset + read.length - 1) / object.block_bytes;
  return (last - first) * object.block_bytes + BufferPool::CapacityFor(object.Block(last).length);
}

class PrefetcherImpl final : public Prefetcher {
 public:
  PrefetcherImpl(std::shared_ptr<CachingStore> store, std::unique_ptr<PlanSource> plan,
                 const PrefetchOptions& options)
      : store_(std::move(store)),
        cache_(store_->cache()),
        plan_(std::move(plan)),
        options_(options),
        progress_(std::make_shared<Progress>(options.limits, options.first_requests)) {}

  ~PrefetcherImpl() override {
    if (ForkGeneration() != generation_) {
      // A forked child's copy: the thread is not here, and locks may be held for ever.
      [[maybe_unused]] auto* of_the_parent = thread_.release();
      return;
    }
    {
      cancelled_ = true;
      MutexLock lock(&progress_->mu);
      progress_->stopping = true;
      progress_->changed_cv.NotifyAll();
    }
    thread_.reset();
    while (!held_.empty()) ReleaseFirst();
  }

  Status Start() {
    if (cache_->node()) {
      auto slot = cache_->node()->JoinPlans();
      if (slot.ok()) slot_ = *std::move(slot);
    }
    HR_ASSIGN_OR_RETURN(thread_, Thread::Start("hr-prefetch", [this] { Run(); }));
    return OkStatus();
  }

  void Reach(uint64_t position) override {
    MutexLock lock(&progress_->mu);
    if (position <= progress_->reached) return;
    progress_->reached = position;
    progress_->changed_cv.NotifyAll();
  }

  void Advance(uint64_t position) override {
    MutexLock lock(&progress_->mu);
    if (position <= progress_->position) return;
    progress_->position = position;
    progress_->changed_cv.NotifyAll();
  }

  void EndKeep() override { kept_ = true; }
  void Keep(const BlockId& id, uint64_t position) override { cache_->SetUse(id, UseAt(position)); }

  void SetLimits(const PrefetchLimits& limits) override {
    MutexLock lock(&progress_->mu);
    progress_->limits = limits;
    progress_->limit.SetMost(limits.max_requests);
    progress_->limits_changed = true;
    progress_->changed_cv.NotifyAll();
  }

  PrefetchCounters counters() const override {
    MutexLock lock(&progress_->mu);
    PrefetchCounters now = progress_->counters;
    now.request_limit = progress_->limit.limit();
    return now;
  }

  Status last_failure() const override {
    MutexLock lock(&progress_->mu);
    return progress_->failure;
  }

 private:
  // A planned range, from when it is pulled until the reader is past it.
  struct Held {
    std::vector<BlockId> blocks;
    uint64_t last_use = 0, next_use = 0;
    bool operator>(const Held& other) const { return last_use > other.last_use; }
  };
  // Bytes that the reader has not come to, by its first use of them.
  struct Ahead {
    uint64_t bytes = 0;
    std::deque<std::pair<uint64_t, uint64_t>> parts = {};  // first use, bytes

    void Add(uint64_t first_use, uint64_t more) {
      parts.emplace_back(first_use, more);
      bytes += more;
    }
    void Pass(uint64_t position) {
      for (; !parts.empty() && parts.front().first < position; parts.pop_front())
        bytes -= parts.front().second;
    }
  };
  // A block that ranges need.
  struct Hold {
    uint32_t count = 0;     // ranges
    uint64_t last_use = 0;  // of all of them
  };

  struct Turn {
    bool may_ask = false;  // there is something to ask for
    bool is_due = false;   // there is something to pull
    bool has_room = false;
    uint64_t position = 0;
  };

  void Run();
  bool Wait(Turn* turn);
  bool HasNext();
  // False at the plan's end, and where memory alone has no room for the next range: it has when the
  // reader has moved on.
  bool MayPull() { return HasNext() && FitsMemory(*next_); }
  bool FitsMemory(const PlannedRead& read) const;
  // True when the reader may have come to the next range. Such are pulled whether they can be asked
  // for or not: a reader that is faster than the fetches must not leave the plan behind, which
  // would then bring what was read already in place of what will be.
  bool IsDue() { return MayPull() && (next_->first_use <= passed_ || next_->first_use < reached_); }
  void Pull();
  void PassOver(const PlannedRead& read);
  void Plan(const PlannedRead& read, const std::shared_ptr<const CachedObject>& object);
  void AskLater(const PlannedRead& read, const std::shared_ptr<const CachedObject>& object,
                uint64_t first, uint64_t last);
  void Submit();
  void PassPosition(uint64_t position);
  void ReleasePassed();
  void ReleaseFirst();
  void TellProgress(uint64_t position);
  uint64_t AheadLimit();
  Tick Now() const { return cache_->node() ? cache_->node()->Now() : 0; }
  ExpectedUse UseAt(uint64_t position) const {
    if (slot_.plan == kNoPlan) return {kNoPlan, Now()};
    return {slot_.plan, position};
  }
  ExpectedUse UseOf(uint64_t last_use) const;
  uint64_t EndOfNextEpoch(uint64_t position) const {
    uint64_t epoch = std::max<uint64_t>(options_.positions_per_epoch, 1);
    return (position / epoch + 2) * epoch;
  }

  const std::shared_ptr<CachingStore> store_;
  BlockCache* const cache_;  // not owned
  const std::unique_ptr<PlanSource> plan_;
  const PrefetchOptions options_;
  const std::shared_ptr<Progress> progress_;
  const uint64_t generation_ = ForkGeneration();
  NodeCache::PlanSlot slot_;
  std::atomic<bool> cancelled_{false}, kept_{false};

  // Of the thread alone, and of the destructor after it.
  bool plan_ended_ = false;
  std::optional<PlannedRead> next_;  // of the plan, looked at
  std::priority_queue<Held, std::vector<Held>, std::greater<>> held_;
  // What was asked for, and what was pulled of the plan: a plan whose blocks are all there is not
  // pulled for ever.
  Ahead asked_, pulled_;
  std::unordered_map<BlockId, Hold, BlockIdHash> holds_;
  uint64_t held_bytes_ = 0;   // of holds_
  std::deque<Group> groups_;  // to be asked for
  uint32_t block_bytes_ = kDefaultBlockBytes;
  uint64_t pause_ms_ = 0, resume_ns_ = 0;  // while the cache takes nothing
  uint64_t reached_ = 0, passed_ = 0, first_position_ = 0, started_ns_ = 0, told_ns_ = 0;

  std::unique_ptr<Thread> thread_;  // last: joined first
};

void PrefetcherImpl::Run() {
  Turn turn{.may_ask = true};
  while (Wait(&turn)) {
    PassPosition(turn.position);
    if (IsDue()) Pull();  // one at a time, so that what is known is asked for meanwhile
    bool may_ask = turn.may_ask && turn.has_room;
    if (may_ask && groups_.empty() && MayPull()) Pull();
    if (may_ask) Submit();
    uint64_t limit = AheadLimit();
    bool may_pull = MayPull() && pulled_.bytes < limit;
    turn.may_ask = (!groups_.empty() || may_pull) && asked_.bytes < limit;
    turn.is_due = IsDue();
  }
}

// Waits until there is something to do: room for a request, if one may be asked for, a reader that
// has moved, or other limits. Returns false at the end.
bool PrefetcherImpl::Wait(Turn* turn) {
  constexpr uint64_t kFirstPauseMs = 200, kLongestPauseMs = 10000;
  Progress& p = *progress_;
  MutexLock lock(&p.mu);
  while (!p.stopping) {
    if (p.taken) pause_ms_ = 0;
    p.taken = false;
    if (p.refused) {
      // Time for the cache to come round; the reader goes on without us.
      pause_ms_ = std::clamp(pause_ms_ * 2, kFirstPauseMs, kLongestPauseMs);
      resume_ns_ = NowNanos() + pause_ms_ * 1'000'000;
      p.refused = false;
    }
    turn->has_room =
        p.in_flight_requests < p.limit.limit() && p.in_flight_bytes < p.limits.in_flight_bytes;
    uint64_t now = NowNanos();
    bool pausing = now < resume_ns_;
    if ((turn->may_ask && turn->has_room && !pausing) || turn->is_due || p.position > passed_ ||
        p.reached > reached_ || p.limits_changed) {
      turn->has_room &= !pausing;
      p.limits_changed = false;
      break;
    }
    if (turn->may_ask && pausing)
      p.changed_cv.WaitFor(&p.mu, std::chrono::nanoseconds(resume_ns_ - now));
    else
      p.changed_cv.Wait(&p.mu);
  }
  turn->position = p.position;
  reached_ = p.reached;
  return !p.stopping;
}

uint64_t PrefetcherImpl::AheadLimit() {
  constexpr uint64_t kShareOfCache = 256;
  uint64_t most = options_.memory_bytes;
  if (cache_->node())
    most = std::max<uint64_t>(cache_->node()->limit_bytes() / kShareOfCache,
                              kMinAheadBlocks * block_bytes_);
  MutexLock lock(&progress_->mu);
  return std::min(progress_->limits.ahead_bytes, most);
}

// What can never fit is pulled, to be passed over.
bool PrefetcherImpl::FitsMemory(const PlannedRead& read) const {
  if (cache_->node() || read.length > options_.memory_bytes) return true;
  const uint64_t bytes = BufferPool::CapacityFor(read.length);
  return bytes > options_.memory_bytes || held_bytes_ + bytes <= options_.memory_bytes;
}

// Looks at the next range of the plan.
bool PrefetcherImpl::HasNext() {
  if (next_ || plan_ended_) return next_.has_value();
  plan_ended_ = !plan_->Next(&next_.emplace());
  if (plan_ended_) next_.reset();
  return !plan_ended_;
}

void PrefetcherImpl::Pull() {
  if (!HasNext()) return;
  PlannedRead read = std::move(*next_);
  next_.reset();
  Context ctx;
  ctx.cancelled = &cancelled_;
  auto object = store_->Find(read.key, ctx);
  if (!object.ok()) {
    PassOver(read);
    MutexLock lock(&progress_->mu);
    progress_->counters.failed_blocks += 1;
    progress_->failure = object.status();
    return;
  }
  uint64_t size = (*object)->version.size_bytes;
  if (read.offset >= size || read.length == 0) return PassOver(read);
  read.length = std::min(read.length, size - read.offset);
  if (!cache_->node() && held_bytes_ + WholeBlocks(read, **object) > options_.memory_bytes)
    return PassOver(read);
  Plan(read, *object);
  ReleasePassed();
}

// Counts as a block.
void PrefetcherImpl::PassOver(const PlannedRead& read) {
  if (read.first_use >= passed_) pulled_.Add(read.first_use, block_bytes_);
}

void PrefetcherImpl::Plan(const PlannedRead& read,
                          const std::shared_ptr<const CachedObject>& object) {
  block_bytes_ = object->block_bytes;
  uint64_t first = read.offset / object->block_bytes;
  uint64_t last = (read.offset + read.length - 1) / object->block_bytes;
  bool is_late = read.last_use < passed_;
  if (!is_late) AskLater(read, object, first, last);
  if (read.first_use >= passed_) pulled_.Add(read.first_use, read.length);
  Held held{{}, read.last_use, read.next_use};
  for (uint64_t number = first; number <= last; ++number) {
    BlockId id = object->Block(number);
    held.blocks.push_back(id);
    Hold& hold = holds_[id];
    if (hold.count == 0) held_bytes_ += BufferPool::CapacityFor(id.length);
    hold.count += 1;
    hold.last_use = std::max(hold.last_use, read.last_use);
    // Until its last use here: it must not look as if it were done with. Where it is to stay, until
    // the reader needs it again.
    if (!is_late) cache_->Expect(id, UseOf(hold.last_use), options_.displace, hold.last_use);
  }
  {
    MutexLock lock(&progress_->mu);
    progress_->counters.planned_blocks += held.blocks.size();
    if (is_late) progress_->counters.late_blocks += held.blocks.size();
  }
  held_.push(std::move(held));
}

// Makes groups of those blocks that no range before has asked for.
void PrefetcherImpl::AskLater(const PlannedRead& read,
                              const std::shared_ptr<const CachedObject>& object, uint64_t first,
                              uint64_t last) {
  Group group{.first_use = read.first_use};
  for (uint64_t number = first; number <= last; ++number) {
    BlockId id = object->Block(number);
    if (holds_.contains(id)) continue;
    group.wanted.push_back({.object = object,
                            .number = number,
                            .use = UseOf(read.last_use),
                            .last_use = read.last_use});
    group.bytes += id.length;
    if (group.bytes < kGroupBytes) continue;
    groups_.push_back(std::exchange(group, Group{.first_use = read.first_use}));
  }
  if (!group.wanted.empty()) groups_.push_back(std::move(group));
}

// Asks for one group; Wait has seen room for it. Blocks that the reader is past are left out.
void PrefetcherImpl::Submit() {
  if (groups_.empty()) return;
  Group group = std::move(groups_.front());
  groups_.pop_front();
  std::erase_if(group.wanted, [&](const BlockCache::Wanted& one) {
    bool is_held = holds_.contains(one.object->Block(one.number));
    if (!is_held) group.bytes -= one.object->Block(one.number).length;
    return !is_held;
  });
  if (group.wanted.empty()) return;
  if (group.first_use >= passed_) asked_.Add(group.first_use, group.bytes);
  {
    MutexLock lock(&progress_->mu);
    progress_->in_flight_requests += 1;
    progress_->in_flight_bytes += group.bytes;
  }
  // Until it is known what is there for the plan, no such block must go.
  bool takes_nothing = options_.displace == Displace::kUnclaimed && !kept_;
  std::vector<uint32_t> lengths;
  for (BlockCache::Wanted& one : group.wanted) {
    one.displace = takes_nothing ? Displace::kNothing : options_.displace;
    lengths.push_back(one.object->Block(one.number).length);
  }
  auto left = std::make_shared<std::atomic<size_t>>(lengths.size());
  cache_->Prefetch(std::move(group.wanted),
                   [progress = progress_, lengths = std::move(lengths), left](
                       size_t place, BlockCache::Fetched how, const Status& status) {
                     Report(progress.get(), lengths[place], how, status);
                     if (left->fetch_sub(1) != 1) return;
                     MutexLock lock(&progress->mu);
                     progress->in_flight_requests -= 1;
                     progress->changed_cv.NotifyAll();
                   });
}

// The reader has come to `position`.
void PrefetcherImpl::PassPosition(uint64_t position) {
  if (position <= passed_) return;
  TellProgress(position);
  passed_ = position;
  asked_.Pass(position);
  pulled_.Pass(position);
  ReleasePassed();
}

void PrefetcherImpl::ReleasePassed() {
  while (!held_.empty() && held_.top().last_use < passed_) ReleaseFirst();
}

// When a block that is used until `last_use` is needed, as the choice of what to evict sees it.
ExpectedUse PrefetcherImpl::UseOf(uint64_t last_use) const {
  if (options_.displace == Displace::kFarther) return UseAt(last_use);
  return UseAt(EndOfNextEpoch(last_use));
}

void PrefetcherImpl::ReleaseFirst() {
  const Held& held = held_.top();
  uint64_t next = held.next_use;
  // Without an order for the next epoch: not before its end. So it goes before all that this epoch
  // still needs.
  uint64_t epoch = options_.positions_per_epoch;
  bool stays = options_.displace != Displace::kFarther;
  if (epoch > 0 && (next == PlannedRead::kUnknown || stays)) next = EndOfNextEpoch(held.last_use);
  ExpectedUse use = next == PlannedRead::kUnknown ? ExpectedUse{kNoPlan, Now()} : UseAt(next);
  for (const BlockId& id : held.blocks) {
    auto found = holds_.find(id);
    if (found == holds_.end()) continue;
    if (--found->second.count > 0) {
      uint64_t last_use = found->second.last_use;
      cache_->Expect(id, UseOf(last_use), options_.displace, last_use);
      continue;
    }
    holds_.erase(found);
    held_bytes_ -= BufferPool::CapacityFor(id.length);
    cache_->Release(id, use);
  }
  held_.pop();
}

void PrefetcherImpl::TellProgress(uint64_t position) {
  constexpr uint64_t kTellEveryNs = 50'000'000;
  if (!cache_->node()) return;
  uint64_t now = NowNanos();
  if (started_ns_ == 0) {
    started_ns_ = now;
    first_position_ = position;
  }
  if (now - told_ns_ < kTellEveryNs) return;
  told_ns_ = now;
  uint64_t moved = position - first_position_;
  uint64_t ns_per_position = moved > 0 ? (now - started_ns_) / moved : 0;
  cache_->node()->SetProgress(slot_, position, ns_per_position);
}

}  // namespace

Result<std::unique_ptr<Prefetcher>> Prefetcher::Start(std::shared_ptr<CachingStore> store,
                                                      std::unique_ptr<PlanSource> plan,
                                                      const PrefetchOptions& options) {
  BlockCache* cache = store->cache();
  if (!cache || (!cache->node() && options.memory_bytes == 0))
    return Status(Code::kUnavailable, "there is neither a disk nor memory to bring blocks to");
  auto prefetcher = std::make_unique<PrefetcherImpl>(std::move(store), std::move(plan), options);
  HR_RETURN_IF_ERROR(prefetcher->Start());
  return prefetcher;
}

}  // namespace headrace::cache
