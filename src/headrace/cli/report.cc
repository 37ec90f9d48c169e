// headrace report: the record of a run as one HTML page that needs nothing else.
#include "headrace/doctor/report.h"

#include "headrace/base/text.h"
#include "headrace/cli/commands.h"

namespace headrace::cli {
namespace {

class ReportCommand final : public Command {
 public:
  void Declare(Arguments* arguments) override;
  Result<ExitCode> Run(Session* session) override;

 private:
  std::string run_, output_;
};

void ReportCommand::Declare(Arguments* arguments) {
  arguments->Text("run", &run_, "The record of a run: a folder with rank-0.jsonl, or such a file");
  arguments->Text("-o,--output", &output_,
                  "Where the page goes, '-' for standard output; else RUN.html");
  arguments->Note(
      "The page has the findings of `headrace doctor`, plots of speed, stall and stages over time, "
      "what-if\nfigures, and the log's warnings. It runs no script, loads nothing, and follows "
      "light and dark.");
  arguments->Example("headrace report runs/42", "Write runs/42.html");
  arguments->Example("headrace report runs/42 -o - > page.html", "To standard output");
}

Result<ExitCode> ReportCommand::Run(Session* session) {
  HR_ASSIGN_OR_RETURN(doctor::RunRecord record, doctor::ReadRunRecord(session->fs, run_));
  if (record.run.name.empty()) record.run.name = std::string(BaseName(run_));
  const doctor::Diagnosis diagnosis = doctor::Diagnose(record.run);
  const std::string page = doctor::ReportHtml(record, diagnosis);
  if (output_ == "-") {
    if (session->json)
      return Status(Code::kInvalidArgument,
                    "--json and a page on standard output do not go "
                    "together: name a file with -o");
    session->out->Write(AsBytes(page));
    return ExitCode::kOk;
  }
  std::string path = output_;
  if (path.empty()) {
    path = run_;
    while (path.size() > 1 && path.ends_with('/')) path.pop_back();
    path += ".html";
  }
  HR_RETURN_IF_ERROR(session->fs->WriteAtomically(path, AsBytes(page)));
  if (session->json)
    session->out->Print(Json::MakeObject()
                            .Set("page", EscapeText(path))
                            .Set("diagnosis", doctor::DiagnosisJson(diagnosis)));
  else
    session->out->Print("{}\n", EscapeText(path));
  return ExitCode::kOk;
}

}  // namespace

std::unique_ptr<Command> MakeReportCommand() { return std::make_unique<ReportCommand>(); }

}  // namespace headrace::cli
