// How the doctor's findings are printed, and what exit code they make. The main thread.
#pragma once

#include <vector>

#include "headrace/cli/commands.h"
#include "headrace/doctor/diagnose.h"

namespace headrace::cli {

// kProblemFound when there is a problem; warnings alone are kOk.
ExitCode CodeFor(const std::vector<doctor::Finding>& findings);
void PrintFindings(Session* session, const std::vector<doctor::Finding>& findings);
// A line of figures, and the findings; not as JSON.
void PrintDiagnosis(Session* session, const doctor::Diagnosis& diagnosis);

}  // namespace headrace::cli
