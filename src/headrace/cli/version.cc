#include "headrace/cli/commands.h"

namespace headrace::cli {
namespace {

class VersionCommand final : public Command {
 public:
  void Declare(Arguments* arguments) override {
    arguments->Example("headrace version --json", "The same for programs");
  }

  Result<ExitCode> Run(Session* session) override {
    if (session->json) {
      session->out->Print(Json::MakeObject().Set("version", HEADRACE_VERSION));
    } else {
      session->out->Print("headrace {}\n", HEADRACE_VERSION);
    }
    return ExitCode::kOk;
  }
};

}  // namespace

std::unique_ptr<Command> MakeVersionCommand() { return std::make_unique<VersionCommand>(); }

}  // namespace headrace::cli
