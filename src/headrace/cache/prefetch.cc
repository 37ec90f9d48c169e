#include "headrace/cache/prefetch.h"

#include <algorithm>
#include <deque>
#include <queue>
#include <unordered_map>
#include <utility>
#include <vector>

#include "headrace/base/stage_timer.h"
#include "headrace/cache/policy/request_limit.h"

namespace headrace::cache {
namespace {

constexpr uint64_t kMinAheadBlocks = 16;

// What fetches under way report to. Outlives the prefetcher where they do.
struct Progress {
  explicit Progress(RequestLimit::Options options) : limit(options) {}

  Mutex mu;  // order: none is taken under it
  CondVar changed_cv;
  bool stopping HR_GUARDED_BY(mu) = false;
  uint64_t position HR_GUARDED_BY(mu) = 0;
  uint64_t in_flight_bytes HR_GUARDED_BY(mu) = 0;
  uint32_t in_flight_requests HR_GUARDED_BY(mu) = 0;
  bool paused HR_GUARDED_BY(mu) = false;  // the cache takes nothing at the moment
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
      progress->limit.Succeed(all_in_use);
      break;
    case BlockCache::Fetched::kRefused:
      progress->counters.refused_blocks += 1;
      progress->paused = true;
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

class PrefetcherImpl final : public Prefetcher {
 public:
  PrefetcherImpl(std::shared_ptr<CachingStore> store, std::unique_ptr<PlanSource> plan,
                 const PrefetchOptions& options)
      : store_(std::move(store)),
        cache_(store_->cache()),
        plan_(std::move(plan)),
        options_(options),
        progress_(std::make_shared<Progress>(RequestLimit::Options{
            .start = options.first_requests, .most = options.max_requests})) {}

  ~PrefetcherImpl() override {
    if (ForkGeneration() != generation_) {
      // A forked child's copy: the thread is not here, and locks may be held for ever.
      [[maybe_unused]] auto* of_the_parent = thread_.release();
      return;
    }
    {
      MutexLock lock(&progress_->mu);
      progress_->stopping = true;
      progress_->changed_cv.NotifyAll();
    }
    thread_.reset();
    while (!held_.empty()) ReleaseFirst();
  }

  Status Start() {
    auto slot = cache_->node()->JoinPlans();
    if (slot.ok()) slot_ = *std::move(slot);
    HR_ASSIGN_OR_RETURN(thread_, Thread::Start("hr-prefetch", [this] { Run(); }));
    return OkStatus();
  }

