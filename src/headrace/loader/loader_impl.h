// The loader's own state: private to loader.cc (the consumer's side) and loader_workers.cc (the
// worker threads' side). docs/design/threads.md, docs/design/locks.md.
#pragma once

#include <algorithm>
#include <atomic>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/mutex.h"
#include "headrace/env/process.h"
#include "headrace/loader/cached_reads.h"
#include "headrace/loader/loader.h"
#include "headrace/loader/loop_clock.h"
#include "headrace/loader/quarantine.h"
#include "headrace/loader/row_loader.h"
#include "headrace/loader/row_plan.h"
#include "headrace/loader/slot.h"

namespace headrace::loader {

class LoaderImpl final : public Loader {
 public:
  LoaderImpl(std::shared_ptr<const RowPlan> rows, BatchPlan plan, LoaderOptions options,
             Quarantine quarantine, std::unique_ptr<CachedReads> cached)
      : rows_(std::move(rows)),
        plan_(plan),
        options_(std::move(options)),
        has_values_(std::any_of(rows_->columns.begin(), rows_->columns.end(),
                                [](const ColumnSpec& column) { return !column.transform; })),
        fixed_bytes_(Batch::FixedBytes(rows_->columns, plan_.MaxRows())),
        pool_(std::make_shared<BatchPool>(rows_->columns, plan_.MaxRows(), kMaxInFlight,
                                          options_.memory_bytes / 4)),
        cached_(std::move(cached)),
        quarantine_(std::move(quarantine)),
        budget_(options_.max_bad_samples, options_.max_bad_rate),
        active_threads_(options_.threads),
        fork_generation_(ForkGeneration()) {}

  ~LoaderImpl() override { Close(); }

  const std::vector<ColumnSpec>& columns() const override { return rows_->columns; }
  const BatchPlan& plan() const override { return plan_; }
  const LoaderOptions& options() const override { return options_; }
  const std::string& dataset_path() const override { return rows_->dataset->path(); }

  Status Begin(uint64_t epoch, uint64_t position) override;
  Result<std::shared_ptr<Batch>> Next(const Context& ctx) override;
  std::vector<SettingValue> settings() const override;
  Result<uint64_t> ChangeSetting(std::string_view name, uint64_t value) override;
  int threads() const override { return active_threads_.load(std::memory_order_relaxed); }
  uint64_t last_use_ns() const override { return last_use_ns_.load(std::memory_order_relaxed); }
  LoaderState state() const override;
  Status LoadSubstitute(Batch* batch, uint64_t r, Status reason, const Context& ctx) override;
  Status BookSkipped(const Batch& batch, uint64_t r, Status reason) override;
  LoaderStats stats() const override;
  bool InForkedChild() const override { return ForkGeneration() != fork_generation_; }
  void Close() override;

 private:
  static constexpr size_t kMaxInFlight = 8;  // batches filled ahead, however small they are

  struct Worker {
    int number = 0;
    StageRecorder recorder{TracePool::kLoader};
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
  Result<uint64_t> SetThreads(int threads) HR_EXCLUDES(threads_mu_, mu_);
  Status StartWorkers() HR_EXCLUDES(threads_mu_, mu_);
  bool MayWork(const Worker& worker) const { return worker.number < threads(); }
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
  void BookDelivery(const Slot& slot) HR_EXCLUDES(mu_);
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
  const std::unique_ptr<CachedReads> cached_;  // null: the shards are not read through a cache
  Mutex consumer_mu_;                          // first of all: held through a call of the consumer
  Quarantine quarantine_;                      // under consumer_mu_
  BadSampleBudget budget_;                     // under consumer_mu_
  std::atomic<int> active_threads_;            // workers below this number work
  std::atomic<uint64_t> last_use_ns_{0};
  const uint64_t fork_generation_;
  LoopClock loop_;                              // written under consumer_mu_
  StageRecorder consumer_recorder_;             // of consumer_loader_
  std::unique_ptr<RowLoader> consumer_loader_;  // for the consumer's bad rows
  SharedDecodeCounts consumer_decodes_;

  std::atomic<bool> stopping_{false};
  Context worker_context_{Context::Clock::time_point::max(), &stopping_};
  Mutex threads_mu_;  // before mu_: held while threads start or are joined
  std::vector<std::unique_ptr<Worker>> workers_;  // grows under threads_mu_ and mu_

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
};

}  // namespace headrace::loader
