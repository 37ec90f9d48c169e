// One slow node or disk: its reads take far longer than those of the others, and every step of the
// job waits for it.
#include <fmt/core.h>

#include <algorithm>

#include "headrace/base/text.h"
#include "headrace/doctor/checks/checks.h"

namespace headrace::doctor {
namespace {

constexpr Threshold kTimes{
    "times the median of the others' reads", 2, "",
    "equal disks and links under equal load differ by less than 1.5 times in the mean"};
constexpr Threshold kReads{"reads", 100, "", "the mean of fewer is chance"};
constexpr Threshold kThresholds[] = {kInputStall, kTimes, kReads};

// What is compared: mean seconds of a read, by whom.
struct Reader {
  std::string name;
  double mean_s = 0, reads = 0;
};

// The slowest one, how many times the median of the others it takes, and that median.
struct Outlier {
  const Reader* reader = nullptr;
  double times = 0, median_s = 0;
};

Outlier Slowest(const std::vector<Reader>& readers) {
  Outlier outlier;
  if (readers.size() < 2) return outlier;
  std::vector<const Reader*> sorted;
  for (const Reader& reader : readers) sorted.push_back(&reader);
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const Reader* a, const Reader* b) { return a->mean_s < b->mean_s; });
  const double median = sorted[(sorted.size() - 1) / 2]->mean_s;
  const Reader* last = sorted.back();
  if (median > 0) outlier = {last, last->mean_s / median, median};
  return outlier;
}

Reader ReaderOf(const RankView& view) {
  double seconds = -view.total.back_off_s, reads = 0;
  for (Stage stage : {Stage::kRead, Stage::kCache, Stage::kFetch}) {
    seconds += view.total.busy_s(stage);
    reads += static_cast<double>(view.total.stage(stage).count);
  }
  std::string name = fmt::format("rank {}", view.run->rank);
  if (!view.run->node.empty()) name += " on " + EscapeText(view.run->node);
  return {name, reads > 0 ? std::max(0.0, seconds) / reads : 0, reads};
}

Finding Describe(const RankView& view, const Outlier& outlier) {
  Finding finding;
  finding.symptom =
      fmt::format("reads of {} are slow, and the whole job waits for them", outlier.reader->name);
  finding.cause = "a disk that fails or is worn, a bad cable or port, or somebody else's load";
  finding.evidence = {Measured(kInputStall, view.stall()), Measured(kTimes, outlier.times),
                      Measured(kReads, outlier.reader->reads)};
  finding.evidence.push_back({"mean read there", outlier.reader->mean_s, "s", std::nullopt});
  finding.confidence = Confidence(finding.evidence, view.run->windows.size());
  finding.cure =
      "look at the disk's and the link's own error counters; take the node or the disk "
      "out, and let the job go on without it";
  finding.disproof =
      "the same slowness after the rank has moved to another node: then its data is "
      "what differs";
  return finding;
}

// The worst rank with its reads as quick as the others'.
double WithoutSlowness(const RankView& view, const Outlier& outlier) {
  const double samples = static_cast<double>(view.total.samples);
  const double excess =
      (outlier.reader->mean_s - outlier.median_s) * outlier.reader->reads / samples;
  return view.model.WithoutSeconds(excess, false);
}

std::optional<Finding> SlowSource(const RankView& view) {
  std::vector<Reader> readers;
  for (const SourceTotals& source : view.total.sources) {
    const auto reads = static_cast<double>(source.reads);
    if (reads >= kReads.value)
      readers.push_back({EscapeText(source.name), source.seconds / reads, reads});
  }
  const Outlier outlier = Slowest(readers);
  if (!outlier.reader || outlier.times < kTimes.value) return std::nullopt;
  Finding finding = Describe(view, outlier);
  finding.command = "headrace cache stat";
  finding.gain = GainOver(view, WithoutSlowness(view, outlier));
  return finding;
}

std::optional<Finding> CheckSlowNode(const Case& c) {
  const RankView& view = c.worst();
  if (view.stall() < kInputStall.value) return std::nullopt;
  std::vector<Reader> readers;
  for (const RankView& rank : c.ranks()) {
    Reader reader = ReaderOf(rank);
    if (reader.reads >= kReads.value) readers.push_back(std::move(reader));
  }
  const Outlier outlier = Slowest(readers);
  if (!outlier.reader || outlier.times < kTimes.value ||
      outlier.reader->name != ReaderOf(view).name)
    return SlowSource(view);
  Finding finding = Describe(view, outlier);
  finding.command =
      view.run->node.empty() ? "" : "smartctl -a, ethtool -S on " + EscapeText(view.run->node);
  finding.gain = GainOver(view, WithoutSlowness(view, outlier));
  return finding;
}

}  // namespace

const CheckEntry kSlowNodeCheck{"slow-node", "One slow node or disk", kThresholds, CheckSlowNode};

}  // namespace headrace::doctor
