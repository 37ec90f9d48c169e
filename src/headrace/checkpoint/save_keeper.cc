#include "headrace/checkpoint/save_keeper.h"

#include <algorithm>
#include <utility>

#include "headrace/checkpoint/assemble.h"
#include "headrace/checkpoint/parallel.h"
#include "headrace/checkpoint/prune.h"
#include "headrace/checkpoint/publisher.h"
#include "headrace/object/pause.h"

namespace headrace::checkpoint {
namespace {

using Clock = Context::Clock;
using std::chrono::milliseconds;

uint64_t NanosSince(Clock::time_point start) {
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count());
}

}  // namespace

SaveKeeper::SaveKeeper(Tiers tiers, const KeeperOptions& options)
    : tiers_(std::move(tiers)), options_(options) {
  // Who does not drain looks at the first tier alone, which one thread does for all.
  for (size_t i = first_rank() ? 1 : tiers_.size() - 1; i > 0 && i < tiers_.size(); ++i) {
    auto route = std::make_unique<Route>();
    route->to = tiers_[i].get();
    if (first_rank()) route->drain = std::make_unique<Drain>(near(), route->to, options_.drain);
    routes_.push_back(std::move(route));
  }
}

Result<std::unique_ptr<SaveKeeper>> SaveKeeper::Start(Tiers tiers, const KeeperOptions& options) {
  if (tiers.empty() || tiers.size() > 3)
    return Error(Code::kInvalidArgument, "{} durable tiers were given: one to three are kept",
                 tiers.size());
  std::unique_ptr<SaveKeeper> keeper(new SaveKeeper(std::move(tiers), options));
  HR_ASSIGN_OR_RETURN(keeper->saver_,
                      Thread::Start("hr-save", [raw = keeper.get()] { raw->SaveLoop(); }));
  for (const auto& route : keeper->routes_) {
    const char* name = route->to->spare ? "hr-drain-peer" : "hr-drain";
    HR_ASSIGN_OR_RETURN(route->thread, Thread::Start(name, [raw = keeper.get(), to = route.get()] {
                          raw->DrainLoop(to);
                        }));
  }
  return keeper;
}

SaveKeeper::~SaveKeeper() {
  stopping_ = true;
  {
    MutexLock lock(&mu_);
    changed_.NotifyAll();
  }
  for (const auto& route : routes_) route->thread.reset();
  saver_.reset();
}

std::vector<Drain*> SaveKeeper::drains() const {
  std::vector<Drain*> all;
  for (const auto& route : routes_)
    if (route->drain != nullptr) all.push_back(route->drain.get());
  return all;
}

Context SaveKeeper::Within() const {
  Context ctx;
  ctx.cancelled = &stopping_;
  return ctx;
}

uint64_t SaveKeeper::epoch() {
  MutexLock lock(&mu_);
  return epoch_;
}

Status SaveKeeper::Begin(uint64_t epoch) {
  const uint64_t present = this->epoch();
  if (epoch < present)
    return Error(Code::kFailedPrecondition,
                 "another process has taken over: it has epoch {}, this one has {}", present,
                 epoch);
  Status taken = near()->store.CheckEpoch(epoch, Within());
  if (taken.code() == Code::kFailedPrecondition && !first_rank())
    return std::move(taken).Prefix(
        "rank 0 has not the same folders as this rank (ranks on several nodes need tiers that they "
        "share), or somebody else has come");
  HR_RETURN_IF_ERROR(taken);
  MutexLock lock(&mu_);
  epoch_ = std::max(epoch_, epoch);
  WakeDrains();
  return OkStatus();
}

// --- memory --------------------------------------------------------------------------------------

Status SaveKeeper::MakeArena(uint64_t bytes, int threads) {
  if (auto present = this->arena(); present != nullptr && present->size() >= bytes)
    return OkStatus();
  Finish();
  {
    MutexLock lock(&mu_);
    for (auto& [number, record] : records_) record.kept.reset();
    arena_.reset();
  }
  HR_ASSIGN_OR_RETURN(std::shared_ptr<Arena> arena, Arena::Create(bytes, threads));
  MutexLock lock(&mu_);
  arena_ = std::move(arena);
  return OkStatus();
}

std::shared_ptr<Arena> SaveKeeper::arena() {
  MutexLock lock(&mu_);
  return arena_;
}

