// Storage bandwidth is not used up and the GPU waits: the time goes into opening and looking up
// many small files, not into their bytes.
#include <algorithm>

#include "headrace/doctor/checks/checks.h"

namespace headrace::doctor {
namespace {

constexpr Threshold kFixedShare{
    "workers' time per file rather than per byte", 0.3, "%",
    "taking a third of a worker's time away makes it 1.4 times as fast; less is not worth packing"};
constexpr Threshold kReadBytes{
    "mean read", 256 << 10, "B",
    "at 1 GB/s 256 KiB take 0.26 ms, what one open costs on many shared file systems"};
constexpr Threshold kLimitUse{"storage bandwidth in use", 0.5, "%",
                              "more than half: the bytes themselves begin to be what takes time"};
constexpr Threshold kThresholds[] = {kInputStall, kFixedShare, kReadBytes, kLimitUse};

// Seconds of a worker's time for each sample that do not grow with its bytes: metadata, and of the
// reads what is longer than the device needs for the bytes. Reads of a device in heavy use wait for
// each other; there nothing is counted.
double FixedSeconds(const RankView& view) {
  double fixed = view.model.part_s(Part::kMeta);
  const double disk = view.run->machine.disk_bytes_per_s;
  const StageTotals& read = view.total.stage(Stage::kRead);
  if (disk > 0 && read.count > 0) {
    const double transfer =
        static_cast<double>(read.bytes) / disk / static_cast<double>(view.total.samples);
    fixed += std::max(
        0.0, view.total.busy_s(Stage::kRead) / static_cast<double>(view.total.samples) - transfer);
  }
  return fixed;
}

double MeanReadBytes(const Window& total) {
  uint64_t bytes = 0, count = 0;
  for (Stage stage : {Stage::kRead, Stage::kFetch}) {
    bytes += total.stage(stage).bytes;
    count += total.stage(stage).count;
  }
  return count > 0 ? static_cast<double>(bytes) / static_cast<double>(count) : 0;
}

std::optional<Finding> CheckSmallFiles(const Case& c) {
  const RankView& view = c.typical();
  const double worker_s = view.model.worker_s();
  if (view.stall() < kInputStall.value || worker_s <= 0) return std::nullopt;
  const double fixed = FixedSeconds(view);
  const double mean = MeanReadBytes(view.total);
  const double use = std::max(view.model.network_use(), view.model.disk_use());
  if (fixed / worker_s < kFixedShare.value || use > kLimitUse.value) return std::nullopt;
  if (mean == 0 || mean > kReadBytes.value) return std::nullopt;
  Finding finding;
  finding.symptom = "the GPU waits although the storage has bandwidth left";
  finding.cause = "many small files: each costs an open and a look-up before its first byte";
  finding.evidence = {Measured(kInputStall, view.stall()), Measured(kFixedShare, fixed / worker_s),
                      Measured(kReadBytes, mean)};
  if (use > 0) finding.evidence.push_back(Measured(kLimitUse, use));
  finding.confidence =
      Confidence(finding.evidence, view.run->windows.size(), {kReadBytes.what, kLimitUse.what});
  finding.cure =
      "pack the files into shards of some hundred MB, which are opened once and read in large "
      "pieces";
  finding.command = "headrace pack FOLDER PACKED";
  finding.gain = GainOver(view, view.model.WithoutSeconds(fixed, false));
  finding.disproof =
      "a packed copy of a part of the data set that is no faster in `headrace bench` than the "
      "files themselves";
  return finding;
}

}  // namespace

const CheckEntry kSmallFilesCheck{"small-files", "Many small files", kThresholds, CheckSmallFiles};

}  // namespace headrace::doctor
