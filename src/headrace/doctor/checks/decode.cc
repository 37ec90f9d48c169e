// The processors are full of decoding or transforming, and the GPU gets its batches in jerks.
#include <algorithm>
#include <cmath>

#include "headrace/doctor/checks/checks.h"

namespace headrace::doctor {
namespace {

constexpr Threshold kWorkerUse{
    "workers busy", 0.85, "%",
    "below it the workers wait for something else: memory for batches, or the consumer"};
constexpr Threshold kDecodeShare{"workers' time in decode and transforms", 0.5, "%",
                                 "less than half: another stage is the larger one"};
constexpr Threshold kThresholds[] = {kInputStall, kWorkerUse, kDecodeShare};

// True when the job would have what it needs if its few slow samples were as the others.
bool SlowSamplesExplain(const RankView& view) {
  const SlowShare slow = SlowSamples(view.total);
  if (slow.excess_s <= 0) return false;
  const double consumer_s = view.model.compute_s();
  const double without = view.model.WithoutSeconds(slow.excess_s, true);
  return consumer_s > 0 && without * consumer_s >= 1 - kInputStall.value;
}

void Advise(const RankView& view, Finding* finding) {
  const JobFacts& job = view.run->job;
  const double cpus = view.run->machine.cpus / std::max(1u, job.node_ranks);
  const double threads = view.total.threads;
  if (cpus >= threads + 1) {
    const double more = std::floor(cpus);
    finding->cure = "processors are idle: give the loader more threads";
    AdviseSetting("threads", static_cast<uint64_t>(more), finding);
    finding->gain = GainOver(view, view.model.WithThreads(more));
    finding->gain_at_most = view.run->machine.shares_cores;
    return;
  }
  finding->gain = GainOver(view, view.model.Without(Part::kDecode));
  finding->gain_at_most = true;
  // Half: below it building seek points costs more than the rest of the images gain.
  constexpr double kWithout = 0.5;
  if (job.images > 0 && static_cast<double>(job.images_without_seek_points) >
                            kWithout * static_cast<double>(job.images)) {
    finding->cure =
        "pack the images with seek points, so that a crop decodes only its own part; "
        "the pixels stay the same";
    finding->command = "headrace pack --seek-points 8 --jpeg sequential DATASET PACKED";
    return;
  }
  finding->cure =
      "make the images smaller before training, give uint8 batches and normalize on "
      "the GPU, decode on the GPU, or take nodes with more processors";
  finding->command = "headrace bench DATASET --dtype uint8";
}

std::optional<Finding> CheckDecode(const Case& c) {
  const RankView& view = c.typical();
  const double worker_s = view.model.worker_s();
  if (view.stall() < kInputStall.value || worker_s <= 0) return std::nullopt;
  const double use = view.model.worker_use();
  const double share = view.model.part_s(Part::kDecode) / worker_s;
  if (use < kWorkerUse.value || share < kDecodeShare.value) return std::nullopt;
  if (IsOversubscribed(view) || SlowSamplesExplain(view)) return std::nullopt;
  Finding finding;
  finding.symptom = "the GPU waits while the loader's threads decode and transform without a pause";
  finding.cause = "a sample costs more processor time than the threads have for it";
  finding.evidence = {Measured(kInputStall, view.stall()), Measured(kWorkerUse, std::min(use, 1.0)),
                      Measured(kDecodeShare, share)};
  finding.evidence.push_back(
      {"decode and transforms of a sample", view.model.part_s(Part::kDecode), "s", std::nullopt});
  if (view.run->machine.cpus > 0)
    finding.evidence.push_back({"processors in use", view.model.cpu_use(), "%", std::nullopt});
  finding.confidence = Confidence(finding.evidence, view.run->windows.size());
  Advise(view, &finding);
  finding.disproof =
      "a run of `headrace bench --mode raw` with the same threads that is no faster: "
      "then reading is what takes the time";
  return finding;
}

}  // namespace

const CheckEntry kDecodeCheck{"decode-bound", "Decoding or transforming sets the pace", kThresholds,
                              CheckDecode};

}  // namespace headrace::doctor