// The loan comes back when nobody reads from it any more.
bool SaveKeeper::GiveUpOldest() {
  std::shared_ptr<KeptSave> given_up;
  MutexLock lock(&mu_);
  for (auto& [number, record] : records_) {
    if (record.kept == nullptr || !record.ended) continue;
    given_up = std::move(record.kept);
    return true;
  }
  return false;
}

Result<Arena::Loan> SaveKeeper::Borrow(uint64_t bytes) {
  const std::shared_ptr<Arena> arena = this->arena();
  if (arena == nullptr) return Status(Code::kFailedPrecondition, "no arena was made yet");
  Context at_once;
  at_once.deadline = Clock::time_point::min();
  for (;;) {
    Result<Arena::Loan> loan = arena->Borrow(bytes, at_once);
    if (loan.status().code() != Code::kDeadlineExceeded) return loan;
    if (!GiveUpOldest()) return loan;
  }
}

Result<uint64_t> SaveKeeper::Submit(RankSave save, Arena::Loan loan, std::shared_ptr<Arena> arena) {
  auto kept = std::make_shared<KeptSave>();
  kept->arena = std::move(arena);
  kept->loan = std::move(loan);
  kept->save = std::move(save);
  kept->files = std::make_unique<MemoryFiles>(kept->loan.bytes());
  MutexLock lock(&mu_);
  const SaveId& id = kept->save.info.id;
  if (id.epoch != epoch_)
    return Error(Code::kFailedPrecondition,
                 "another process has taken over: it has epoch {}, the save is of {}", epoch_,
                 id.epoch);
  Record record;
  record.status.id = id;
  record.kept = std::move(kept);
  const uint64_t number = next_++;
  records_[number] = std::move(record);
  queue_.push_back(number);
  Forget();
  changed_.NotifyAll();
  return number;
}

void SaveKeeper::Forget() {
  for (auto at = records_.begin(); at != records_.end() && records_.size() > options_.remembered;) {
    const bool forgotten = at->second.ended && at->second.kept == nullptr;
    at = forgotten ? records_.erase(at) : std::next(at);
  }
}

Result<KeptStatus> SaveKeeper::Look(uint64_t number) {
  MutexLock lock(&mu_);
  auto at = records_.find(number);
  if (at == records_.end()) return Error(Code::kNotFound, "no save {} is known here", number);
  return at->second.status;
}

size_t SaveKeeper::pending() {
  MutexLock lock(&mu_);
  return queue_.size();
}

std::vector<std::shared_ptr<const KeptSave>> SaveKeeper::InMemory() {
  MutexLock lock(&mu_);
  std::vector<std::shared_ptr<const KeptSave>> saves;
  for (const auto& [number, record] : records_)
    if (record.kept != nullptr && record.sealed && record.kept->arena == arena_)
      saves.push_back(record.kept);
  return saves;
}

uint64_t SaveKeeper::first_unready() {
  MutexLock lock(&mu_);
  for (uint64_t number : queue_) {
    const Record& record = records_.at(number);
    if (!record.sealed || record.kept->save.info.world_size > 1) return number;
  }
  return 0;
}

uint64_t SaveKeeper::first_pending() {
  MutexLock lock(&mu_);
  return queue_.empty() ? 0 : queue_.front();
}

std::optional<SaveKeeper::Shared> SaveKeeper::waiting_for_ranks() {
  MutexLock lock(&mu_);
  if (queue_.empty()) return std::nullopt;
  const SaveInfo& info = records_.at(queue_.front()).kept->save.info;
  if (info.world_size == 1) return std::nullopt;
  return Shared{info.id, info.world_size};
}

bool SaveKeeper::Holds(const SaveId& id) {
  MutexLock lock(&mu_);
  return std::any_of(records_.begin(), records_.end(), [&id](const auto& one) {
    return one.second.status.id == id && one.second.status.failed.ok();
  });
}

void SaveKeeper::Finish() {
  MutexLock lock(&mu_);
  while (!queue_.empty() && !stopping_) changed_.Wait(&mu_);
}

uint64_t SaveKeeper::newest() {
  MutexLock lock(&mu_);
  return next_ - 1;
}

