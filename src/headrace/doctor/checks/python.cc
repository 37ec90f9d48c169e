// A transform written in Python holds the interpreter's lock, and with it the training loop.
#include <algorithm>

#include "headrace/doctor/checks/checks.h"

namespace headrace::doctor {
namespace {

constexpr Threshold kPythonShare{
    "time in Python transforms", 0.1, "%",
    "they run on the consumer's thread, so their share is lost whatever the loader does; a tenth "
    "is worth writing them anew"};
constexpr Threshold kThresholds[] = {kPythonShare};

std::optional<Finding> CheckPython(const Case& c) {
  const RankView& view = c.typical();
  const double share = view.total.python_s / view.total.seconds;
  if (share < kPythonShare.value) return std::nullopt;
  Finding finding;
  finding.symptom = "the GPU waits for transforms that run in Python";
  finding.cause =
      "one interpreter runs one thread at a time: transforms and the training loop take "
      "turns, and more threads do not help";
  finding.evidence = {Measured(kPythonShare, share)};
  finding.evidence.push_back(
      {"Python of a batch",
       view.total.python_s / std::max(1.0, static_cast<double>(view.total.batches)), "s",
       std::nullopt});
  finding.confidence = Confidence(finding.evidence, view.run->windows.size());
  finding.cure =
      "use native transforms (docs/guide/transforms.md), or move the work to the GPU or "
      "to before the training";
  finding.command = "from headrace import transforms as T";
  finding.gain = GainOver(view, view.model.Without(Part::kPython));
  finding.disproof = "the same loop without the transform that is no faster";
  return finding;
}

}  // namespace

const CheckEntry kPythonCheck{"python-transform", "A Python transform holds the loop up",
                              kThresholds, CheckPython};

}  // namespace headrace::doctor
