// The sample order: a pure function of (dataset version, seed, epoch). It does not depend on world
// size, threads, cache, timing or bad samples. docs/formats/order.md states the function word by
// word; it never changes for a given order version. No I/O. Immutable once made: any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "headrace/base/status.h"

namespace headrace::loader {

// The version of the order function that this program computes: docs/formats/order.md.
inline constexpr uint32_t kOrderVersion = 1;
// A dataset may have at most this many samples, so that no sum of positions can overflow.
inline constexpr uint64_t kMaxSamples = uint64_t{1} << 62;

struct OrderOptions {
  uint64_t seed = 0;
  // false: the samples in manifest order, in every epoch; lanes and window_shards are then 1.
  bool shuffle = true;
  // Number of lanes K, 1 to number of shards. 0 = 64 from 64 shards on; for fewer, the largest
  // power of two that leaves at least 4 shards to a lane (1 below 8 shards), so that lanes end
  // together.
  uint32_t lanes = 0;
  // Shards of one lane whose samples are mixed. 0 = max(2, 64 / K).
  uint32_t window_shards = 0;
};

class EpochOrder;

// The part of the order that is the same in every epoch: which shard belongs to which lane.
// Cheap to copy: copies share one immutable table.
class Order {
 public:
  // `shard_samples[s]` is the number of samples of shard s, in manifest order (may be 0);
  // `version` is the dataset version (its hash text). kInvalidArgument when there is no sample,
  // more than kMaxSamples, or an option is out of bounds (says the bound). O(shards log shards)
  // time, O(shards) memory.
  static Result<Order> Create(std::span<const uint64_t> shard_samples, std::string_view version,
                              const OrderOptions& options);

  const OrderOptions& options() const;  // with the defaults filled in
  uint64_t num_samples() const;
  size_t num_shards() const;
  uint64_t ShardSamples(uint32_t shard) const;
  // Lane k's shards, in dealing order. Lanes are numbered by falling number of samples. Valid as
  // long as any copy of this Order.
  std::span<const uint32_t> LaneShards(uint32_t lane) const;
  // Number of samples of a lane.
  uint64_t LaneSamples(uint32_t lane) const;
  uint32_t num_lanes() const;
  // Number of positions from the start during which every lane gives samples: K times the samples
  // of the shortest lane. Up to there a rank whose world size divides K meets its own lanes only.
  uint64_t EvenPositions() const;
  // The lane that a position < num_samples() belongs to, the same in every epoch. O(log lanes).
  uint32_t LaneAt(uint64_t position) const;
  // The order of one epoch. O(shards log shards) time, O(shards) memory.
  EpochOrder ForEpoch(uint64_t epoch) const;
  // The shard that holds a sample (sample_id < num_samples()), and the sample's number inside it.
  // O(log shards).
  struct Place {
    uint32_t shard;
    uint64_t index;
  };
  Place Locate(uint64_t sample_id) const;
  // The substitute for a bad sample: a function of (version, seed, epoch, position, attempt),
  // uniform over all samples. attempt counts from 0.
  uint64_t Substitute(uint64_t epoch, uint64_t position, uint32_t attempt) const;

 private:
  friend class EpochOrder;
  struct Deal;  // the dealt lanes; order.cc
  explicit Order(std::shared_ptr<const Deal> deal);
  std::shared_ptr<const Deal> deal_;
};

// One epoch's permutation of the sample ids. Cheap to copy: copies share one immutable table, which
// also keeps alive what it needs of the Order.
class EpochOrder {
 public:
  // The sample id (index in manifest order) at a position < num_samples(). O(log shards), no
  // allocation.
  uint64_t SampleAt(uint64_t position) const;
  uint64_t num_samples() const;
  uint64_t epoch() const;
  // The lane that a position belongs to.
  uint32_t LaneAt(uint64_t position) const;

  // A window is a run of shards of one lane whose samples are mixed with each other: while a lane
  // is inside a window it touches these shards and no others. Windows are numbered from 0 in each
  // lane, in the order in which the lane passes them. For who fetches or maps shards ahead.
  uint32_t NumWindows(uint32_t lane) const;
  // The shards of a window. Valid as long as any copy of this EpochOrder.
  std::span<const uint32_t> WindowShards(uint32_t lane, uint32_t window) const;
  // The window (of lane LaneAt(position)) that a position falls into.
  uint32_t WindowAt(uint64_t position) const;
  // Where the stream is inside a window: its first and last position there, between which other
  // lanes have theirs, and how many positions are the window's own (0: all its shards are empty,
  // and no position leads there).
  struct Span {
    uint64_t first = 0, last = 0;
    uint64_t samples = 0;
  };
  Span WindowSpan(uint32_t lane, uint32_t window) const;

 private:
  friend class Order;
  struct Tables;  // this epoch's arrangement of shards; order.cc
  explicit EpochOrder(std::shared_ptr<const Tables> tables);
  std::shared_ptr<const Tables> tables_;
};

}  // namespace headrace::loader
