#include "headrace/loader/loader.h"

#include <algorithm>
#include <atomic>
#include <deque>

#include "headrace/base/mutex.h"
#include "headrace/env/process.h"
#include "headrace/loader/quarantine.h"
#include "headrace/loader/row_loader.h"
#include "headrace/loader/row_plan.h"

namespace headrace::loader {

namespace {

constexpr size_t kMaxInFlight = 8;  // batches filled ahead, however small they are
constexpr uint64_t kMaxClaimedRows = 16;

// A batch between planning and delivery. Guarded by LoaderImpl::mu_ but for the batch's rows, each
// of which belongs to the thread that claimed it.
struct Slot {
  std::shared_ptr<Batch> batch;
  bool has_memory = false;  // its values have their places: rows may be claimed
  uint64_t bytes = 0;       // that it holds, or will when its values have their places
  uint64_t next_row = 0;    // first row nobody has claimed
  uint64_t rows_left = 0;   // rows not finished
  uint64_t failed_row = 0;
  bool first_failure_known = false;
  std::vector<std::pair<uint64_t, BadSample>> bad;  // with the row
};

// Runs `work` and turns an exhausted memory limit into a Status, so that no thread ends the
// process.
template <typename Work>
Status GuardMemory(Work work) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    return Error(Code::kResourceExhausted,
                 "the process is out of memory (see ulimit -v): lower the batch size or threads");
  }
}

class LoaderImpl final : public Loader {
 public:
  LoaderImpl(std::shared_ptr<const RowPlan> rows, BatchPlan plan, LoaderOptions options,
             Quarantine quarantine)
      : rows_(std::move(rows)),
        plan_(plan),
        options_(std::move(options)),
        has_values_(std::any_of(rows_->columns.begin(), rows_->columns.end(),
                                [](const ColumnSpec& column) { return !column.transform; })),
        fixed_bytes_(Batch::FixedBytes(rows_->columns, plan_.MaxRows())),
        pool_(std::make_shared<BatchPool>(rows_->columns, plan_.MaxRows(), kMaxInFlight,
                                          options_.memory_bytes / 4)),
        quarantine_(std::move(quarantine)),
        budget_(options_.max_bad_samples, options_.max_bad_rate),
        fork_generation_(ForkGeneration()) {}

  ~LoaderImpl() override { Close(); }

  const std::vector<ColumnSpec>& columns() const override { return rows_->columns; }
  const BatchPlan& plan() const override { return plan_; }
  const LoaderOptions& options() const override { return options_; }

  Status Begin(uint64_t epoch, uint64_t position) override;
  Result<std::shared_ptr<Batch>> Next(const Context& ctx) override;
  LoaderState state() const override;
  Status LoadSubstitute(Batch* batch, uint64_t r, Status reason, const Context& ctx) override;
  Status BookSkipped(const Batch& batch, uint64_t r, Status reason) override;
  LoaderStats stats() const override;
  bool InForkedChild() const override { return ForkGeneration() != fork_generation_; }
  void Close() override;

 private:
  struct Worker {
    StageRecorder recorder;
    std::unique_ptr<RowLoader> loader;
    std::atomic<uint64_t> memory_bytes{0};
    SharedDecodeCounts decodes;  // of `loader`
    std::unique_ptr<Thread> thread;
  };
  struct Claim {
    std::shared_ptr<Slot> slot;
    uint64_t first = 0, last = 0;  // rows [first, last)
  };

  Status CheckUsable() const;
  Status StartWorkers();
  void Run(Worker* worker);
  bool ClaimRows(Claim* claim) HR_REQUIRES(mu_);
  bool MayPlan() const HR_REQUIRES(mu_);
  void PlanOne(Worker* worker) HR_EXCLUDES(mu_);
  void FillPlan(Worker* worker, Batch* batch, uint64_t epoch, uint64_t index);
  Status FillSlot(Worker* worker, Slot* slot, uint64_t epoch, uint64_t index);
  bool Admit(Worker* worker, uint64_t generation, Slot* slot) HR_EXCLUDES(mu_);
  bool IsWanted(uint64_t generation) const HR_REQUIRES(mu_) {
    return !stopping_.load() && generation == generation_;
  }
  bool HasRoomFor(Slot* slot) HR_REQUIRES(mu_);
  bool GetMemory(Slot* slot) HR_REQUIRES(mu_);
  Status TooLarge(uint64_t need) const;
  bool PlaceValues() HR_EXCLUDES(mu_);
  void LoadRows(Worker* worker, const Claim& claim) HR_EXCLUDES(mu_);
  Status Finish(Slot* slot);
  void BookDelivery(const Batch& batch) HR_EXCLUDES(mu_);
  Status BookBad(const std::vector<BadSample>& bad) HR_EXCLUDES(mu_);
  Status PlaceFault(const BatchRow& row, Status reason);
  uint64_t InFlightBytes() const HR_REQUIRES(mu_);
  bool HeadIsReady() const HR_REQUIRES(mu_) {
    return !in_flight_.empty() && in_flight_.front()->rows_left == 0;
  }
  void Restart(uint64_t epoch, uint64_t batch) HR_REQUIRES(mu_);

