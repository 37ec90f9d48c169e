// A pattern or list that matched a sliver: the job trains on a small part of what lies there.
#include <fmt/core.h>

#include "headrace/doctor/checks/checks.h"

namespace headrace::doctor {
namespace {

constexpr Threshold kMatched{"part of the files there that the data set has", 0.1, "%",
                             "splits for validation are often a twentieth to a tenth, and are "
                             "given as such; training on less is mostly a slip"};
constexpr Threshold kPresent{"files there", 20, "", "of fewer a tenth is one or two: no pattern"};
constexpr Threshold kThresholds[] = {kMatched, kPresent};

std::optional<Finding> CheckSliver(const Case& c) {
  const DatasetFacts& data = c.run().dataset;
  const auto present = static_cast<double>(data.present_files);
  if (present < kPresent.value || data.num_shards == 0) return std::nullopt;
  const double share = static_cast<double>(data.num_shards) / present;
  if (share >= kMatched.value) return std::nullopt;
  Finding finding;
  finding.severity = Severity::kWarning;
  finding.symptom = fmt::format("the data set has {} of the {} files of its kind that lie there",
                                data.num_shards, data.present_files);
  finding.cause = "a pattern that matched few names, or a list or manifest of an earlier state";
  finding.evidence = {Measured(kMatched, share), Measured(kPresent, present)};
  finding.confidence =
      Confidence(finding.evidence, c.typical().run->windows.size(), {kMatched.what});
  finding.cure = "look at what was matched, and name the folder or make the list again";
  finding.command = "headrace ls DATASET";
  finding.disproof = "the part was chosen on purpose";
  return finding;
}

}  // namespace

const CheckEntry kSliverCheck{"sliver", "A small part of what lies there", kThresholds,
                              CheckSliver};

}  // namespace headrace::doctor