bool SaveKeeper::idle() {
  MutexLock lock(&mu_);
  return queue_.empty() && std::all_of(routes_.begin(), routes_.end(), [](const auto& route) {
           return (!route->to_drain && !route->draining) || (route->to->spare && route->failed);
         });
}

// --- to the first tier ---------------------------------------------------------------------------

void SaveKeeper::SaveLoop() {
  for (;;) {
    uint64_t number = 0;
    std::shared_ptr<KeptSave> kept;
    KeptStatus status;
    {
      MutexLock lock(&mu_);
      while (queue_.empty() && !stopping_) changed_.Wait(&mu_);
      if (stopping_) return;
      number = queue_.front();
      Record& record = records_.at(number);
      kept = record.kept;
      status = record.status;
      status.queued_ns = NanosSince(record.came);
    }
    status.failed = Do(number, kept.get(), &status);
    if (status.failed.ok()) status.level = near()->level;
    const uint64_t epoch = status.id.epoch;
    const bool published = status.failed.ok();
    kept.reset();
    End(number, std::move(status));
    // What cannot be removed now will be after the next save.
    if (published && first_rank()) (void)PruneTier(near(), epoch, Within());
  }
}

void SaveKeeper::MarkSealed(uint64_t number) {
  MutexLock lock(&mu_);
  records_.at(number).sealed = true;
}

void SaveKeeper::End(uint64_t number, KeptStatus status) {
  MutexLock lock(&mu_);
  Record& record = records_.at(number);
  record.status = std::move(status);
  record.ended = true;
  queue_.pop_front();
  WakeDrains();
}

Status SaveKeeper::Do(uint64_t number, KeptSave* kept, KeptStatus* status) {
  Context ctx = Within();
  HR_ASSIGN_OR_RETURN(RankManifest manifest, Seal(kept, &status->report, ctx));
  MarkSealed(number);
  HR_RETURN_IF_ERROR(near()->store.CheckEpoch(status->id.epoch, ctx));
  HR_RETURN_IF_ERROR(Copy(*kept, manifest, &status->report, ctx));
  const auto start = Clock::now();
  ctx.deadline = start + options_.publish_timeout;
  HR_RETURN_IF_ERROR(Publish(*kept, ctx));
  status->publish_ns = NanosSince(start);
  return OkStatus();
}

// Hashes all, and makes the files in memory.
Result<RankManifest> SaveKeeper::Seal(KeptSave* kept, WriteReport* report, const Context& ctx) {
  const std::shared_ptr<const Manifest> before =
      options_.write.reuse ? ManifestBefore(kept->save.info.kind, ctx) : nullptr;
  RankWriter writer(kept->files.get(), options_.write);
  HR_ASSIGN_OR_RETURN(RankManifest manifest, writer.Write(kept->save, before.get(), ctx, report));
  kept->entry.id = kept->save.info.id;
  if (kept->save.info.world_size == 1) HR_RETURN_IF_ERROR(SealWhole(manifest, kept));
  return manifest;
}

// Of one rank: its manifest is that of the checkpoint.
Status SaveKeeper::SealWhole(const RankManifest& manifest, KeptSave* kept) {
  Assembler assembler(manifest.info.id, 1);
  HR_RETURN_IF_ERROR(assembler.Add(manifest));
  HR_ASSIGN_OR_RETURN(Manifest whole, assembler.Finish());
  HR_ASSIGN_OR_RETURN(kept->manifest, EncodeManifest(whole));
  CatalogEntry& entry = kept->entry;
  entry.manifest_bytes = kept->manifest.size();
  entry.manifest_hash = HashOf(AsBytes(kept->manifest));
  entry.manifest = ManifestKey(entry.id, entry.manifest_hash);
  entry.level = Level::kMemory;
  entry.kind = whole.info.kind;
  entry.published_ns = whole.info.finished_ns;
  entry.data_bytes = whole.data_bytes();
  for (const FileEntry& file : whole.files) entry.new_bytes += file.carried ? 0 : file.bytes;
  return OkStatus();
}

