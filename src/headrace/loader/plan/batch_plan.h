// Who computes which positions of which global batch, and the state from which a run goes on.
// Pure logic without I/O. Immutable: any thread. docs/formats/order.md gives both word by word.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "headrace/base/status.h"
#include "headrace/loader/plan/order.h"

namespace headrace::loader {

// What happens to the samples after the last full global batch.
enum class Tail : uint8_t {
  kDrop,    // they are left out of this epoch; every rank has floor(N / B) batches
  kPad,     // the last batch is filled from the epoch's start; every rank has ceil(N / B) batches
  kUneven,  // the last batch is short: ranks may differ by one row, and by one batch
};
Result<Tail> ParseTail(std::string_view name);  // "drop", "pad", "uneven"
std::string_view TailName(Tail tail);

// A border between two global batches: the next thing to deliver. Never the end of an epoch, which
// is batch 0 of the next one.
struct StreamPoint {
  uint64_t epoch = 0;
  uint64_t batch = 0;
  friend bool operator==(const StreamPoint&, const StreamPoint&) = default;
};

// The cut of one epoch's stream into global batches, seen from one rank. Global batch i is the
// positions [i*B, (i+1)*B); rank r of W takes the positions p with p mod W = r.
class BatchPlan {
 public:
  // Largest number of rows of a global batch.
  static constexpr uint64_t kMaxGlobalBatch = uint64_t{1} << 31;

  // kInvalidArgument: N = 0 or too large, B = 0 or above kMaxGlobalBatch, W = 0, B < W (some rank
  // would have nothing to do), rank >= W, or kDrop with fewer samples than one global batch (the
  // loader would be empty: says which settings help).
  static Result<BatchPlan> Create(uint64_t num_samples, uint64_t global_batch, uint32_t world_size,
                                  uint32_t rank, Tail tail);

  uint64_t global_batch() const { return global_batch_; }
  uint32_t world_size() const { return world_size_; }
  uint32_t rank() const { return rank_; }
  Tail tail() const { return tail_; }
  // Number of batches of this rank in an epoch: what len() gives. The same on every rank under
  // kDrop and kPad; under kUneven one less than num_global_batches() on a rank without a row in the
  // last.
  uint64_t num_batches() const;
  // Number of global batches, those with at least one row on any rank.
  uint64_t num_global_batches() const;
  // Rows of this rank in batch i < num_batches(); ranks differ by at most one.
  uint64_t NumRows(uint64_t batch) const;
  // Largest number of rows of any batch of this rank.
  uint64_t MaxRows() const;
  // Position in the stream of row `row` of batch `batch`; under kPad already wrapped to below N.
  uint64_t PositionOf(uint64_t batch, uint64_t row) const;
  // First position of a global batch, and one past its last, before any wrapping.
  uint64_t BatchBegin(uint64_t batch) const { return batch * global_batch_; }
  uint64_t BatchEnd(uint64_t batch) const;

  // The point after `delivered` global batches of `epoch`: batch `delivered`, or batch 0 of the
  // next epoch once all were. The same on every rank, also under kUneven.
  StreamPoint PointAfter(uint64_t epoch, uint64_t delivered) const;
  // The point that a state's (epoch, next_position) stands for under this cut. A position with no
  // further global batch behind it is the start of the next epoch (a new, larger batch may not fit
  // any more). kInvalidArgument: the position is not on a border of this cut, or beyond the epoch.
  Result<StreamPoint> PointOf(uint64_t epoch, uint64_t next_position) const;

 private:
  uint64_t num_samples_ = 0, global_batch_ = 0;
  uint32_t world_size_ = 1, rank_ = 0;
  Tail tail_ = Tail::kDrop;
};

// Where a run stands: a handful of integers, the same on every rank, and the dataset version.
// The end of an epoch is written as position 0 of the next epoch.
struct LoaderState {
  static constexpr uint32_t kVersion = 1;
  std::string dataset_version;
  uint64_t seed = 0;
  uint64_t epoch = 0;
  uint64_t next_position = 0;  // position of the first sample not yet delivered
  uint64_t global_batch = 0;
  bool shuffle = true;
  uint32_t lanes = 0;
  uint32_t window_shards = 0;
  Tail tail = Tail::kDrop;

  // One line of JSON; docs/formats/order.md names the members.
  std::string ToJson() const;
  // kInvalidArgument: no JSON, not a loader state, a member missing, of the wrong kind or out of
  // its range (says which). kFailedPrecondition: written by a newer program. Unknown members are
  // ignored.
  static Result<LoaderState> FromJson(std::string_view json);
  // kFailedPrecondition, with words that say what differs (both values) and what to do, when a run
  // with `here`'s settings cannot go on from this state. All differences are named at once. Only
  // `here`'s settings count, not its epoch and position. A different global batch is allowed only
  // when next_position falls on a border of the new cut.
  Status CheckFits(const LoaderState& here) const;
};

}  // namespace headrace::loader