  const std::shared_ptr<const RowPlan> rows_;
  const BatchPlan plan_;
  const LoaderOptions options_;
  const bool has_values_;       // some column is bytes
  const uint64_t fixed_bytes_;  // of a batch without its values
  const std::shared_ptr<BatchPool> pool_;
  Mutex consumer_mu_;       // first of all: held through a call of the consumer
  Quarantine quarantine_;   // under consumer_mu_
  BadSampleBudget budget_;  // under consumer_mu_
  const uint64_t fork_generation_;
  StageRecorder consumer_recorder_;
  std::unique_ptr<RowLoader> consumer_loader_;  // for the consumer's bad rows
  SharedDecodeCounts consumer_decodes_;

  std::atomic<bool> stopping_{false};
  Context worker_context_{Context::Clock::time_point::max(), &stopping_};
  Mutex threads_mu_;  // before mu_: held while threads start or are joined
  std::vector<std::unique_ptr<Worker>> workers_;  // set once, under threads_mu_ and mu_

  mutable Mutex mu_;  // leaf but for BatchPool::mu_; no I/O under it
  CondVar work_cv_;   // something for workers: room, rows, stop
  CondVar ready_cv_;  // the head may be ready
  std::deque<std::shared_ptr<Slot>> in_flight_ HR_GUARDED_BY(mu_);
  bool planning_ HR_GUARDED_BY(mu_) = false;
  Status plan_error_ HR_GUARDED_BY(mu_);
  uint64_t generation_ HR_GUARDED_BY(mu_) = 0;
  uint64_t plan_epoch_ HR_GUARDED_BY(mu_) = 0;  // the next batch to plan
  uint64_t plan_batch_ HR_GUARDED_BY(mu_) = 0;
  uint64_t peak_bytes_ HR_GUARDED_BY(mu_) = 0;
  LoaderStats counts_ HR_GUARDED_BY(mu_);
  uint64_t epoch_ HR_GUARDED_BY(mu_) = 0;  // the next batch to deliver
  uint64_t batch_ HR_GUARDED_BY(mu_) = 0;
  bool epoch_ended_ HR_GUARDED_BY(mu_) = false;
  bool begun_ HR_GUARDED_BY(mu_) = false;

  // The order of the epoch being planned. Touched only by the thread that set planning_.
  std::unique_ptr<EpochOrder> epoch_order_;
  uint64_t last_return_ns_ = 0;  // under consumer_mu_
  uint64_t begin_ns_ = 0;        // under consumer_mu_
  uint64_t wait_since_ns_ = 0;   // under consumer_mu_; 0 = not waiting
};

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
  if (workers_.empty()) {
    std::vector<std::unique_ptr<Worker>> made;
    for (int i = 0; i < options_.threads; ++i) {
      made.push_back(std::make_unique<Worker>());
      made.back()->loader = std::make_unique<RowLoader>(rows_, &made.back()->recorder);
    }
    MutexLock lock(&mu_);
    workers_ = std::move(made);
  }
  for (auto& worker : workers_) {
    Worker* w = worker.get();
    if (w->thread) continue;
    HR_ASSIGN_OR_RETURN(w->thread, Thread::Start("hr-loader", [this, w] { Run(w); }));
  }
  return OkStatus();
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
  begin_ns_ = last_return_ns_ = NowNanos();
  wait_since_ns_ = 0;
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

// ---- worker threads ----

void LoaderImpl::Run(Worker* worker) {
  while (true) {
    Claim claim;
    bool plan = false;
    {
      MutexLock lock(&mu_);
      uint64_t wait_from = 0;
      while (!stopping_.load() && !ClaimRows(&claim) && !MayPlan()) {
        if (wait_from == 0) wait_from = NowNanos();
        work_cv_.Wait(&mu_);
      }
      if (wait_from != 0) worker->recorder.Wait(Stage::kPlan, NowNanos() - wait_from);
      if (stopping_.load()) return;
      plan = claim.slot == nullptr;
      if (plan) planning_ = true;
    }
    if (plan)
      PlanOne(worker);
    else
      LoadRows(worker, claim);
    worker->memory_bytes.store(worker->loader->memory_bytes(), std::memory_order_relaxed);
  }
}

