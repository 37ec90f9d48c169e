#include "headrace/loader/batch.h"

#include <algorithm>
#include <utility>

#include "headrace/env/process.h"

namespace headrace::loader {

namespace {
uint64_t AlignUp(uint64_t n) {
  return (n + AlignedBuffer::kAlignment - 1) / AlignedBuffer::kAlignment * AlignedBuffer::kAlignment;
}
}  // namespace

Batch::Batch(const std::vector<ColumnSpec>& columns, uint64_t max_rows) : rows(max_rows) {
  size_t num_values = 0;
  std::vector<uint64_t> begins;
  for (const ColumnSpec& column : columns) {
    uint64_t row = column.transform ? column.transform->output().bytes() : 0;
    num_values += column.transform ? 0 : 1;
    row_bytes_.push_back(row);
    begins.push_back(tensor_bytes_);
    tensor_bytes_ += AlignUp(row * max_rows);
  }
  bool have = tensor_bytes_ == 0 || tensor_memory_.Reserve(tensor_bytes_, /*exact=*/true);
  for (size_t c = 0; c < columns.size(); ++c)
    tensors_.push_back(have && row_bytes_[c] > 0 ? tensor_memory_.data() + begins[c] : nullptr);
  if (!have) error = Error(Code::kResourceExhausted, "no memory for a batch of {} bytes", tensor_bytes_);
  for (BatchRow& row : rows) {
    row.values.resize(num_values);
    row.value_places.resize(num_values);
    row.value_sizes.resize(num_values);
  }
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
        if (tensors_[c]) std::memcpy(TensorRow(c, to).data(), TensorRow(c, from).data(), row_bytes_[c]);
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

Result<std::shared_ptr<Batch>> BatchPool::Take() {
  std::unique_ptr<Batch> batch;
  {
    MutexLock lock(&mu_);
    if (!idle_.empty()) {
      batch = std::move(idle_.back());
      idle_.pop_back();
    }
  }
  if (!batch) {
    batch = std::make_unique<Batch>(columns_, max_rows_);
    if (!batch->error.ok()) return batch->error;
  }
  batch->Clear();
  // In a forked child the pool's lock may be held by a thread that does not exist: let go there.
  return std::shared_ptr<Batch>(
      batch.release(), [pool = shared_from_this(), born = ForkGeneration()](Batch* done) {
        if (ForkGeneration() == born) pool->Give(std::unique_ptr<Batch>(done));
      });
}

void BatchPool::Give(std::unique_ptr<Batch> batch) {
  MutexLock lock(&mu_);
  const bool small = IdleBytes() + batch->memory_bytes() <= max_idle_bytes_;
  if (idle_.size() < max_idle_ && (idle_.empty() || small)) idle_.push_back(std::move(batch));
}

void BatchPool::Shrink() {
  MutexLock lock(&mu_);
  max_idle_ = 0;
  idle_.clear();
}

uint64_t BatchPool::idle_bytes() const {
  MutexLock lock(&mu_);
  return IdleBytes();
}

uint64_t BatchPool::IdleBytes() const {
  uint64_t bytes = 0;
  for (const auto& batch : idle_) bytes += batch->memory_bytes();
  return bytes;
}

}  // namespace headrace::loader
