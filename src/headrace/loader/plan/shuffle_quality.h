// Measures how well a stream of samples is mixed, so that the cost of shuffling inside windows is a
// number and not a belief. docs/guide/shuffle.md says how to read the figures. Pure logic without
// I/O. ShuffleMeter is for one thread; the function is for any.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace headrace::loader {

// Figures of one stream. Figures of batches are means over full global batches; they are 0 when the
// stream had none, and those of classes are 0 when classes are not known.
struct ShuffleQuality {
  uint64_t samples = 0;
  uint64_t batches = 0;           // full ones
  double serial_correlation = 0;  // of the ids of neighbors in the stream, -1 to 1; random: 0
  double mean_jump = 0;          // |difference| of neighboring ids ÷ number of samples; random: 1/3
  double same_shard_rate = 0;    // share of neighbors in the stream that lie in one shard
  double shards_per_batch = 0;   // different shards in a batch
  double classes_per_batch = 0;  // different classes in a batch
  // Chi-square of a batch's class counts against the dataset's shares ÷ what a random permutation
  // has on average. 1 = as mixed as random; 10 = batches are as skewed as if ten times smaller.
  double class_imbalance = 0;
};

class ShuffleMeter {
 public:
  // `classes[id]` is the class of each sample as a number below some small bound, or empty when not
  // known. Both spans must live as long as the meter. global_batch >= 1. Memory: O(shards +
  // classes).
  ShuffleMeter(std::span<const uint64_t> shard_samples, std::span<const uint32_t> classes,
               uint64_t global_batch);

  // Takes the next sample of the stream. O(log shards).
  void Add(uint64_t sample_id);
  // The figures of what was added so far.
  ShuffleQuality Quality() const;

 private:
  // Counts how often each label (shard or class) came in the batch at hand, without clearing the
  // table for each batch.
  struct BatchCount {
    std::vector<uint64_t> batch, count;  // by label: the last batch that had it, and how often
    uint64_t Increment(uint64_t label, uint64_t now);  // returns the count before
  };
  void AddPair(uint64_t previous, uint64_t id, uint64_t shard);
  void AddToBatch(uint64_t id, uint64_t shard);
  void CloseBatch();

  std::vector<uint64_t> first_sample_;  // prefix sums, shards + 1
  std::span<const uint32_t> classes_;
  std::vector<double> expected_;  // by class: samples of it in a batch
  uint64_t global_batch_;

  uint64_t added_ = 0, batches_ = 0;
  uint64_t previous_id_ = 0, previous_shard_ = 0;
  uint64_t same_shard_pairs_ = 0;
  double sum_x_ = 0, sum_y_ = 0, sum_xx_ = 0, sum_yy_ = 0, sum_xy_ = 0, sum_jump_ = 0;
  BatchCount shard_count_, class_count_;
  uint64_t batch_shards_ = 0, batch_classes_ = 0, shards_ = 0, classes_seen_ = 0;
  double batch_square_ = 0, chi_square_ = 0;  // sums of count² ÷ expected, and of chi-squares
};

// What a random permutation of the same data has on average: exact, by the hypergeometric
// distribution. Arguments as for ShuffleMeter. O(samples) time.
ShuffleQuality ExpectedOfRandomPermutation(std::span<const uint64_t> shard_samples,
                                           std::span<const uint32_t> classes,
                                           uint64_t global_batch);

}  // namespace headrace::loader