  void Advance(uint64_t position) override {
    MutexLock lock(&progress_->mu);
    if (position <= progress_->position) return;
    progress_->position = position;
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
  // A group that was asked for and that the reader has not come to.
  struct Ahead {
    uint64_t first_use = 0, bytes = 0;
  };
  // A block that ranges need.
  struct Hold {
    uint32_t count = 0;     // ranges
    uint64_t last_use = 0;  // of all of them
  };

  struct Turn {
    bool may_ask = false;
    uint64_t position = 0;
  };

  void Run();
  bool Wait(Turn* turn);
  void Pull();
  void Plan(const PlannedRead& read, const std::shared_ptr<const CachedObject>& object);
  void Submit();
  void PassPosition(uint64_t position);
  void ReleaseFirst();
  void TellProgress(uint64_t position);
  uint64_t AheadLimit();
  ExpectedUse UseAt(uint64_t position) const { return {slot_.plan, position}; }

  const std::shared_ptr<CachingStore> store_;
  BlockCache* const cache_;  // not owned
  const std::unique_ptr<PlanSource> plan_;
  const PrefetchOptions options_;
  const std::shared_ptr<Progress> progress_;
  const uint64_t generation_ = ForkGeneration();
  NodeCache::PlanSlot slot_;

  // Of the thread alone, and of the destructor after it.
  bool plan_ended_ = false;
  std::priority_queue<Held, std::vector<Held>, std::greater<>> held_;
  std::deque<Ahead> ahead_;
  uint64_t ahead_bytes_ = 0;
  std::unordered_map<BlockId, Hold, BlockIdHash> holds_;
  std::deque<Group> groups_;  // to be asked for
  uint64_t passed_ = 0, first_position_ = 0, started_ns_ = 0, told_ns_ = 0;

  std::unique_ptr<Thread> thread_;  // last: joined first
};

void PrefetcherImpl::Run() {
  Turn turn{.may_ask = true};
  while (Wait(&turn)) {
    PassPosition(turn.position);
    if (turn.may_ask && groups_.empty()) Pull();
    if (turn.may_ask) Submit();
    turn.may_ask = (!groups_.empty() || !plan_ended_) && ahead_bytes_ < AheadLimit();
  }
}

// Waits until there is something to do: room for a request, if one may be asked for, or a reader
// that has moved. Returns false at the end.
bool PrefetcherImpl::Wait(Turn* turn) {
  constexpr auto kPause = std::chrono::milliseconds(200);
  Progress& p = *progress_;
  MutexLock lock(&p.mu);
  bool has_room = false;
  while (!p.stopping) {
    if (p.paused && turn->may_ask) {
      // Time for the cache to come round; the reader goes on without us.
      p.changed_cv.WaitFor(&p.mu, kPause);
      p.paused = false;
    }
    has_room =
        p.in_flight_requests < p.limit.limit() && p.in_flight_bytes < options_.in_flight_bytes;
    if ((turn->may_ask && has_room) || p.position > passed_) break;
    p.changed_cv.Wait(&p.mu);
  }
  turn->may_ask &= has_room;
  turn->position = p.position;
  return !p.stopping;
}

uint64_t PrefetcherImpl::AheadLimit() {
  constexpr uint64_t kShareOfCache = 64;
  uint64_t share = cache_->node()->limit_bytes() / kShareOfCache;
  return std::min(options_.ahead_bytes,
                  std::max<uint64_t>(share, kMinAheadBlocks * kDefaultBlockBytes));
}

void PrefetcherImpl::Pull() {
  PlannedRead read;
  if (!plan_->Next(&read)) {
    plan_ended_ = true;
    return;
  }
  auto object = store_->Find(read.key, Context());
  if (!object.ok()) {
    MutexLock lock(&progress_->mu);
    progress_->counters.failed_blocks += 1;
    progress_->failure = object.status();
    return;
  }
  uint64_t size = (*object)->version.size_bytes;
  if (read.offset >= size) return;
  read.length = std::min(read.length, size - read.offset);
  if (read.length > 0) Plan(read, *object);
}

void PrefetcherImpl::Plan(const PlannedRead& read,
                          const std::shared_ptr<const CachedObject>& object) {
  uint64_t first = read.offset / object->block_bytes;
  uint64_t last = (read.offset + read.length - 1) / object->block_bytes;
  constexpr uint64_t kGroupBytes = 16 << 20;
  Held held{{}, read.last_use, read.next_use};
  Group group{.first_use = read.first_use};
  for (uint64_t number = first; number <= last; ++number) {
    BlockId id = object->Block(number);
    held.blocks.push_back(id);
    Hold& hold = holds_[id];
    hold.last_use = std::max(hold.last_use, read.last_use);
    if (hold.count++ > 0) continue;  // a range before has asked for it
    // Until its last use here: it must not look as if it were done with.
    group.wanted.push_back({object, number, UseAt(read.last_use)});
    group.bytes += id.length;
    if (group.bytes < kGroupBytes) continue;
    groups_.push_back(std::exchange(group, Group{.first_use = read.first_use}));
  }
  if (!group.wanted.empty()) groups_.push_back(std::move(group));
  {
    MutexLock lock(&progress_->mu);
    progress_->counters.planned_blocks += held.blocks.size();
  }
  held_.push(std::move(held));
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
  if (group.first_use >= passed_) {
    ahead_bytes_ += group.bytes;
    ahead_.push_back({group.first_use, group.bytes});
  }
  {
    MutexLock lock(&progress_->mu);
    progress_->in_flight_requests += 1;
    progress_->in_flight_bytes += group.bytes;
  }
  std::vector<uint32_t> lengths;
  for (const BlockCache::Wanted& one : group.wanted)
    lengths.push_back(one.object->Block(one.number).length);
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
  while (!ahead_.empty() && ahead_.front().first_use < position) {
    ahead_bytes_ -= ahead_.front().bytes;
    ahead_.pop_front();
  }
  while (!held_.empty() && held_.top().last_use < position) ReleaseFirst();
}

void PrefetcherImpl::ReleaseFirst() {
  const Held& held = held_.top();
  uint64_t next = held.next_use;
  // Without an order for the next epoch: not before its end. So it goes before all that this epoch
  // still needs.
  uint64_t epoch = options_.positions_per_epoch;
  if (next == PlannedRead::kUnknown && epoch > 0) next = (held.last_use / epoch + 2) * epoch;
  ExpectedUse use =
      next == PlannedRead::kUnknown ? ExpectedUse{kNoPlan, cache_->node()->Now()} : UseAt(next);
  for (const BlockId& id : held.blocks) {
    auto found = holds_.find(id);
    if (found == holds_.end()) continue;
    if (--found->second.count > 0) {
      cache_->SetUse(id, UseAt(found->second.last_use));
      continue;
    }
    holds_.erase(found);
    cache_->Release(id, use);
  }
  held_.pop();
}

void PrefetcherImpl::TellProgress(uint64_t position) {
  constexpr uint64_t kTellEveryNs = 50'000'000;
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
  if (!store->cache() || !store->cache()->node())
    return Status(Code::kUnavailable, "there is no cache on disk to bring blocks to");
  auto prefetcher = std::make_unique<PrefetcherImpl>(std::move(store), std::move(plan), options);
  HR_RETURN_IF_ERROR(prefetcher->Start());
  return prefetcher;
}

}  // namespace headrace::cache