bool LoaderImpl::ClaimRows(Claim* claim) {
  for (const std::shared_ptr<Slot>& slot : in_flight_) {
    uint64_t rows = slot->batch->num_rows;
    if (!slot->has_memory || slot->next_row >= rows) continue;
    uint64_t share = rows / (static_cast<uint64_t>(options_.threads) * 4);
    uint64_t take = std::clamp<uint64_t>(share, 1, kMaxClaimedRows);
    claim->slot = slot;
    claim->first = slot->next_row;
    claim->last = std::min(rows, slot->next_row + take);
    slot->next_row = claim->last;
    return true;
  }
  return false;
}

bool LoaderImpl::MayPlan() const {
  return begun_ && !planning_ && plan_error_.ok() && plan_.num_batches() > 0 &&
         in_flight_.size() < kMaxInFlight;
}

void LoaderImpl::FillPlan(Worker* worker, Batch* batch, uint64_t epoch, uint64_t index) {
  if (!epoch_order_ || epoch_order_->epoch() != epoch)
    epoch_order_ = std::make_unique<EpochOrder>(rows_->order->ForEpoch(epoch));
  batch->epoch = epoch;
  batch->index = index;
  batch->num_rows = plan_.NumRows(index);
  for (uint64_t r = 0; r < batch->num_rows; ++r) {
    BatchRow& row = batch->rows[r];
    row.position = plan_.PositionOf(index, r);
    row.sample_id = epoch_order_->SampleAt(row.position);
  }
  worker->loader->Measure(std::span(batch->rows).first(batch->num_rows));
}

void LoaderImpl::PlanOne(Worker* worker) {
  uint64_t epoch, index, generation;
  {
    MutexLock lock(&mu_);
    epoch = plan_epoch_;
    index = plan_batch_;
    generation = generation_;
  }
  StageClock clock(&worker->recorder);
  std::shared_ptr<Slot> slot;
  Status status = GuardMemory([&] {
    slot = std::make_shared<Slot>();
    return FillSlot(worker, slot.get(), epoch, index);
  });
  clock.Lap(Stage::kPlan);
  bool admitted = status.ok() && Admit(worker, generation, slot.get());
  MutexLock lock(&mu_);
  planning_ = false;
  if (generation == generation_ && !stopping_.load()) {
    if (!status.ok() && plan_error_.ok()) plan_error_ = status;
    if (admitted) {
      in_flight_.push_back(std::move(slot));
      bool last = ++plan_batch_ >= plan_.num_batches();
      if (last) {
        plan_batch_ = 0;
        ++plan_epoch_;
      }
      peak_bytes_ = std::max(peak_bytes_, InFlightBytes());
    }
    ready_cv_.NotifyAll();
  }
  work_cv_.NotifyAll();
}

Status LoaderImpl::TooLarge(uint64_t need) const {
  return Error(Code::kResourceExhausted,
               "one batch needs {} bytes but memory_bytes is {}: raise memory_bytes or lower the "
               "batch size",
               need, options_.memory_bytes);
}

Status LoaderImpl::FillSlot(Worker* worker, Slot* slot, uint64_t epoch, uint64_t index) {
  if (fixed_bytes_ > options_.memory_bytes) return TooLarge(fixed_bytes_);
  slot->batch = pool_->Take();
  FillPlan(worker, slot->batch.get(), epoch, index);
  slot->rows_left = slot->batch->num_rows;
  return OkStatus();
}

uint64_t LoaderImpl::InFlightBytes() const {
  uint64_t bytes = pool_->idle_bytes();
  for (const auto& slot : in_flight_) bytes += slot->bytes;
  for (const auto& worker : workers_) bytes += worker->memory_bytes.load(std::memory_order_relaxed);
  return bytes;
}

// Waits until the batch fits into the memory budget, with room for one more that the consumer gives
// back, then gets its memory (that of the values may be left to the consumer's thread). Loads rows
// meanwhile: the batches before this one may wait for nobody else. False when the batch is no
// longer wanted or can never fit.
bool LoaderImpl::Admit(Worker* worker, uint64_t generation, Slot* slot) {
  while (true) {
    Claim claim;
    {
      MutexLock lock(&mu_);
      while (IsWanted(generation) && !HasRoomFor(slot) && !ClaimRows(&claim)) work_cv_.Wait(&mu_);
      if (!IsWanted(generation)) return false;
      if (!claim.slot) return GetMemory(slot);
    }
    LoadRows(worker, claim);
  }
}

bool LoaderImpl::HasRoomFor(Slot* slot) {
  Batch* batch = slot->batch.get();
  if (!batch->HasTensors()) pool_->LendMemory(batch);
  slot->bytes = batch->PlannedBytes(/*in_arena=*/!options_.value_memory);
  return in_flight_.empty() || InFlightBytes() + 2 * slot->bytes <= options_.memory_bytes;
}

