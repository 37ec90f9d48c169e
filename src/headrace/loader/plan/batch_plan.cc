#include "headrace/loader/plan/batch_plan.h"

#include <algorithm>

namespace headrace::loader {
namespace {

Status CheckRanks(uint64_t global_batch, uint32_t world_size, uint32_t rank) {
  if (world_size == 0) {
    return Error(Code::kInvalidArgument, "world_size must be at least 1, found 0");
  }
  if (rank >= world_size) {
    return Error(Code::kInvalidArgument, "rank must be 0 to {} in a world of {}, found {}",
                 world_size - 1, world_size, rank);
  }
  if (global_batch == 0 || global_batch > BatchPlan::kMaxGlobalBatch) {
    return Error(Code::kInvalidArgument, "the global batch size must be 1 to {}, found {}",
                 BatchPlan::kMaxGlobalBatch, global_batch);
  }
  if (global_batch < world_size) {
    return Error(Code::kInvalidArgument,
                 "the global batch size must be at least the world size, so that every rank has a "
                 "row: found {} rows for {} ranks; use a larger batch or fewer ranks",
                 global_batch, world_size);
  }
  return OkStatus();
}

}  // namespace

Result<Tail> ParseTail(std::string_view name) {
  for (Tail tail : {Tail::kDrop, Tail::kPad, Tail::kUneven}) {
    if (name == TailName(tail)) return tail;
  }
  return Error(Code::kInvalidArgument, "tail must be drop, pad or uneven; found '{}'", name);
}

std::string_view TailName(Tail tail) {
  switch (tail) {
    case Tail::kDrop:
      return "drop";
    case Tail::kPad:
      return "pad";
    case Tail::kUneven:
      return "uneven";
  }
  return "unknown";
}

Result<BatchPlan> BatchPlan::Create(uint64_t num_samples, uint64_t global_batch,
                                    uint32_t world_size, uint32_t rank, Tail tail) {
  HR_RETURN_IF_ERROR(CheckRanks(global_batch, world_size, rank));
  if (num_samples == 0 || num_samples > kMaxSamples) {
    return Error(Code::kInvalidArgument, "a loader needs 1 to {} samples, found {}", kMaxSamples,
                 num_samples);
  }
  if (tail == Tail::kDrop && num_samples < global_batch) {
    return Error(
        Code::kInvalidArgument,
        "the loader would be empty: {} samples are less than one global batch of {}, and "
        "tail=drop leaves out what does not fill one; use a global batch of at most {}, or "
        "tail=pad or tail=uneven",
        num_samples, global_batch, num_samples);
  }
  BatchPlan plan;
  plan.num_samples_ = num_samples;
  plan.global_batch_ = global_batch;
  plan.world_size_ = world_size;
  plan.rank_ = rank;
  plan.tail_ = tail;
  return plan;
}

uint64_t BatchPlan::num_global_batches() const {
  const uint64_t full = num_samples_ / global_batch_;
  return tail_ == Tail::kDrop ? full : full + (num_samples_ % global_batch_ != 0);
}

uint64_t BatchPlan::num_batches() const {
  const uint64_t batches = num_global_batches();
  return NumRows(batches - 1) > 0 ? batches : batches - 1;
}

uint64_t BatchPlan::BatchEnd(uint64_t batch) const {
  const uint64_t end = (batch + 1) * global_batch_;
  return tail_ == Tail::kUneven ? std::min(end, num_samples_) : end;
}

// The first position of the batch that belongs to this rank is `begin` plus the steps from begin's
// remainder up to the rank.
uint64_t BatchPlan::NumRows(uint64_t batch) const {
  const uint64_t begin = BatchBegin(batch), end = BatchEnd(batch);
  const uint64_t first = begin + (rank_ + world_size_ - begin % world_size_) % world_size_;
  return first >= end ? 0 : (end - first - 1) / world_size_ + 1;
}

uint64_t BatchPlan::MaxRows() const {
  if (global_batch_ % world_size_ == 0) return NumRows(0);
  // The remainder of begin runs through a cycle of at most world_size batches.
  const uint64_t most = global_batch_ / world_size_ + 1;
  const uint64_t batches = std::min<uint64_t>(num_batches(), world_size_);
  uint64_t rows = 0;
  for (uint64_t batch = 0; batch < batches && rows < most; ++batch) {
    rows = std::max(rows, NumRows(batch));
  }
  return rows;
}

uint64_t BatchPlan::PositionOf(uint64_t batch, uint64_t row) const {
  const uint64_t begin = BatchBegin(batch);
  const uint64_t first = begin + (rank_ + world_size_ - begin % world_size_) % world_size_;
  const uint64_t position = first + row * world_size_;
  return position < num_samples_ ? position : position % num_samples_;
}

StreamPoint BatchPlan::PointAfter(uint64_t epoch, uint64_t delivered) const {
  if (delivered >= num_global_batches()) return {epoch + 1, 0};
  return {epoch, delivered};
}

Result<StreamPoint> BatchPlan::PointOf(uint64_t epoch, uint64_t next_position) const {
  if (next_position > num_samples_) {
    return Error(Code::kInvalidArgument,
                 "position {} is beyond the end of the epoch, which has {} samples: the state is "
                 "damaged or of another dataset",
                 next_position, num_samples_);
  }
  const uint64_t batch = next_position / global_batch_;
  if (batch >= num_global_batches() || next_position == num_samples_)
    return StreamPoint{epoch + 1, 0};
  if (next_position % global_batch_ != 0) {
    return Error(
        Code::kInvalidArgument,
        "position {} is not a border between global batches of {}: use a global batch size "
        "that divides it",
        next_position, global_batch_);
  }
  return StreamPoint{epoch, batch};
}

}  // namespace headrace::loader
