#include "headrace/checkpoint/save_engine.h"

#include <algorithm>
#include <utility>

#include "headrace/checkpoint/publisher.h"

namespace headrace::checkpoint {

using Clock = Context::Clock;

struct SaveEngine::Save {
  uint64_t number = 0;
  RankSave what;
  Arena::Loan loan;
  Clock::time_point came = Clock::now();
};

namespace {

uint64_t NanosSince(Clock::time_point start) {
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count());
}

}  // namespace

SaveEngine::SaveEngine(StorePlace place, std::unique_ptr<DataFiles> files, uint64_t epoch,
                       const EngineOptions& options)
    : store_(std::move(place)),
      files_(std::move(files)),
      epoch_(epoch),
      options_(options),
      writer_(files_.get(), options_.write) {}

Result<std::unique_ptr<SaveEngine>> SaveEngine::Start(StorePlace place,
                                                      std::unique_ptr<DataFiles> files,
                                                      uint64_t epoch,
                                                      const EngineOptions& options) {
  std::unique_ptr<SaveEngine> engine(
      new SaveEngine(std::move(place), std::move(files), epoch, options));
  HR_ASSIGN_OR_RETURN(engine->thread_,
                      Thread::Start("hr-save", [raw = engine.get()] { raw->Work(); }));
  return engine;
}

SaveEngine::~SaveEngine() {
  stopping_ = true;
  {
    MutexLock lock(&mu_);
    changed_.NotifyAll();
  }
  thread_.reset();
}

Result<uint64_t> SaveEngine::Submit(RankSave save, Arena::Loan loan) {
  auto queued = std::make_unique<Save>();
  queued->what = std::move(save);
  queued->loan = std::move(loan);
  MutexLock lock(&mu_);
  SaveId& id = queued->what.info.id;
  id.epoch = epoch_;
  id.attempt = ++attempts_[id.step];
  uint64_t number = queued->number = next_++;
  queue_.push_back(std::move(queued));
  changed_.NotifyAll();
  return number;
}

Result<SaveOutcome> SaveEngine::Wait(uint64_t number, const Context& ctx) {
  MutexLock lock(&mu_);
  for (;;) {
    if (auto at = ended_.find(number); at != ended_.end()) return at->second;
    bool waiting = under_way_ == number;
    for (const auto& save : queue_) waiting = waiting || save->number == number;
    if (!waiting) return Error(Code::kNotFound, "no save {} is known here", number);
    HR_RETURN_IF_ERROR(ctx.Check());
    changed_.WaitFor(&mu_, std::chrono::milliseconds(100));
  }
}

std::optional<SaveOutcome> SaveEngine::Ended(uint64_t number) {
  MutexLock lock(&mu_);
  auto at = ended_.find(number);
  return at == ended_.end() ? std::nullopt : std::optional(at->second);
}

size_t SaveEngine::pending() {
  MutexLock lock(&mu_);
  return queue_.size() + (under_way_ != 0 ? 1 : 0);
}

void SaveEngine::Work() {
  for (;;) {
    std::unique_ptr<Save> save;
    {
      MutexLock lock(&mu_);
      under_way_ = 0;
      changed_.NotifyAll();
      while (queue_.empty() && !stopping_) changed_.Wait(&mu_);
      if (queue_.empty()) return;
      save = std::move(queue_.front());
      queue_.pop_front();
      under_way_ = save->number;
    }
    SaveOutcome outcome;
    outcome.id = save->what.info.id;
    outcome.queued_ns = NanosSince(save->came);
    const Clock::time_point turn = Clock::now();
    outcome.status = stopping_ ? Status(Code::kCancelled, "the checkpointer was closed")
                               : Do(save.get(), &outcome);
    outcome.published = outcome.status.ok();
    outcome.work_ns = NanosSince(turn);
    save->loan.Return();
    if (options_.ended) options_.ended(outcome);
    MutexLock lock(&mu_);
    ended_[save->number] = std::move(outcome);
    while (ended_.size() > options_.remembered) ended_.erase(ended_.begin());
  }
}

// What was published last, for finding what has not changed since. A light one lacks most of what
// a full save writes, so that looks at the full one before.
Result<std::shared_ptr<const Manifest>> SaveEngine::ManifestBefore(const std::string& kind,
                                                                   const Context& ctx) {
  HR_ASSIGN_OR_RETURN(Catalog catalog, store_.Read(ctx));
  if (catalog.entries.empty()) return std::shared_ptr<const Manifest>();
  size_t at = catalog.entries.size() - 1;
  if (kind != "light")
    while (at > 0 && catalog.entries[at].kind == "light") --at;
  const CatalogEntry& newest = catalog.entries[at];
  if (latest_ != nullptr && latest_id_ == newest.id) return latest_;
  HR_ASSIGN_OR_RETURN(Manifest manifest, store_.ReadManifest(newest, ctx));
  latest_ = std::make_shared<const Manifest>(std::move(manifest));
  latest_id_ = newest.id;
  return latest_;
}

Status SaveEngine::Do(Save* save, SaveOutcome* outcome) {
  Context ctx;
  ctx.cancelled = &stopping_;
  HR_RETURN_IF_ERROR(store_.CheckEpoch(epoch_, ctx));
  HR_ASSIGN_OR_RETURN(auto before, ManifestBefore(save->what.info.kind, ctx));
  RankSave& what = save->what;
  HR_RETURN_IF_ERROR(writer_.Write(what, before.get(), ctx, &outcome->report).status());
  save->loan.Return();

  auto start = Clock::now();
  ctx.deadline = start + options_.publish_timeout;
  if (what.rank == 0) {
    HR_ASSIGN_OR_RETURN(Manifest manifest, PublishRanks(&store_, what.info, options_.level, ctx));
    latest_ = std::make_shared<const Manifest>(std::move(manifest));
    latest_id_ = what.info.id;
  } else {
    HR_RETURN_IF_ERROR(WaitForPublish(&store_, what.info, ctx));
  }
  outcome->publish_ns = NanosSince(start);
  return OkStatus();
}

}  // namespace headrace::checkpoint
