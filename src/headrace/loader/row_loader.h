// Loads one row of a batch: reads the sample's fields, checks them, transforms them into the row's
// place. One per worker thread; not thread-safe. Does not allocate in steady state.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "headrace/base/context.h"
#include "headrace/base/stage_timer.h"
#include "headrace/codec/transform.h"
#include "headrace/dataset/dataset.h"
#include "headrace/loader/bad_samples.h"
#include "headrace/loader/batch.h"
#include "headrace/loader/plan/order.h"

namespace headrace::loader {

// What all row loaders of one loader share. Immutable.
struct RowPlan {
  std::shared_ptr<const dataset::Dataset> dataset;
  std::shared_ptr<const Order> order;
  std::vector<ColumnSpec> columns;
  std::vector<dataset::FieldId> column_fields;  // parallel to columns
  // Columns whose absence in a sample is a fault: all that have a transform or were asked for.
  std::vector<bool> required;
  OnError on_error = OnError::kRaise;
  dataset::ReadOptions read;
};

// Decode counts that one thread stores and others read.
class SharedDecodeCounts {
 public:
  void Store(const codec::DecodeCounts& counts) {
    for (size_t i = 0; i < counts.size(); ++i)
      counts_[i].store(counts[i], std::memory_order_relaxed);
  }
  void AddTo(codec::DecodeCounts* sum) const {
    for (size_t i = 0; i < counts_.size(); ++i)
      (*sum)[i] += counts_[i].load(std::memory_order_relaxed);
  }

 private:
  std::array<std::atomic<uint64_t>, codec::kNumSeekRefusals> counts_{};
};

class RowLoader {
 public:
  RowLoader(std::shared_ptr<const RowPlan> plan, StageRecorder* recorder);

  // Writes how many bytes the values of each row take to its value_sizes. A sample that cannot be
  // located counts 0 and is left for Load to report.
  void Measure(std::span<BatchRow> rows);

  // Tells of a row that Load will be called for soon.
  void WillLoad(const BatchRow& row, Caching caching);

  // Loads row `r` under the plan's policy. Afterwards the row is kLoaded, kSkipped or kFailed; what
  // was bad is appended to `bad`. The result is an error only for kFailed.
  Status Load(Batch* batch, uint64_t r, uint64_t seed, std::vector<BadSample>* bad,
              const Context& ctx);
  // Replaces what a loaded row holds by its next substitute, because the caller found it bad for
  // `reason` (a Python transform failed). As Load.
  Status LoadSubstitute(Batch* batch, uint64_t r, uint64_t seed, Status reason,
                        std::vector<BadSample>* bad, const Context& ctx);

  // Where a field of a sample lies.
  Location Where(uint64_t sample_id, std::string_view field);

  // How the images loaded so far were decoded.
  const codec::DecodeCounts& decode_counts() const { return scratch_.decode_counts(); }

  uint64_t memory_bytes() const { return reader_->memory_bytes() + scratch_.memory_bytes(); }

 private:
  void MeasureRow(BatchRow* row);
  Status LoadSample(Batch* batch, uint64_t r, uint64_t sample_id, uint64_t seed, bool planned,
                    const Context& ctx);
  Status LoadTensors(Batch* batch, uint64_t r, uint64_t sample_id, uint64_t seed,
                     const Context& ctx);
  Status LoadValues(Batch* batch, uint64_t r, uint64_t sample_id, bool planned, const Context& ctx);
  Status MissingField(const dataset::SampleView& sample, size_t column) const;
  void BookReadCost();

  std::shared_ptr<const RowPlan> plan_;
  StageRecorder* recorder_;
  std::unique_ptr<dataset::SampleReader> reader_;
  codec::Scratch scratch_;
  std::vector<dataset::FieldId> tensor_fields_;
  bool has_values_ = false;
};

}  // namespace headrace::loader