// False, with plan_error_ set, when the batch can never fit or the system has no memory.
bool LoaderImpl::GetMemory(Slot* slot) {
  if (InFlightBytes() + slot->bytes > options_.memory_bytes) pool_->FreeIdle();
  if (slot->bytes > options_.memory_bytes) {
    plan_error_ = TooLarge(slot->bytes);
    return false;
  }
  bool have = slot->batch->ReserveTensors();
  if (have && !(options_.value_memory && has_values_))
    have = slot->has_memory = slot->batch->PlaceValuesInArena();
  if (!have)
    plan_error_ = Error(Code::kResourceExhausted, "no memory for a batch of {} bytes", slot->bytes);
  return have;
}

void LoaderImpl::LoadRows(Worker* worker, const Claim& claim) {
  Batch* batch = claim.slot->batch.get();
  for (uint64_t r = claim.first; r < claim.last; ++r) {
    std::vector<BadSample> bad;
    Status status = GuardMemory(
        [&] { return worker->loader->Load(batch, r, options_.order.seed, &bad, worker_context_); });
    if (status.ok() && bad.empty()) continue;
    MutexLock lock(&mu_);
    for (BadSample& sample : bad) claim.slot->bad.emplace_back(r, std::move(sample));
    if (!status.ok() && (!claim.slot->first_failure_known || r < claim.slot->failed_row)) {
      claim.slot->first_failure_known = true;
      claim.slot->failed_row = r;
      batch->error = std::move(status);
    }
  }
  worker->decodes.Store(worker->loader->decode_counts());
  MutexLock lock(&mu_);
  claim.slot->rows_left -= claim.last - claim.first;
  if (claim.slot->rows_left == 0) ready_cv_.NotifyAll();
}

// ---- the consumer's thread ----

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
  if (wait_since_ns_ == 0) wait_since_ns_ = NowNanos();
  std::shared_ptr<Slot> slot;
  const bool place_values = options_.value_memory && has_values_;
  while (!slot) {
    if (place_values) PlaceValues();
    MutexLock lock(&mu_);
    if (!begun_) return Error(Code::kFailedPrecondition, "Next() before Begin()");
    if (batch_ >= plan_.num_batches()) {
      epoch_ended_ = true;
      wait_since_ns_ = 0;
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
  BookDelivery(*slot->batch);
  if (!status.ok()) return status;
  return std::move(slot->batch);
}

void LoaderImpl::BookDelivery(const Batch& batch) {
  const uint64_t now = NowNanos();
  const uint64_t waited = now - wait_since_ns_;
  const uint64_t step = wait_since_ns_ - last_return_ns_;
  consumer_recorder_.Wait(Stage::kQueue, waited);
  consumer_recorder_.Busy(Stage::kStep, step);
  last_return_ns_ = now;
  wait_since_ns_ = 0;
  MutexLock lock(&mu_);
  if (counts_.delivered_batches == 0) counts_.first_batch_ns = now - begin_ns_;
  counts_.step_ns += step;
  counts_.wait_ns += waited;
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
  MutexLock lock(&mu_);
  LoaderStats stats = counts_;
  for (const auto& worker : workers_) {
    worker->recorder.AddTo(&stats.stages);
    worker->decodes.AddTo(&stats.decodes);
  }
  consumer_recorder_.AddTo(&stats.stages);
  consumer_decodes_.AddTo(&stats.decodes);
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
  MutexLock lock(&mu_);
  in_flight_.clear();
  pool_->Shrink();
}

}  // namespace

void LoaderDeleter::operator()(Loader* loader) const {
  if (!loader->InForkedChild()) delete loader;
}

Result<LoaderPtr> Loader::Create(std::shared_ptr<const dataset::Dataset> dataset,
                                 LoaderOptions options) {
  if (options.threads < 1 || options.threads > 1024)
    return Error(Code::kInvalidArgument, "threads: expected 1 to 1024, found {}", options.threads);
  HR_ASSIGN_OR_RETURN(std::shared_ptr<RowPlan> rows, MakeRowPlan(std::move(dataset), options));
  HR_ASSIGN_OR_RETURN(BatchPlan plan,
                      BatchPlan::Create(rows->order->num_samples(), options.global_batch,
                                        options.world_size, options.rank, options.tail));
  options.order = rows->order->options();
  HR_ASSIGN_OR_RETURN(Quarantine quarantine, Quarantine::Open(options.quarantine_path));
  return LoaderPtr(
      new LoaderImpl(std::move(rows), plan, std::move(options), std::move(quarantine)));
}

}  // namespace headrace::loader
