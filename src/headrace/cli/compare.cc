// headrace compare: what changed between two runs.
#include "headrace/cli/commands.h"
#include "headrace/doctor/report.h"

namespace headrace::cli {
namespace {

class CompareCommand final : public Command {
 public:
  void Declare(Arguments* arguments) override;
  Result<ExitCode> Run(Session* session) override;

 private:
  std::string a_, b_;
};

void CompareCommand::Declare(Arguments* arguments) {
  arguments->Text("a", &a_, "The record of a run, from before the change");
  arguments->Text("b", &b_, "The record of a run, from after it");
  arguments->Note(
      "Figures are those of the rank whose input stall is the median, without the start. Changes "
      "below 2 %\nare left out, but for speed and stalls.");
  arguments->Example("headrace compare runs/41 runs/42", "What did the new cache bring?");
}

Result<ExitCode> CompareCommand::Run(Session* session) {
  HR_ASSIGN_OR_RETURN(doctor::RunRecord a, doctor::ReadRunRecord(session->fs, a_));
  HR_ASSIGN_OR_RETURN(doctor::RunRecord b, doctor::ReadRunRecord(session->fs, b_));
  const doctor::Comparison comparison = doctor::CompareRuns(a, b);
  if (session->json)
    session->out->Print(doctor::ComparisonJson(comparison));
  else
    session->out->Print("{}", doctor::ComparisonText(comparison));
  return ExitCode::kOk;
}

}  // namespace

std::unique_ptr<Command> MakeCompareCommand() { return std::make_unique<CompareCommand>(); }

}  // namespace headrace::cli
