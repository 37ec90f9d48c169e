#include "headrace/doctor/diagnose.h"

#include <algorithm>
#include <utility>

#include "headrace/doctor/check.h"

namespace headrace::doctor {
namespace {

// What a finding weighs: gains count, unknown ones as little.
double Weight(const Finding& finding) {
  constexpr double kUnknownGain = 0.05;
  return std::abs(finding.gain.value_or(kUnknownGain)) * finding.confidence;
}

}  // namespace

Diagnosis Diagnose(const JobRun& run) {
  Diagnosis diagnosis;
  const Case c(run);
  if (c.ranks().empty()) return diagnosis;
  diagnosis.has_samples = true;
  const RankView& view = c.typical();
  diagnosis.input_stall = view.whole.input_stall();
  diagnosis.save_stall = view.whole.save_stall_s / view.whole.seconds;
  diagnosis.accelerator_use = view.whole.step_s / view.whole.seconds;
  diagnosis.samples_per_s = view.whole.samples_per_s();
  if (view.model.usable()) diagnosis.limit = view.model.Limit().name;
  for (const CheckEntry& entry : AllChecks()) {
    std::optional<Finding> finding = entry.check(c);
    if (!finding) continue;
    finding->check = entry.name;
    diagnosis.findings.push_back(*std::move(finding));
  }
  std::stable_sort(diagnosis.findings.begin(), diagnosis.findings.end(),
                   [](const Finding& a, const Finding& b) {
                     if (a.severity != b.severity) return a.severity < b.severity;
                     return Weight(a) > Weight(b);
                   });
  return diagnosis;
}

Json DiagnosisJson(const Diagnosis& diagnosis) {
  Json findings = Json::MakeArray();
  for (const Finding& finding : diagnosis.findings) findings.Append(FindingJson(finding));
  return Json::MakeObject()
      .Set("has_samples", diagnosis.has_samples)
      .Set("input_stall", diagnosis.input_stall)
      .Set("save_stall", diagnosis.save_stall)
      .Set("accelerator_use", diagnosis.accelerator_use)
      .Set("samples_per_second", diagnosis.samples_per_s)
      .Set("limit", diagnosis.limit)
      .Set("findings", std::move(findings));
}

Result<Prediction> PredictWithout(const JobRun& run, Part part) {
  const Case c(run);
  if (c.ranks().empty() || !c.typical().model.usable())
    return Status(Code::kFailedPrecondition,
                  "the run has no stage times to predict from: record at least some steps");
  const StageModel& model = c.typical().model;
  return Prediction{part, model.observed(), model.Without(part)};
}

}  // namespace headrace::doctor
