// What the worker threads do: take rows of the oldest batch, load them, plan batches.
#include <algorithm>

#include "headrace/loader/loader_impl.h"

namespace headrace::loader {

namespace {
constexpr uint64_t kMaxClaimedRows = 16;
}  // namespace

void LoaderImpl::Run(Worker* worker) {
  worker->recorder.Begin(NowNanos());
  while (true) {
    Claim claim;
    bool plan = false;
    {
      MutexLock lock(&mu_);
      while (!stopping_.load() && !MayWork(*worker)) work_cv_.Wait(&mu_);
      uint64_t wait_from = 0;
      while (!stopping_.load() && MayWork(*worker) && !ClaimRows(&claim) && !MayPlan()) {
        if (wait_from == 0) wait_from = NowNanos();
        work_cv_.Wait(&mu_);
      }
      if (wait_from != 0) {
        worker->recorder.SetItem(kNoTraceId);
        worker->recorder.Wait(Stage::kPlan, NowNanos() - wait_from);
      }
      if (stopping_.load()) break;
      if (!MayWork(*worker)) continue;  // has claimed nothing
      plan = claim.slot == nullptr;
      if (plan) planning_ = true;
    }
    if (plan)
      PlanOne(worker);
    else
      LoadRows(worker, claim);
    worker->memory_bytes.store(worker->loader->memory_bytes(), std::memory_order_relaxed);
  }
  worker->recorder.End(NowNanos());
}

bool LoaderImpl::ClaimRows(Claim* claim) {
  for (const std::shared_ptr<Slot>& slot : in_flight_) {
    uint64_t rows = slot->batch->num_rows;
    if (!slot->has_memory || slot->next_row >= rows) continue;
    uint64_t share = rows / (static_cast<uint64_t>(threads()) * 4);
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
  worker->recorder.SetItem(TraceBatchId(epoch, index));
  StageClock clock(&worker->recorder);
  const uint64_t planned_ns = clock.last();
  std::shared_ptr<Slot> slot;
  Status status = GuardMemory([&] {
    slot = std::make_shared<Slot>();
    return FillSlot(worker, slot.get(), epoch, index);
  });
  clock.Lap(Stage::kPlan);
  if (cached_ && status.ok()) cached_->Reach(epoch, plan_.BatchBegin(index + 1));
  bool admitted = status.ok() && Admit(worker, generation, slot.get());
  if (admitted && cached_ && cached_->keeps_all())
    for (const BatchRow& row : std::span(slot->batch->rows).first(slot->batch->num_rows))
      worker->loader->WillLoad(row, cached_->CachingOf(*slot->batch, row));
  MutexLock lock(&mu_);
  planning_ = false;
  if (generation == generation_ && !stopping_.load()) {
    if (!status.ok() && plan_error_.ok()) plan_error_ = status;
    if (admitted) {
      slot->planned_ns = planned_ns;
      slot->admitted_ns = TraceIsOn() ? NowNanos() : 0;
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
      uint64_t wait_from = 0;
      while (IsWanted(generation) && !HasRoomFor(slot) && !ClaimRows(&claim)) {
        if (wait_from == 0) wait_from = NowNanos();
        work_cv_.Wait(&mu_);
      }
      if (wait_from != 0) worker->recorder.Wait(Stage::kQueue, NowNanos() - wait_from);
      if (!IsWanted(generation)) return false;
      if (!claim.slot) {
        StageClock clock(&worker->recorder);
        const bool have = GetMemory(slot);
        clock.Lap(Stage::kCollate, slot->bytes);
        return have;
      }
    }
    LoadRows(worker, claim);
    worker->recorder.SetItem(TraceBatchId(slot->batch->epoch, slot->batch->index));
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
  worker->recorder.SetItem(TraceBatchId(batch->epoch, batch->index));
  Context ctx = worker_context_;
  for (uint64_t r = claim.first; r < claim.last; ++r) {
    std::vector<BadSample> bad;
    if (cached_) ctx.caching = cached_->CachingOf(*batch, batch->rows[r]);
    Status status =
        GuardMemory([&] { return worker->loader->Load(batch, r, options_.order.seed, &bad, ctx); });
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
  if (claim.slot->rows_left != 0) return;
  claim.slot->loaded_ns = TraceIsOn() ? NowNanos() : 0;
  ready_cv_.NotifyAll();
}

}  // namespace headrace::loader
