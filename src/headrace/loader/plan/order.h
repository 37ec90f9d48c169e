// The sample order: a pure function of (dataset version, seed, epoch). It does not depend on world
// size, threads, cache, timing or bad samples. docs/formats/order.md states the function word by
// word; it never changes for a given order version. No I/O. Immutable once made: any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "headrace/base/status.h"

namespace headrace::loader {

struct OrderOptions {
  uint64_t seed = 0;
  bool shuffle = true;
  // Number of lanes K, 1 to number of shards. 0 = the largest power of two that is at most
  // min(number of shards, 64).
  uint32_t lanes = 0;
  // Shards of one lane whose samples are mixed. 0 = max(2, 64 / K).
  uint32_t window_shards = 0;
};

class EpochOrder;

// The part of the order that is the same in every epoch: which shard belongs to which lane.
class Order {
 public:
  // `shard_samples[s]` is the number of samples of shard s, in manifest order (may be 0);
  // `version` is the dataset version (its hash text). kInvalidArgument when there is no sample or
  // an option is out of bounds. O(shards log lanes) time, O(shards) memory.
  static Result<Order> Create(std::span<const uint64_t> shard_samples, std::string_view version,
                              const OrderOptions& options);

  const OrderOptions& options() const { return options_; }  // with the defaults filled in
  uint64_t num_samples() const { return first_sample_.back(); }
  size_t num_shards() const { return first_sample_.size() - 1; }
  // Lane k's shards, in dealing order. Lanes are numbered by falling number of samples.
  std::span<const uint32_t> LaneShards(uint32_t lane) const;
  uint32_t num_lanes() const;
  // The order of one epoch. O(shards) time and memory.
  EpochOrder ForEpoch(uint64_t epoch) const;
  // The shard that holds a sample, and the sample's number inside it. O(log shards).
  struct Place {
    uint32_t shard;
    uint64_t index;
  };
  Place Locate(uint64_t sample_id) const;
  // The substitute for a bad sample: a function of (version, seed, epoch, position, attempt), uniform
  // over all samples. attempt counts from 0.
  uint64_t Substitute(uint64_t epoch, uint64_t position, uint32_t attempt) const;

 private:
  friend class EpochOrder;
  Order() = default;
  OrderOptions options_;
  uint64_t version_hash_ = 0;
  std::vector<uint64_t> first_sample_;   // prefix sums, shards + 1
  std::vector<uint32_t> lane_shards_;    // all lanes joined
  std::vector<uint32_t> lane_begin_;     // lanes + 1, into lane_shards_
  std::vector<uint64_t> lane_samples_;   // falling
  std::vector<uint64_t> lane_breaks_;    // positions at which lanes end; see order.cc
};

// One epoch's permutation of the sample ids. Copyable; holds what it needs of the Order.
class EpochOrder {
 public:
  // The sample id (index in manifest order) at a position < num_samples(). O(log shards).
  uint64_t SampleAt(uint64_t position) const;
  uint64_t num_samples() const;
  uint64_t epoch() const;
  // The lane that a position belongs to.
  uint32_t LaneAt(uint64_t position) const;
  // private members: defined by the implementer
};

}  // namespace headrace::loader
