// One slow kind of sample among many quick ones: few of them take a large part of the time.
#include <algorithm>
#include <bit>
#include <cmath>

#include "headrace/doctor/checks/checks.h"

namespace headrace::doctor {
namespace {

constexpr Threshold kTimeShare{"decode time in slow samples", 0.2, "%",
                               "less: the others would still take four fifths of the time"};
constexpr Threshold kCountShare{
    "samples that are slow", 0.1, "%",
    "more than a tenth is no exception but what the data set is: see decode-bound"};
constexpr Threshold kTimes{
    "times the median from which a sample is slow", 8, "",
    "sizes of photographs of one source differ by up to four times; eight is another kind"};
constexpr Threshold kThresholds[] = {kInputStall, kTimeShare, kCountShare, kTimes};

// The middle of bucket i, [2^i, 2^(i+1)) ns, if durations are spread evenly over it on a log scale.
double BucketSeconds(size_t i) { return std::exp2(static_cast<double>(i) + 0.5) * 1e-9; }

std::optional<Finding> CheckSlowSamples(const Case& c) {
  const RankView& view = c.typical();
  if (view.stall() < kInputStall.value) return std::nullopt;
  const SlowShare slow = SlowSamples(view.total);
  if (slow.time_share < kTimeShare.value || slow.count_share > kCountShare.value)
    return std::nullopt;
  Finding finding;
  finding.symptom = "the GPU waits, and a few samples take a large part of the decode time";
  finding.cause =
      "one kind of sample is far slower than the others: progressive JPEGs, very large "
      "images, or a format without a quick path";
  finding.evidence = {Measured(kInputStall, view.stall()), Measured(kTimeShare, slow.time_share),
                      Measured(kCountShare, slow.count_share)};
  const JobFacts& job = view.run->job;
  if (job.progressive_images > 0)
    finding.evidence.push_back(
        {"progressive JPEGs",
         static_cast<double>(job.progressive_images) / static_cast<double>(job.images), "%",
         std::nullopt});
  finding.confidence = Confidence(finding.evidence, view.run->windows.size(), {kCountShare.what});
  finding.cure =
      "pack again with progressive JPEGs made sequential (without loss) and oversized "
      "images made smaller; `headrace verify --pixels` counts the kinds";
  finding.command = "headrace pack --jpeg sequential DATASET PACKED";
  finding.gain = GainOver(view, view.model.WithoutSeconds(slow.excess_s, true));
  finding.disproof =
      "slow times that are spread evenly over all samples: then the machine is "
      "uneven, not the data";
  return finding;
}

}  // namespace

SlowShare SlowSamples(const Window& total) {
  SlowShare share;
  if (total.samples == 0) return share;
  const StageTotals& decode = total.stage(Stage::kDecode);
  const StageTotals& transform = total.stage(Stage::kTransform);
  const StageTotals& stage = decode.busy_ns >= transform.busy_ns ? decode : transform;
  const uint64_t count = stage.histogram.Total();
  if (count == 0) return share;
  // The bucket of the median, and the first one that is slow.
  size_t median = 0;
  for (uint64_t seen = 0; seen * 2 < count && median < LogHistogram::kBuckets; ++median)
    seen += stage.histogram[median];
  median = median > 0 ? median - 1 : 0;
  const auto border = median + static_cast<size_t>(std::log2(kTimes.value));
  double all = 0, slow = 0;
  uint64_t slow_count = 0;
  for (size_t i = 0; i < LogHistogram::kBuckets; ++i) {
    const double seconds = static_cast<double>(stage.histogram[i]) * BucketSeconds(i);
    all += seconds;
    if (i < border) continue;
    slow += seconds;
    slow_count += stage.histogram[i];
  }
  if (slow_count == 0) return share;
  share.time_share = slow / all;
  share.count_share = static_cast<double>(slow_count) / static_cast<double>(count);
  // Time and count are scaled to the measured sum, which the buckets only approach.
  const double scale = static_cast<double>(stage.busy_ns) * 1e-9 / all;
  const double others = (all - slow) / std::max(1.0, static_cast<double>(count - slow_count));
  share.excess_s = std::max(0.0, slow - others * static_cast<double>(slow_count)) * scale /
                   static_cast<double>(total.samples);
  return share;
}

const CheckEntry kSlowSamplesCheck{"slow-samples", "One slow kind of sample", kThresholds,
                                   CheckSlowSamples};

}  // namespace headrace::doctor
