#include "headrace/cli/findings.h"

#include <algorithm>

namespace headrace::cli {

using doctor::Finding;

ExitCode CodeFor(const std::vector<Finding>& findings) {
  const bool problem = std::any_of(findings.begin(), findings.end(), [](const Finding& finding) {
    return finding.severity == doctor::Severity::kProblem;
  });
  return problem ? ExitCode::kProblemFound : ExitCode::kOk;
}

void PrintFindings(Session* session, const std::vector<Finding>& findings) {
  if (findings.empty()) session->out->Print("\nNothing was found that holds it back.\n");
  for (const Finding& finding : findings) session->out->Print("\n{}", doctor::FindingText(finding));
}

void PrintDiagnosis(Session* session, const doctor::Diagnosis& diagnosis) {
  if (!diagnosis.has_samples) {
    session->out->Print("No batch was delivered in the part of the run that is recorded.\n");
    return;
  }
  session->out->Print(
      "{:.0f} samples/s each rank; input stall {:.1f} %, save stall {:.1f} %, AU {:.1f} %{}\n",
      diagnosis.samples_per_s, diagnosis.input_stall * 100, diagnosis.save_stall * 100,
      diagnosis.accelerator_use * 100,
      diagnosis.limit.empty() ? "" : "; limited by: " + diagnosis.limit);
  PrintFindings(session, diagnosis.findings);
}

}  // namespace headrace::cli
