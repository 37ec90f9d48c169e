// One batch in memory: columns of equal row count, some of fixed shape (tensors), some of bytes.
// A Batch is filled by the loader's threads, then handed to one consumer who only reads it. Its
// memory goes back to the BatchPool when the last shared_ptr is gone, whichever thread that is in,
// also after the loader itself is gone.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "headrace/base/bytes.h"
#include "headrace/base/mutex.h"
#include "headrace/base/status.h"
#include "headrace/codec/transform.h"
#include "headrace/loader/bad_samples.h"

namespace headrace::loader {

// What one column of every batch looks like.
struct ColumnSpec {
  std::string field;
  // Null: the field's bytes as they are. Else the fixed-shape result of this transform.
  std::shared_ptr<const codec::Transform> transform;
};

// One row while it is filled and after.
struct BatchRow {
  enum class State : uint8_t { kEmpty, kLoaded, kSkipped, kFailed };
  State state = State::kEmpty;
  uint64_t position = 0;   // in the epoch's stream
  uint64_t sample_id = 0;  // of the sample that is really in the row (a substitute's, if replaced)
  uint32_t attempts = 0;   // substitutes tried so far
  std::string key;         // bytes
  std::vector<Bytes> values;             // one per bytes column; data() null = the sample lacks it
  std::vector<std::byte*> value_places;  // where each value is to be read to, once there is memory
  std::vector<uint64_t> value_sizes;     // planned size of each value
  AlignedBuffer overflow;  // values of a substitute, which has other sizes than planned
};

class Batch {
 public:
  // Makes the rows; ReserveTensors gets the memory of the tensors.
  Batch(const std::vector<ColumnSpec>& columns, uint64_t max_rows);
  // Bytes of a batch of this shape without its values.
  static uint64_t FixedBytes(const std::vector<ColumnSpec>& columns, uint64_t max_rows);

  uint64_t epoch = 0;
  uint64_t index = 0;          // of the global batch in its epoch
  std::vector<BatchRow> rows;  // max_rows; the first num_rows are in use
  uint64_t num_rows = 0;
  std::vector<BadSample> bad_samples;  // in row order once delivered
  Status error;                        // of the first failed row

  // True when ReserveTensors has nothing to get.
  bool HasTensors() const { return tensor_memory_.capacity() >= tensor_bytes_; }
  // Swaps the memory of tensors and arena with a batch of the same shape. The content is lost.
  void SwapMemory(Batch* other);
  // Gets the memory of the tensor columns unless it is there. False without memory.
  bool ReserveTensors();
  // Memory of a tensor column, once reserved: max_rows x bytes of one row, rows contiguous, 64-byte
  // aligned. Null for a bytes column.
  std::byte* TensorData(size_t column) const { return tensors_[column]; }
  MutableBytes TensorRow(size_t column, uint64_t row) const;

  // Sum of the planned sizes of all values.
  uint64_t ValueBytes() const;
  // Bytes that the batch will hold when its tensors are reserved and its values have their places:
  // in memory of this batch (PlaceValuesInArena), or elsewhere.
  uint64_t PlannedBytes(bool in_arena) const;
  // Gives every planned value its place in memory of this batch. False without memory.
  bool PlaceValuesInArena();
  // Set by a ValueMemory: what the values' memory belongs to.
  std::shared_ptr<void> value_owner;
  uint64_t owned_value_bytes = 0;
  // Bytes of memory held.
  uint64_t memory_bytes() const {
    return row_memory_bytes_ + tensor_memory_.capacity() + arena_.capacity() + owned_value_bytes;
  }

  // Moves the loaded rows together, so that they are rows 0 .. n-1, and sets num_rows to n.
  void DropEmptyRows();
  // Forgets the content, keeps the memory.
  void Clear();

 private:
  void PointTensors();

  std::vector<uint64_t> row_bytes_;      // per column, 0 = bytes column
  std::vector<uint64_t> tensor_begins_;  // per column, in tensor_memory_
  std::vector<std::byte*> tensors_;      // per column, into tensor_memory_; null = none
  AlignedBuffer tensor_memory_;
  uint64_t tensor_bytes_ = 0;      // that the columns take
  uint64_t row_memory_bytes_ = 0;  // of `rows`
  AlignedBuffer arena_;
};

// Where the values of bytes columns are read to, when they are to end in memory of the consumer's
// own kind (Python's bytes objects) without another copy.
class ValueMemory {
 public:
  virtual ~ValueMemory() = default;
  // Called in the consumer's thread from within Next(), for a planned batch: sets value_places of
  // each row in use, for value_sizes bytes each, and value_owner, whose destruction may come in any
  // thread. False without memory.
  virtual bool Place(Batch* batch) = 0;
};

// Keeps the memory of batches between uses. Thread-safe. Owned together by the loader and every
// batch in the consumer's hands.
class BatchPool : public std::enable_shared_from_this<BatchPool> {
 public:
  // Keeps up to `max_idle` idle batches while they hold at most `max_idle_bytes` together, and one
  // of up to twice that alone.
  BatchPool(std::vector<ColumnSpec> columns, uint64_t max_rows, size_t max_idle,
            uint64_t max_idle_bytes)
      : columns_(std::move(columns)),
        max_rows_(max_rows),
        max_idle_bytes_(max_idle_bytes),
        max_idle_(max_idle) {}

  // A cleared batch, with the memory of its last use or none. May throw std::bad_alloc.
  std::shared_ptr<Batch> Take() HR_EXCLUDES(mu_);
  // Gives the memory of an idle batch, if there is one, to a batch that has none.
  void LendMemory(Batch* batch) HR_EXCLUDES(mu_);
  // Frees the batches that nobody uses now.
  void FreeIdle() HR_EXCLUDES(mu_);
  // Frees the batches that nobody uses, now and in future.
  void Shrink() HR_EXCLUDES(mu_);
  // Bytes of the idle batches.
  uint64_t idle_bytes() const HR_EXCLUDES(mu_);

 private:
  void Give(std::unique_ptr<Batch> batch) HR_EXCLUDES(mu_);
  uint64_t IdleBytes() const HR_REQUIRES(mu_);

  const std::vector<ColumnSpec> columns_;
  const uint64_t max_rows_;
  const uint64_t max_idle_bytes_;
  mutable Mutex mu_;  // leaf; no I/O under it
  size_t max_idle_ HR_GUARDED_BY(mu_);
  std::vector<std::unique_ptr<Batch>> idle_ HR_GUARDED_BY(mu_);
  std::vector<std::unique_ptr<Batch>> emptied_ HR_GUARDED_BY(mu_);  // rows only, memory was lent
};

}  // namespace headrace::loader
