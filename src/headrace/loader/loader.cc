#include "headrace/loader/loader.h"

#include <algorithm>
#include <array>

#include "headrace/loader/live_settings.h"
#include "headrace/loader/loader_impl.h"

namespace headrace::loader {

Status LoaderImpl::CheckUsable() const {
  if (InForkedChild())
    return Error(Code::kFailedPrecondition,
                 "this loader was started before fork(); its threads do not exist in this process. "
                 "Make the loader after the fork, or start the process with spawn or forkserver");
  if (stopping_.load()) return Error(Code::kCancelled, "the loader is closed");
  return OkStatus();
}

// Starts the threads that do not run yet: the system may have refused some at an earlier call.
Status LoaderImpl::StartWorkers() {
  MutexLock starting(&threads_mu_);
  if (stopping_.load()) return Error(Code::kCancelled, "the loader is closed");
  for (int i = static_cast<int>(workers_.size()); i < threads(); ++i) {
    auto made = std::make_unique<Worker>();
    made->number = i;
    made->loader = std::make_unique<RowLoader>(rows_, &made->recorder);
    MutexLock lock(&mu_);
    workers_.push_back(std::move(made));
  }
  for (auto& worker : workers_) {
    Worker* w = worker.get();
    if (w->thread) continue;
    HR_ASSIGN_OR_RETURN(w->thread, Thread::Start("hr-loader", [this, w] { Run(w); }));
  }
  return OkStatus();
}

std::vector<SettingValue> LoaderImpl::settings() const {
  std::vector<SettingValue> all;
  const cache::PrefetchLimits limits = cached_ ? cached_->limits() : cache::PrefetchLimits();
  // In the order of LiveSetting.
  const std::array<uint64_t, kNumLiveSettings> values = {static_cast<uint64_t>(threads()),
                                                         limits.ahead_bytes, limits.in_flight_bytes,
                                                         limits.max_requests};
  for (const LiveSettingInfo& info : AllLiveSettings())
    if (cached_ || !info.of_cache)
      all.push_back(BoundsOf(info, options_, values[static_cast<size_t>(info.setting)]));
  return all;
}

Result<uint64_t> LoaderImpl::ChangeSetting(std::string_view name, uint64_t value) {
  HR_RETURN_IF_ERROR(CheckUsable());
  HR_ASSIGN_OR_RETURN(LiveSetting setting,
                      CheckLiveSetting(name, value, options_, cached_ != nullptr));
  if (setting == LiveSetting::kThreads) return SetThreads(static_cast<int>(value));
  return cached_->ChangeLimit(setting, value);
}

Result<uint64_t> LoaderImpl::SetThreads(int threads) {
  int before;
  bool begun;
  {
    MutexLock lock(&mu_);
    before = active_threads_.exchange(threads, std::memory_order_relaxed);
    begun = begun_;
    work_cv_.NotifyAll();
  }
  if (begun) HR_RETURN_IF_ERROR(StartWorkers());
  return static_cast<uint64_t>(before);
}

void LoaderImpl::Restart(uint64_t epoch, uint64_t batch) {
  ++generation_;
  in_flight_.clear();
  plan_error_ = OkStatus();
  plan_epoch_ = epoch;
  plan_batch_ = batch;
}

Status LoaderImpl::Begin(uint64_t epoch, uint64_t position) {
  HR_RETURN_IF_ERROR(CheckUsable());
  if (position % plan_.global_batch() != 0)
    return Error(Code::kInvalidArgument, "position {} is not a multiple of the global batch of {}",
                 position, plan_.global_batch());
  MutexLock consumer(&consumer_mu_);
  uint64_t batch = position / plan_.global_batch();
  loop_.Begin(NowNanos());
  if (cached_) HR_RETURN_IF_ERROR(cached_->Begin(epoch, position, worker_context_));
  {
    MutexLock lock(&mu_);
    bool there = begun_ && !in_flight_.empty() && in_flight_.front()->batch->epoch == epoch &&
                 in_flight_.front()->batch->index == batch;
    if (!there) Restart(epoch, batch);
    epoch_ = epoch;
    batch_ = batch;
    epoch_ended_ = false;
    begun_ = true;
    work_cv_.NotifyAll();
  }
  return StartWorkers();
}

// Has the consumer's ValueMemory place the values of planned batches. True when it did something.
bool LoaderImpl::PlaceValues() {
  std::vector<std::shared_ptr<Slot>> waiting;
  {
    MutexLock lock(&mu_);
    for (const auto& slot : in_flight_)
      if (!slot->has_memory) waiting.push_back(slot);
  }
  for (const auto& slot : waiting) {
    bool placed = options_.value_memory->Place(slot->batch.get());
    MutexLock lock(&mu_);
    slot->has_memory = placed;
    slot->bytes = std::max(slot->bytes, slot->batch->memory_bytes());  // places may be roomy
    if (!placed) {
      plan_error_ = Error(Code::kResourceExhausted, "no memory for the values of a batch: {} bytes",
                          slot->batch->ValueBytes());
      in_flight_.clear();
      ++generation_;
    }
    work_cv_.NotifyAll();
    if (!placed) return true;
  }
  return !waiting.empty();
}

Result<std::shared_ptr<Batch>> LoaderImpl::Next(const Context& ctx) {
  HR_RETURN_IF_ERROR(CheckUsable());
  MutexLock consumer(&consumer_mu_);
  // A call that runs into its deadline is followed by another: the wait began with the first.
  const uint64_t asked_ns = NowNanos();
  loop_.Ask(asked_ns);
  last_use_ns_.store(asked_ns, std::memory_order_relaxed);
  std::shared_ptr<Slot> slot;
  const bool place_values = options_.value_memory && has_values_;
  while (!slot) {
    if (place_values) PlaceValues();
    MutexLock lock(&mu_);
    if (!begun_) return Error(Code::kFailedPrecondition, "Next() before Begin()");
    if (batch_ >= plan_.num_batches()) {
      epoch_ended_ = true;
      loop_.EndEpoch();
      return std::shared_ptr<Batch>();
    }
    if (HeadIsReady()) {
      slot = std::move(in_flight_.front());
      in_flight_.pop_front();
      ++batch_;
      work_cv_.NotifyAll();
      break;
    }
    if (in_flight_.empty() && !plan_error_.ok()) return plan_error_;
    if (stopping_.load()) return Error(Code::kCancelled, "the loader is closed");
    if (place_values && !in_flight_.empty() && !in_flight_.back()->has_memory) continue;
    HR_RETURN_IF_ERROR(ctx.Check());
    auto left = ctx.deadline == Context::Clock::time_point::max()
                    ? std::chrono::nanoseconds(std::chrono::seconds(1))
                    : std::chrono::nanoseconds(ctx.deadline - Context::Clock::now());
    ready_cv_.WaitFor(&mu_, std::max(left, std::chrono::nanoseconds(0)));
  }
  Status status = Finish(slot.get());
  BookDelivery(*slot);
  if (!status.ok()) return status;
  return std::move(slot->batch);
}

namespace {

// What a batch went through. What came before the trace was on is not known.
void TraceBatch(const Slot& slot, uint64_t now) {
  TraceEvent event;
  event.kind = TraceKind::kBatch;
  event.id = TraceBatchId(slot.batch->epoch, slot.batch->index);
  event.amount = slot.batch->num_rows;
  event.times = {slot.planned_ns, slot.admitted_ns, slot.loaded_ns, now};
  Trace(event);
}

}  // namespace

void LoaderImpl::BookDelivery(const Slot& slot) {
  const Batch& batch = *slot.batch;
  const uint64_t now = NowNanos();
  loop_.Deliver(now, TraceBatchId(batch.epoch, batch.index));
  if (TraceIsOn()) TraceBatch(slot, now);
  if (cached_) cached_->Advance(batch.epoch, plan_.BatchBegin(batch.index + 1));
  MutexLock lock(&mu_);
  ++counts_.delivered_batches;
  counts_.delivered_samples += batch.num_rows;
  counts_.bad_samples = budget_.num_bad();
}

// Applies the bad-sample policy to a finished batch, in row order.
Status LoaderImpl::Finish(Slot* slot) {
  Batch* batch = slot->batch.get();
  std::stable_sort(slot->bad.begin(), slot->bad.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  for (auto& [row, sample] : slot->bad) batch->bad_samples.push_back(std::move(sample));
  const uint64_t rows = batch->num_rows;
  const Status* last = batch->bad_samples.empty() ? nullptr : &batch->bad_samples.back().reason;
  HR_RETURN_IF_ERROR(quarantine_.Append(batch->bad_samples, options_.on_error));
  if (!batch->error.ok()) {
    (void)budget_.Book(rows, batch->bad_samples.size(), last);
    return batch->error;
  }
  HR_RETURN_IF_ERROR(budget_.Book(rows, batch->bad_samples.size(), last));
  if (!batch->bad_samples.empty()) batch->DropEmptyRows();
  return OkStatus();
}

LoaderState LoaderImpl::state() const {
  MutexLock lock(&mu_);
  LoaderState state;
  state.dataset_version = rows_->dataset->version();
  state.seed = options_.order.seed;
  // A rank without rows in the last global batch passes it when Next() says that the epoch is over.
  const StreamPoint point =
      plan_.PointAfter(epoch_, epoch_ended_ ? plan_.num_global_batches() : batch_);
  state.epoch = point.epoch;
  state.next_position = plan_.BatchBegin(point.batch);
  state.global_batch = plan_.global_batch();
  state.shuffle = options_.order.shuffle;
  state.lanes = options_.order.lanes;
  state.window_shards = options_.order.window_shards;
  state.tail = options_.tail;
  return state;
}

Status LoaderImpl::LoadSubstitute(Batch* batch, uint64_t r, Status reason, const Context& ctx) {
  HR_RETURN_IF_ERROR(CheckUsable());
  MutexLock consumer(&consumer_mu_);
  reason = PlaceFault(batch->rows[r], std::move(reason));
  std::vector<BadSample> bad;
  Status status =
      consumer_loader_->LoadSubstitute(batch, r, options_.order.seed, std::move(reason), &bad, ctx);
  consumer_decodes_.Store(consumer_loader_->decode_counts());
  Status booked = BookBad(bad);
  return status.ok() ? booked : status;
}

// Adds where the field that the consumer found bad lies.
Status LoaderImpl::PlaceFault(const BatchRow& row, Status reason) {
  if (!consumer_loader_) consumer_loader_ = std::make_unique<RowLoader>(rows_, &consumer_recorder_);
  Location where = consumer_loader_->Where(row.sample_id, reason.location().field);
  return std::move(reason).At(std::move(where));
}

// Books bad samples of a batch that was delivered already.
Status LoaderImpl::BookBad(const std::vector<BadSample>& bad) {
  HR_RETURN_IF_ERROR(quarantine_.Append(bad, options_.on_error));
  Status status = budget_.Book(0, bad.size(), bad.empty() ? nullptr : &bad.back().reason);
  MutexLock lock(&mu_);
  counts_.bad_samples = budget_.num_bad();
  return status;
}

Status LoaderImpl::BookSkipped(const Batch& batch, uint64_t r, Status reason) {
  HR_RETURN_IF_ERROR(CheckUsable());
  MutexLock consumer(&consumer_mu_);
  const BatchRow& row = batch.rows[r];
  return BookBad({{batch.epoch, row.position, row.sample_id, std::nullopt,
                   PlaceFault(row, std::move(reason))}});
}

LoaderStats LoaderImpl::stats() const {
  CacheStats cache = cached_ ? cached_->stats() : CacheStats();
  MutexLock lock(&mu_);
  LoaderStats stats = counts_;
  stats.cache = cache;
  for (const auto& worker : workers_) {
    worker->recorder.AddTo(&stats.worker_stages);
    worker->decodes.AddTo(&stats.decodes);
  }
  const uint64_t now = NowNanos();  // behind the figures: see StageRecorder::LifeNs
  for (const auto& worker : workers_) {
    stats.workers.thread_ns += worker->recorder.LifeNs(now);
    stats.workers.threads += worker->recorder.IsLive() && MayWork(*worker) ? 1 : 0;
  }
  loop_.AddTo(now, &stats.loop_stages);
  stats.loop.thread_ns = loop_.LifeNs(now);
  stats.loop.threads = loop_.IsLive() ? 1 : 0;
  const LoopClock::Totals loop = loop_.totals(now);
  stats.wait_ns = loop.wait_ns;
  stats.step_ns = loop.step_ns;
  stats.first_batch_ns = loop.first_batch_ns;
  consumer_recorder_.AddTo(&stats.stages);
  for (size_t i = 0; i < kNumStages; ++i) {
    stats.stages[i].Add(stats.worker_stages[i]);
    stats.stages[i].Add(stats.loop_stages[i]);
  }
  consumer_decodes_.AddTo(&stats.decodes);
  stats.seek_points = rows_->read.learn_seek_points->Load();
  stats.memory_bytes = InFlightBytes();
  stats.peak_memory_bytes = std::max(peak_bytes_, stats.memory_bytes);
  for (const auto& slot : in_flight_) stats.ready_batches += slot->rows_left == 0;
  return stats;
}

void LoaderImpl::Close() {
  if (InForkedChild()) return;  // the threads, perhaps holding the lock, exist in the parent only
  {
    MutexLock lock(&mu_);
    stopping_.store(true);
    work_cv_.NotifyAll();
    ready_cv_.NotifyAll();
  }
  MutexLock joining(&threads_mu_);
  for (auto& worker : workers_) worker->thread.reset();
  if (cached_) cached_->Close();
  MutexLock lock(&mu_);
  if (loop_.IsLive()) loop_.Close(NowNanos());
  in_flight_.clear();
  pool_->Shrink();
}

void LoaderDeleter::operator()(Loader* loader) const {
  if (!loader->InForkedChild()) delete loader;
}

Result<LoaderPtr> Loader::Create(std::shared_ptr<const dataset::Dataset> dataset,
                                 LoaderOptions options) {
  if (options.threads < 1 || options.threads > 1024)
    return Error(Code::kInvalidArgument, "threads: expected 1 to 1024, found {}", options.threads);
  options.max_threads = std::clamp(options.max_threads, options.threads, 1024);
  HR_ASSIGN_OR_RETURN(std::shared_ptr<RowPlan> rows, MakeRowPlan(std::move(dataset), options));
  HR_ASSIGN_OR_RETURN(BatchPlan plan,
                      BatchPlan::Create(rows->order->num_samples(), options.global_batch,
                                        options.world_size, options.rank, options.tail));
  options.order = rows->order->options();
  HR_ASSIGN_OR_RETURN(Quarantine quarantine, Quarantine::Open(options.quarantine_path));
  std::unique_ptr<CachedReads> cached =
      CachedReads::Create(rows->dataset, *rows->order, plan, options.cache);
  if (options.cache.require_warm && (!cached || cached->in_memory()))
    return Error(Code::kInvalidArgument,
                 "require_warm: {} is not read through a cache, or its samples are files of their "
                 "own: name a cache's directory when opening it, or leave out require_warm",
                 rows->dataset->path());
  return LoaderPtr(new LoaderImpl(std::move(rows), plan, std::move(options), std::move(quarantine),
                                  std::move(cached)));
}

}  // namespace headrace::loader