// What was published last, for finding what has not changed since; null: nothing, or it cannot be
// read just now. A light one has too little for a full save.
std::shared_ptr<const Manifest> SaveKeeper::ManifestBefore(const std::string& kind,
                                                           const Context& ctx) {
  auto catalog = near()->store.Read(ctx);
  if (!catalog.ok() || catalog->entries.empty()) return nullptr;
  size_t at = catalog->entries.size() - 1;
  if (kind != "light")
    while (at > 0 && catalog->entries[at].kind == "light") --at;
  const CatalogEntry& newest = catalog->entries[at];
  if (latest_ != nullptr && latest_id_ == newest.id) return latest_;
  auto manifest = near()->store.ReadManifest(newest, ctx);
  if (!manifest.ok()) return nullptr;
  latest_ = std::make_shared<const Manifest>(*std::move(manifest));
  latest_id_ = newest.id;
  return latest_;
}

Status SaveKeeper::Copy(const KeptSave& kept, const RankManifest& manifest, WriteReport* report,
                        const Context& ctx) {
  std::vector<std::string> keys;
  uint64_t bytes = 0;
  for (const FileEntry& file : manifest.files) {
    if (file.carried) continue;
    keys.push_back(file.DataKey());
    keys.push_back(file.SumsKey());
    bytes += file.bytes;
  }
  DataFiles* to = near()->files.get();
  auto copy = [&](const std::string& key) -> Status {
    HR_ASSIGN_OR_RETURN(MemoryFiles::Parts file, kept.files->PartsOf(key));
    return to->Write(key, file.parts, ctx).status();
  };
  auto start = Clock::now();
  // Beside the data: checksums and manifests.
  HR_RETURN_IF_ERROR(to->CheckRoom(bytes + bytes / 1024 + (1 << 20), ctx));
  HR_RETURN_IF_ERROR(
      ForEach(keys.size(), options_.write_threads, [&](size_t i) { return copy(keys[i]); }));
  report->write_ns = NanosSince(start);
  start = Clock::now();
  // The data first: what names them must not be durable before.
  HR_RETURN_IF_ERROR(to->Sync(ctx));
  if (manifest.info.world_size > 1) {
    HR_RETURN_IF_ERROR(copy(RankManifestKey(manifest.info.id, manifest.rank)));
    HR_RETURN_IF_ERROR(to->Sync(ctx));
  }
  report->sync_ns = NanosSince(start);
  return OkStatus();
}

Status SaveKeeper::Publish(const KeptSave& kept, const Context& ctx) {
  const SaveInfo& info = kept.save.info;
  if (!first_rank()) return WaitForPublish(&near()->store, info, ctx);
  Result<Manifest> manifest = [&]() -> Result<Manifest> {
    if (info.world_size > 1) return PublishRanks(&near()->store, info, near()->level, ctx);
    HR_ASSIGN_OR_RETURN(Manifest whole, DecodeManifest(AsBytes(kept.manifest), "the manifest"));
    whole.info.stall_ns = info.stall_ns;
    whole.info.restore_ns = info.restore_ns;
    HR_RETURN_IF_ERROR(near()->store.Publish(info.id.epoch, whole, near()->level, ctx));
    return whole;
  }();
  HR_RETURN_IF_ERROR(manifest.status());
  latest_ = std::make_shared<const Manifest>(*std::move(manifest));
  latest_id_ = info.id;
  return OkStatus();
}

Status SaveKeeper::PruneTier(Tier* tier, uint64_t epoch, const Context& ctx) {
  if (options_.keep_last == 0) return OkStatus();
  RetentionRules rules;
  rules.keep_last = options_.keep_last;
  rules.keep_every = options_.keep_every;
  rules.level = tier->level;
  auto in_use = [&](const SaveId& id) {
    const std::vector<Drain*> all = tier == near() ? drains() : std::vector<Drain*>();
    return std::any_of(all.begin(), all.end(), [&id](Drain* drain) { return drain->InUse(id); });
  };
  HR_ASSIGN_OR_RETURN(PrunePlan plan, PlanPrune(&tier->store, rules, ctx, in_use));
  return Prune(&tier->store, epoch, plan, ctx);
}

// --- to the tiers behind -------------------------------------------------------------------------

void SaveKeeper::WakeDrains() {
  for (const auto& route : routes_) route->to_drain = true;
  changed_.NotifyAll();
}

