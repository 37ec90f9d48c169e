#include "headrace/loader/cached_reads.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "headrace/base/text.h"
#include "headrace/cache/presence.h"

namespace headrace::loader {
namespace {

// Of the batches under way and the one that is planned, with room for what is delivered meanwhile.
constexpr uint64_t kMostBatchesAhead = 12;

// The URL of a path, in which what URLs read otherwise is written as %XX where they do.
std::string UrlOf(const std::string& path) {
  if (!path.starts_with("http")) return path;
  std::string url;
  for (char c : path) {
    if (c == '%' || c == '?' || c == '#' || c == ' ')
      url += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    else
      url += c;
  }
  return url;
}

// As a shell takes it.
std::string Quoted(const std::string& text) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:=@%+,";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string::npos) return text;
  std::string quoted = "'";
  for (char c : EscapeText(text)) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

cache::CacheCounters Since(cache::CacheCounters now, const cache::CacheCounters& base) {
  auto take = [](Counter* count, const Counter& before) {
    *count = count->value() - before.value();
  };
  take(&now.memory_hits, base.memory_hits);
  take(&now.disk_hits, base.disk_hits);
  take(&now.misses, base.misses);
  take(&now.memory_bytes, base.memory_bytes);
  take(&now.disk_bytes, base.disk_bytes);
  take(&now.origin_bytes, base.origin_bytes);
  take(&now.origin_requests, base.origin_requests);
  take(&now.streamed_bytes, base.streamed_bytes);
  take(&now.waits, base.waits);
  take(&now.hedges, base.hedges);
  take(&now.hedge_bytes, base.hedge_bytes);
  take(&now.prefetched_bytes, base.prefetched_bytes);
  take(&now.unused_bytes, base.unused_bytes);
  return now;
}

// As --cache-dir takes them.
std::string DirectoriesOf(const cache::DiskTier& disks) {
  std::string joined;
  for (const auto& disk : disks.disks())
    joined += (joined.empty() ? "" : ":") + disk->paths().root();
  return joined;
}

}  // namespace

std::unique_ptr<CachedReads> CachedReads::Create(std::shared_ptr<const dataset::Dataset> dataset,
                                                 const Order& order, const BatchPlan& plan,
                                                 const CacheOptions& options) {
  std::shared_ptr<const ShardObjects> objects = FindShardObjects(*dataset);
  if (!objects) return nullptr;
  return std::unique_ptr<CachedReads>(
      new CachedReads(std::move(dataset), order, plan, options, std::move(objects)));
}

cache::CacheCounters CachedReads::Counters() const {
  cache::BlockCache* cache = objects_->store->cache();
  return cache ? cache->counters() : cache::CacheCounters();
}

Status CachedReads::Begin(uint64_t epoch, uint64_t position, const Context& ctx) {
  const uint64_t running = epoch * EpochPositions(plan_) + position;
  bool first;
  {
    MutexLock lock(&mu_);
    if (closed_) return OkStatus();
    first = !begun_;
    // The end of an epoch may be up to a batch behind the rank's last sample.
    if (!first && running >= cursor_ && running - cursor_ < plan_.global_batch()) {
      cursor_ = running;
      if (epoch != epoch_) BeginEpoch(epoch, position, Counters().origin_bytes);
      return OkStatus();
    }
  }
  if (first && options_.require_warm) HR_RETURN_IF_ERROR(CheckWarm(epoch, position, ctx));
  MutexLock lock(&mu_);
  if (closed_) return OkStatus();
  if (first) base_ = Counters();
  begun_ = true;
  Stop();
  Start(epoch, position);
  return OkStatus();
}

void CachedReads::Start(uint64_t epoch, uint64_t position) {
  // Before anything is fetched for this epoch.
  const uint64_t origin_bytes = Counters().origin_bytes;
  cursor_ = epoch * EpochPositions(plan_) + position;
  if (in_memory())
    StartInMemory(epoch, position);
  else
    StartOnDisk(epoch, position);
  if (prefetcher_) prefetcher_->Advance(cursor_);
  BeginEpoch(epoch, position, origin_bytes);
}

cache::PrefetchOptions CachedReads::OptionsOfPlan() const {
  cache::PrefetchOptions options;
  options.limits = limits_;
  options.first_requests = std::min(options.first_requests, limits_.max_requests);
  options.positions_per_epoch = EpochPositions(plan_);
  return options;
}

void CachedReads::StartOnDisk(uint64_t epoch, uint64_t position) {
  cache::BlockCache* cache = objects_->store->cache();
  const uint64_t limit = cache && cache->node() ? cache->node()->limit_bytes() : 0;
  cache::PrefetchOptions options = OptionsOfPlan();
  options.displace = DisplaceFor(order_, plan_, *objects_, limit, options_.node_ranks);
  keeps_all_ = options.displace == cache::Displace::kUnclaimed;
  auto started = cache::Prefetcher::Start(
      objects_->store, MakeReadPlan(order_, plan_, epoch, position, objects_), options);
  // Else the readers fetch what they need themselves.
  if (started.ok()) prefetcher_ = *std::move(started);
}

// Without a plan, or room for it, each sample is read by itself.
void CachedReads::StartInMemory(uint64_t epoch, uint64_t position) {
  cache::BlockCache* cache = objects_->store->cache();
  if (!cache) return;
  HeldShardsOptions held;
  held.shard_bytes = MemoryOfShards(*objects_, cache->memory_limit_bytes());
  held.lead = kMostBatchesAhead * plan_.global_batch();
  lent_bytes_ = cache->Lend(MemoryWanted(order_, plan_, held, epoch, position));
  if (lent_bytes_ == 0) return;
  held.limit_bytes = lent_bytes_;
  cache::PrefetchOptions options = OptionsOfPlan();
  options.memory_bytes = lent_bytes_;
  auto started = cache::Prefetcher::Start(
      objects_->store, MakeHeldPlan(order_, plan_, held, epoch, position, objects_), options);
  if (!started.ok()) return Stop();
  prefetcher_ = *std::move(started);
  MutexLock lock(&held_mu_);
  held_ = std::make_unique<HeldShardTable>(order_, plan_, held, epoch, position);
}

void CachedReads::Stop() {
  {
    MutexLock lock(&held_mu_);
    held_.reset();
  }
  stop_counting_ = true;
  counter_.reset();
  prefetcher_.reset();
  const uint64_t lent = std::exchange(lent_bytes_, 0);
  if (lent > 0) objects_->store->cache()->GiveBack(lent);
}

// Counts what the epoch will have to fetch; in a thread, since objects that are not known yet are
// asked for.
void CachedReads::BeginEpoch(uint64_t epoch, uint64_t position, uint64_t origin_bytes) {
  stop_counting_ = true;
  counter_.reset();
  epoch_ = epoch;
  epoch_origin_base_ = origin_bytes;
  epoch_bytes_ = missing_bytes_ = 0;
  counted_ = stop_counting_ = false;
  if (in_memory()) return CountAll(epoch, position);
  cache::Prefetcher* prefetcher = prefetcher_.get();
  auto started = Thread::Start("hr-cache-count", [this, epoch, position, prefetcher] {
    Count(epoch, position, prefetcher);
  });
  if (started.ok()) counter_ = *std::move(started);
}

// Where there is memory alone, all of it has to be fetched.
void CachedReads::CountAll(uint64_t epoch, uint64_t position) {
  uint64_t bytes = 0;
  for (uint32_t shard : ShardsReadIn(order_, plan_, epoch, position))
    if (!objects_->keys[shard].empty()) bytes += objects_->bytes[shard];
  epoch_bytes_ = missing_bytes_ = bytes;
  counted_ = true;
}

// What is there already is kept for the plan, also what it comes to in the epoch after this one.
void CachedReads::Count(uint64_t epoch, uint64_t position, cache::Prefetcher* prefetcher) {
  Context ctx;
  ctx.cancelled = &stop_counting_;
  const uint64_t length = EpochPositions(plan_);
  ShardReads reads(order_, plan_, epoch, position);
  std::vector<bool> seen(objects_->keys.size());
  ShardRead read;
  while (reads.Next(&read) && read.first_use < (epoch + 2) * length) {
    const std::string& key = objects_->keys[read.shard];
    if (key.empty() || seen[read.shard]) continue;
    seen[read.shard] = true;
    auto found = cache::LookFor(objects_->store.get(), key, ctx, [&](const cache::BlockId& id) {
      if (prefetcher) prefetcher->Keep(id, read.first_use);
    });
    if (stop_counting_) return;
    if (!found.ok()) continue;  // the reader will meet it
    if (read.first_use >= (epoch + 1) * length) continue;
    epoch_bytes_ += found->size_bytes;
    missing_bytes_ += found->missing_bytes();
  }
  if (prefetcher) prefetcher->EndKeep();
  counted_ = true;
}

void CachedReads::Advance(uint64_t epoch, uint64_t position) {
  MutexLock lock(&mu_);
  if (closed_ || !begun_) return;
  cursor_ = epoch * EpochPositions(plan_) + position;
  if (prefetcher_) prefetcher_->Advance(cursor_);
}

void CachedReads::Reach(uint64_t epoch, uint64_t position) {
  MutexLock lock(&mu_);
  const uint64_t running = epoch * EpochPositions(plan_) + position;
  // What is said of an old place is more.
  if (prefetcher_ && running <= cursor_ + kMostBatchesAhead * plan_.global_batch())
    prefetcher_->Reach(running);
}

Caching CachedReads::CachingOf(const Batch& batch, const BatchRow& row) const {
  if (IsForeign(order_, plan_, row.position)) return Caching::kPass;
  if (!in_memory()) return Caching::kKeepIfRoom;
  // What pads the last batch comes from the begin of the epoch, which is not held any more.
  if (row.position < plan_.BatchBegin(batch.index)) return Caching::kPass;
  const uint32_t shard = order_.Locate(row.sample_id).shard;
  MutexLock lock(&held_mu_);
  return held_ && held_->IsHeld(batch.epoch, shard) ? Caching::kKeepIfRoom : Caching::kPass;
}

std::string CachedReads::WarmCommand(uint64_t epoch, const std::string& directory) const {
  const OrderOptions& order = order_.options();
  std::string command = fmt::format(
      "headrace cache warm {} --cache-dir {} --epoch {} --ranks {} --world-size {} "
      "--seed {} --global-batch-size {} --tail {}",
      Quoted(UrlOf(dataset_->path())), Quoted(directory), epoch, plan_.rank(), plan_.world_size(),
      order.seed, plan_.global_batch(), TailName(plan_.tail()));
  if (!order.shuffle) return command + " --no-shuffle";
  return command + fmt::format(" --lanes {} --window {}", order.lanes, order.window_shards);
}

Status CachedReads::CheckWarm(uint64_t epoch, uint64_t position, const Context& ctx) const {
  cache::BlockCache* cache = objects_->store->cache();
  if (!cache || !cache->node() || !cache->node()->healthy())
    return Status(Code::kFailedPrecondition,
                  "require_warm: there is no cache on disk that works; see `headrace cache stat`");
  uint64_t bytes = 0, missing = 0;
  for (uint32_t shard : ShardsReadIn(order_, plan_, epoch, position)) {
    const std::string& key = objects_->keys[shard];
    if (key.empty()) continue;
    HR_ASSIGN_OR_RETURN(cache::Presence found, cache::LookFor(objects_->store.get(), key, ctx));
    bytes += found.size_bytes;
    missing += found.missing_bytes();
  }
  if (missing == 0) return OkStatus();
  const std::string directory = DirectoriesOf(*cache->node());
  return Error(Code::kFailedPrecondition,
               "require_warm: {} bytes of the {} that rank {} reads in epoch {} are not in the "
               "cache {}: bring them with `{}`, or start without require_warm",
               missing, bytes, plan_.rank(), epoch, EscapeText(directory),
               WarmCommand(epoch, directory));
}

uint64_t CachedReads::ChangeLimit(LiveSetting setting, uint64_t value) {
  MutexLock lock(&mu_);
  uint64_t before = value;
  if (setting == LiveSetting::kPrefetchBytes) before = std::exchange(limits_.ahead_bytes, value);
  if (setting == LiveSetting::kPrefetchInFlight)
    before = std::exchange(limits_.in_flight_bytes, value);
  if (setting == LiveSetting::kPrefetchRequests)
    before = std::exchange(limits_.max_requests, static_cast<uint32_t>(value));
  if (prefetcher_) prefetcher_->SetLimits(limits_);
  return before;
}

cache::PrefetchLimits CachedReads::limits() const {
  MutexLock lock(&mu_);
  return limits_;
}

CacheStats CachedReads::stats() const {
  CacheStats stats;
  MutexLock lock(&mu_);
  stats.has_cache = true;
  stats.in_memory = in_memory();
  if (!begun_) return stats;
  const cache::CacheCounters now = Counters();
  stats.has_plan = prefetcher_ != nullptr;
  stats.keeps_all = keeps_all_;
  stats.epoch = epoch_;
  stats.epoch_bytes = epoch_bytes_;
  if (counted_) stats.expected_origin_bytes = missing_bytes_.load();
  stats.epoch_origin_bytes = now.origin_bytes - epoch_origin_base_;
  cache::BlockCache* cache = objects_->store->cache();
  stats.limit_bytes = cache && cache->node() ? cache->node()->limit_bytes() : 0;
  stats.share_bytes = ShareOfCache(order_, plan_, stats.limit_bytes, options_.node_ranks);
  stats.cache = Since(now, base_);
  if (prefetcher_) stats.prefetch = prefetcher_->counters();
  return stats;
}

void CachedReads::Close() {
  MutexLock lock(&mu_);
  closed_ = true;
  Stop();
}

}  // namespace headrace::loader
