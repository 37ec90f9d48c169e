// Luck with the page cache is mistaken for speed: bytes come from memory that will not hold the
// whole data set.
#include <algorithm>

#include "headrace/doctor/checks/checks.h"

namespace headrace::doctor {
namespace {

constexpr Threshold kFromMemory{"local reads that came from memory", 0.9, "%",
                                "with a tenth from the disk its speed shows already"};
constexpr Threshold kSlowdown{"slower from the disk", 0.2, "%",
                              "less does not change a plan that is made by this speed"};
constexpr Threshold kSize{"data set beside the memory", 1, "",
                          "what is smaller can stay in memory for good, and is no luck"};
constexpr Threshold kThresholds[] = {kFromMemory, kSlowdown, kSize};

std::optional<Finding> CheckPageCache(const Case& c) {
  const RankView& view = c.typical();
  const MachineFacts& machine = view.run->machine;
  const auto read = static_cast<double>(view.total.stage(Stage::kRead).bytes +
                                        view.total.stage(Stage::kCache).bytes);
  const uint64_t epoch =
      view.run->job.epoch_bytes > 0 ? view.run->job.epoch_bytes : c.run().dataset.bytes;
  if (!view.total.knows_device || read == 0 || machine.memory_bytes == 0 ||
      machine.disk_bytes_per_s == 0)
    return std::nullopt;
  const double from_memory = 1 - std::min(1.0, static_cast<double>(view.total.device_bytes) / read);
  const double size = static_cast<double>(epoch) / static_cast<double>(machine.memory_bytes);
  const double cold = view.model.WithColdDisk(machine.disk_bytes_per_s);
  const double slowdown = 1 - cold / std::max(view.model.observed(), 1e-9);
  if (from_memory < kFromMemory.value || size < kSize.value || slowdown < kSlowdown.value)
    return std::nullopt;
  Finding finding;
  finding.severity = Severity::kWarning;
  finding.symptom = "the speed is that of the memory, and the data set does not fit into it";
  finding.cause =
      "the samples read so far were in the page cache, from an earlier run or from "
      "packing; the rest comes from the disk";
  finding.evidence = {Measured(kFromMemory, from_memory), Measured(kSize, size),
                      Measured(kSlowdown, slowdown)};
  finding.confidence = Confidence(finding.evidence, view.run->windows.size());
  finding.cure = "measure with a cold cache, over more bytes than the memory holds";
  finding.command = "sync; echo 3 > /proc/sys/vm/drop_caches";
  finding.gain = -slowdown;
  finding.disproof = "the same speed over a whole epoch";
  return finding;
}

}  // namespace

const CheckEntry kPageCacheCheck{"page-cache-luck", "Luck with the page cache", kThresholds,
                                 CheckPageCache};

}  // namespace headrace::doctor
