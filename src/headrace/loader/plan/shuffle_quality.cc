#include "headrace/loader/plan/shuffle_quality.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace headrace::loader {
namespace {

std::vector<uint64_t> CountClasses(std::span<const uint32_t> classes) {
  std::vector<uint64_t> counts;
  for (uint32_t label : classes) {
    if (label >= counts.size()) counts.resize(size_t{label} + 1);
    ++counts[label];
  }
  return counts;
}

double Share(double part, double whole) { return whole > 0 ? part / whole : 0; }

// The chance that none of `draws` samples, drawn without putting back, is one of `members` out of
// `total`: C(total - members, draws) / C(total, draws).
double ChanceOfNone(uint64_t members, uint64_t draws, uint64_t total) {
  if (members + draws > total) return 0;
  const uint64_t fewer = std::min(members, draws), more = std::max(members, draws);
  double log_chance = 0;
  for (uint64_t i = 0; i < fewer; ++i) {
    log_chance += std::log1p(-static_cast<double>(more) / static_cast<double>(total - i));
  }
  return std::exp(log_chance);
}

double ExpectedKinds(std::span<const uint64_t> kinds, uint64_t draws, uint64_t total) {
  double expected = 0;
  for (uint64_t members : kinds)
    expected += members == 0 ? 0 : 1 - ChanceOfNone(members, draws, total);
  return expected;
}

// The mean of chi-square for `draws` out of `total` samples of `kinds` classes.
double ExpectedChiSquare(uint64_t kinds, uint64_t draws, uint64_t total) {
  if (kinds < 2 || draws >= total) return 0;
  return static_cast<double>(kinds - 1) * static_cast<double>(total - draws) /
         static_cast<double>(total - 1);
}

uint64_t CountKinds(std::span<const double> expected) {
  return static_cast<uint64_t>(
      std::count_if(expected.begin(), expected.end(), [](double e) { return e > 0; }));
}

}  // namespace

uint64_t ShuffleMeter::BatchCount::Increment(uint64_t label, uint64_t now) {
  if (batch[label] != now) {
    batch[label] = now;
    count[label] = 0;
  }
  return count[label]++;
}

ShuffleMeter::ShuffleMeter(std::span<const uint64_t> shard_samples,
                           std::span<const uint32_t> classes, uint64_t global_batch)
    : classes_(classes), global_batch_(global_batch) {
  first_sample_.push_back(0);
  for (uint64_t samples : shard_samples) first_sample_.push_back(first_sample_.back() + samples);
  const auto class_samples = CountClasses(classes);
  for (uint64_t samples : class_samples) {
    expected_.push_back(static_cast<double>(samples) * static_cast<double>(global_batch) /
                        static_cast<double>(classes.size()));
  }
  shard_count_.batch.assign(shard_samples.size(), UINT64_MAX);
  shard_count_.count.assign(shard_samples.size(), 0);
  class_count_.batch.assign(class_samples.size(), UINT64_MAX);
  class_count_.count.assign(class_samples.size(), 0);
}

void ShuffleMeter::Add(uint64_t sample_id) {
  const auto after = std::upper_bound(first_sample_.begin(), first_sample_.end(), sample_id);
  const auto shard = static_cast<uint64_t>(after - first_sample_.begin() - 1);
  if (added_ > 0) AddPair(previous_id_, sample_id, shard);
  AddToBatch(sample_id, shard);
  previous_id_ = sample_id;
  previous_shard_ = shard;
  if (++added_ % global_batch_ == 0) CloseBatch();
}

void ShuffleMeter::AddPair(uint64_t previous, uint64_t id, uint64_t shard) {
  const auto total = static_cast<double>(first_sample_.back());
  const double x = static_cast<double>(previous) / total - 0.5;
  const double y = static_cast<double>(id) / total - 0.5;
  sum_x_ += x;
  sum_y_ += y;
  sum_xx_ += x * x;
  sum_yy_ += y * y;
  sum_xy_ += x * y;
  sum_jump_ += std::abs(x - y);
  same_shard_pairs_ += shard == previous_shard_ ? 1 : 0;
}

void ShuffleMeter::AddToBatch(uint64_t id, uint64_t shard) {
  batch_shards_ += shard_count_.Increment(shard, batches_) == 0 ? 1 : 0;
  if (classes_.empty()) return;
  const uint32_t label = classes_[id];
  const uint64_t before = class_count_.Increment(label, batches_);
  batch_classes_ += before == 0 ? 1 : 0;
  batch_square_ += static_cast<double>(2 * before + 1) / expected_[label];  // (n+1)² - n²
}

void ShuffleMeter::CloseBatch() {
  shards_ += batch_shards_;
  classes_seen_ += batch_classes_;
  // Sum of (count - expected)² ÷ expected, as both sum up to the batch's size.
  if (!classes_.empty()) chi_square_ += batch_square_ - static_cast<double>(global_batch_);
  batch_shards_ = batch_classes_ = 0;
  batch_square_ = 0;
  ++batches_;
}

ShuffleQuality ShuffleMeter::Quality() const {
  ShuffleQuality quality;
  quality.samples = added_;
  quality.batches = batches_;
  const double pairs = added_ > 0 ? static_cast<double>(added_ - 1) : 0;
  const double covariance = sum_xy_ - Share(sum_x_ * sum_y_, pairs);
  const double variance_x = sum_xx_ - Share(sum_x_ * sum_x_, pairs);
  const double variance_y = sum_yy_ - Share(sum_y_ * sum_y_, pairs);
  quality.serial_correlation = Share(covariance, std::sqrt(std::max(0.0, variance_x * variance_y)));
  quality.mean_jump = Share(sum_jump_, pairs);
  quality.same_shard_rate = Share(static_cast<double>(same_shard_pairs_), pairs);
  const auto batches = static_cast<double>(batches_);
  quality.shards_per_batch = Share(static_cast<double>(shards_), batches);
  quality.classes_per_batch = Share(static_cast<double>(classes_seen_), batches);
  const double random =
      ExpectedChiSquare(CountKinds(expected_), global_batch_, first_sample_.back());
  quality.class_imbalance = Share(Share(chi_square_, batches), random);
  return quality;
}

ShuffleQuality ExpectedOfRandomPermutation(std::span<const uint64_t> shard_samples,
                                           std::span<const uint32_t> classes,
                                           uint64_t global_batch) {
  ShuffleQuality quality;
  for (uint64_t samples : shard_samples) quality.samples += samples;
  const auto total = static_cast<double>(quality.samples);
  if (quality.samples < 2) return quality;
  quality.batches = quality.samples / global_batch;
  quality.serial_correlation = -1 / (total - 1);  // a permutation never repeats an id
  quality.mean_jump = (total + 1) / (3 * total);
  for (uint64_t samples : shard_samples) {
    const auto n = static_cast<double>(samples);
    quality.same_shard_rate += n * (n - 1) / (total * (total - 1));
  }
  if (quality.batches == 0) return quality;
  quality.shards_per_batch = ExpectedKinds(shard_samples, global_batch, quality.samples);
  const auto class_samples = CountClasses(classes);
  quality.classes_per_batch = ExpectedKinds(class_samples, global_batch, quality.samples);
  const auto kinds = static_cast<uint64_t>(
      std::count_if(class_samples.begin(), class_samples.end(), [](uint64_t n) { return n > 0; }));
  quality.class_imbalance = ExpectedChiSquare(kinds, global_batch, quality.samples) > 0 ? 1 : 0;
  return quality;
}

}  // namespace headrace::loader