void SaveKeeper::DrainLoop(Route* route) {
  milliseconds pause = options_.first_pause;
  for (;;) {
    uint64_t epoch = 0;
    {
      MutexLock lock(&mu_);
      route->draining = false;
      while (!stopping_ && !(route->to_drain && epoch_ > 0)) changed_.Wait(&mu_);
      if (stopping_) return;
      epoch = epoch_;
      route->to_drain = false;
      route->draining = true;
    }
    bool more = false;
    const Status done =
        route->drain != nullptr ? DrainOnce(*route, epoch, &more) : WatchOnce(&more);
    const bool at_once = done.ok() && more && first_rank();
    if (at_once || (done.ok() && !more)) pause = options_.first_pause;
    MutexLock lock(&mu_);
    route->failed = !done.ok();
    if (done.ok() && !more) continue;
    // Who was shut out has nothing to do until it has a new epoch.
    const bool shut_out = done.code() == Code::kFailedPrecondition;
    if (!shut_out || epoch_ != epoch) route->to_drain = true;
    if (at_once || shut_out) continue;
    const auto until = Clock::now() + pause;
    pause = std::min(pause * 2, options_.longest_pause);
    while (!stopping_ && epoch_ == epoch && Clock::now() < until)
      changed_.WaitFor(&mu_, until - Clock::now());
  }
}

std::vector<SaveId> SaveKeeper::Undrained() {
  MutexLock lock(&mu_);
  std::vector<SaveId> ids;
  for (const auto& [number, record] : records_)
    if (record.ended && record.status.failed.ok() && record.status.level < tiers_.back()->level)
      ids.push_back(record.status.id);
  return ids;
}

void SaveKeeper::MarkDrained(const SaveId& id, Level level) {
  MutexLock lock(&mu_);
  for (auto& [number, record] : records_)
    if (record.status.id == id && record.ended)
      record.status.level = std::max(record.status.level, level);
}

void SaveKeeper::MarkLeftOut(const SaveId& id, const Status& why) {
  MutexLock lock(&mu_);
  for (auto& [number, record] : records_)
    if (record.status.id == id && record.ended && record.status.level < tiers_.back()->level)
      record.status.failed = why;
}

Status SaveKeeper::DrainOnce(const Route& route, uint64_t epoch, bool* more) {
  const std::vector<SaveId> before = Undrained();
  auto drained = route.drain->Next(epoch, Within());
  // What takes the room may be what could not be removed the last time.
  if (drained.status().code() == Code::kResourceExhausted)
    (void)PruneTier(route.to, epoch, Within());
  HR_RETURN_IF_ERROR(drained.status());
  if (*drained) {
    MarkDrained(**drained, route.to->level);
    (void)PruneTier(route.to, epoch, Within());
    *more = true;
    return OkStatus();
  }
  // Nothing is left to copy: what has not come there by now never will. It may yet come to a tier
  // behind a spare one.
  if (before.empty()) return OkStatus();
  HR_ASSIGN_OR_RETURN(Catalog catalog, near()->store.Read(Within()));
  for (const SaveId& id : before) {
    const CatalogEntry* entry = catalog.Find(id);
    if (entry != nullptr) MarkDrained(id, entry->level);  // perhaps another process did it
    if (route.to->spare || (entry != nullptr && entry->level >= route.to->level)) continue;
    auto damaged = route.drain->Damaged(id);
    MarkLeftOut(id, damaged ? *damaged
                            : Error(Code::kFailedPrecondition,
                                    "{} was removed here, or a newer one came first, before it was "
                                    "drained to {}",
                                    id.Text(), route.to->store.name()));
  }
  return OkStatus();
}

// Of ranks that do not drain: looks whether the first one has.
Status SaveKeeper::WatchOnce(bool* more) {
  const std::vector<SaveId> before = Undrained();
  if (before.empty()) return OkStatus();
  HR_ASSIGN_OR_RETURN(Catalog catalog, near()->store.Read(Within()));
  for (const SaveId& id : before) {
    const CatalogEntry* entry = catalog.Find(id);
    if (entry == nullptr) {
      MarkLeftOut(
          id, Error(Code::kFailedPrecondition, "{} was removed here before it was drained to {}",
                    id.Text(), tiers_.back()->store.name()));
      continue;
    }
    MarkDrained(id, entry->level);
    if (entry->level < tiers_.back()->level) *more = true;
  }
  return OkStatus();
}

}  // namespace headrace::checkpoint
