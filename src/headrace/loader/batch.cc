#include "headrace/loader/batch.h"

#include <algorithm>
#include <utility>

#include "headrace/env/process.h"

namespace headrace::loader {

namespace {
uint64_t AlignUp(uint64_t n) {
  return (n + AlignedBuffer::kAlignment - 1) / AlignedBuffer::kAlignment *
         AlignedBuffer::kAlignment;
}

uint64_t RowBytes(const ColumnSpec& column) {
  return column.transform ? column.transform->output().bytes() : 0;
}

uint64_t RowMemoryBytes(uint64_t max_rows, uint64_t num_values) {
  return max_rows *
         (sizeof(BatchRow) + num_values * (sizeof(Bytes) + sizeof(std::byte*) + sizeof(uint64_t)));
}
}  // namespace

Batch::Batch(const std::vector<ColumnSpec>& columns, uint64_t max_rows) : rows(max_rows) {
  size_t num_values = 0;
  for (const ColumnSpec& column : columns) {
    uint64_t row = RowBytes(column);
    num_values += column.transform ? 0 : 1;
    row_bytes_.push_back(row);
    tensor_begins_.push_back(tensor_bytes_);
    tensor_bytes_ += AlignUp(row * max_rows);
  }
  tensors_.resize(columns.size());
  row_memory_bytes_ = RowMemoryBytes(max_rows, num_values);
  for (BatchRow& row : rows) {
    row.values.resize(num_values);
    row.value_places.resize(num_values);
    row.value_sizes.resize(num_values);
  }
}

uint64_t Batch::FixedBytes(const std::vector<ColumnSpec>& columns, uint64_t max_rows) {
  uint64_t bytes = 0, num_values = 0;
  for (const ColumnSpec& column : columns) {
    bytes += AlignUp(RowBytes(column) * max_rows);
    num_values += column.transform ? 0 : 1;
  }
  return bytes + RowMemoryBytes(max_rows, num_values);
}

bool Batch::ReserveTensors() {
  if (HasTensors()) return true;
  bool have = tensor_memory_.Reserve(tensor_bytes_, /*exact=*/true);
  PointTensors();
  return have;
}

void Batch::SwapMemory(Batch* other) {
  std::swap(tensor_memory_, other->tensor_memory_);
  std::swap(arena_, other->arena_);
  PointTensors();
  other->PointTensors();
}

void Batch::PointTensors() {
  for (size_t c = 0; c < tensors_.size(); ++c)
    tensors_[c] = row_bytes_[c] > 0 && tensor_memory_.data()
                      ? tensor_memory_.data() + tensor_begins_[c]
                      : nullptr;
}

uint64_t Batch::PlannedBytes(bool in_arena) const {
  uint64_t values = ValueBytes();
  if (in_arena && arena_.capacity() >= values)
    values = arena_.capacity();
  else if (in_arena)
    values += values / 4 + 1;  // as AlignedBuffer grows
  return row_memory_bytes_ + tensor_bytes_ + values;
}

uint64_t Batch::ValueBytes() const {
  uint64_t total = 0;
  for (uint64_t r = 0; r < num_rows; ++r)
    for (uint64_t size : rows[r].value_sizes) total += size;
  return total;
}

bool Batch::PlaceValuesInArena() {
  if (!arena_.Reserve(std::max<uint64_t>(ValueBytes(), 1))) return false;
  std::byte* place = arena_.data();
  for (uint64_t r = 0; r < num_rows; ++r) {
    for (size_t v = 0; v < rows[r].value_sizes.size(); ++v) {
      rows[r].value_places[v] = place;
      place += rows[r].value_sizes[v];
    }
  }
  return true;
}

MutableBytes Batch::TensorRow(size_t column, uint64_t row) const {
  return {tensors_[column] + row * row_bytes_[column], row_bytes_[column]};
}

void Batch::DropEmptyRows() {
  uint64_t to = 0;
  for (uint64_t from = 0; from < num_rows; ++from) {
    if (rows[from].state != BatchRow::State::kLoaded) continue;
    if (from != to) {
      std::swap(rows[from], rows[to]);
      for (size_t c = 0; c < tensors_.size(); ++c)
        if (tensors_[c])
          std::memcpy(TensorRow(c, to).data(), TensorRow(c, from).data(), row_bytes_[c]);
    }
    ++to;
  }
  num_rows = to;
}

void Batch::Clear() {
  for (BatchRow& row : rows) {
    row.state = BatchRow::State::kEmpty;
    row.attempts = 0;
    row.overflow = AlignedBuffer();
    std::fill(row.values.begin(), row.values.end(), Bytes());
  }
  num_rows = 0;
  value_owner.reset();
  owned_value_bytes = 0;
  bad_samples.clear();
  error = OkStatus();
}

std::shared_ptr<Batch> BatchPool::Take() {
  std::unique_ptr<Batch> batch;
  {
    MutexLock lock(&mu_);
    std::vector<std::unique_ptr<Batch>>& from = idle_.empty() ? emptied_ : idle_;
    if (!from.empty()) {
      batch = std::move(from.back());
      from.pop_back();
    }
  }
  if (!batch) batch = std::make_unique<Batch>(columns_, max_rows_);
  batch->Clear();
  // In a forked child the pool's lock may be held by a thread that does not exist: let go there.
  return std::shared_ptr<Batch>(batch.release(),
                                [pool = shared_from_this(), born = ForkGeneration()](Batch* done) {
                                  if (ForkGeneration() == born)
                                    pool->Give(std::unique_ptr<Batch>(done));
                                });
}

void BatchPool::Give(std::unique_ptr<Batch> batch) {
  batch->value_owner.reset();  // not ours to keep
  batch->owned_value_bytes = 0;
  MutexLock lock(&mu_);
  const uint64_t limit = idle_.empty() ? 2 * max_idle_bytes_ : max_idle_bytes_;
  const bool small = IdleBytes() + batch->memory_bytes() <= limit;
  if (idle_.size() < max_idle_ && small) idle_.push_back(std::move(batch));
}

void BatchPool::LendMemory(Batch* batch) {
  MutexLock lock(&mu_);
  if (idle_.empty()) return;
  batch->SwapMemory(idle_.back().get());
  // Its rows are kept: a batch without them would be made again, with allocations for each row.
  if (emptied_.size() < max_idle_) emptied_.push_back(std::move(idle_.back()));
  idle_.pop_back();
}

void BatchPool::FreeIdle() {
  MutexLock lock(&mu_);
  idle_.clear();
  emptied_.clear();
}

void BatchPool::Shrink() {
  MutexLock lock(&mu_);
  max_idle_ = 0;
  idle_.clear();
  emptied_.clear();
}

uint64_t BatchPool::idle_bytes() const {
  MutexLock lock(&mu_);
  return IdleBytes();
}

uint64_t BatchPool::IdleBytes() const {
  uint64_t bytes = 0;
  for (const auto& batch : idle_) bytes += batch->memory_bytes();
  for (const auto& batch : emptied_) bytes += batch->memory_bytes();
  return bytes;
}

}  // namespace headrace::loader
