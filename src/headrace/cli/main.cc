#include <string>
#include <vector>

#include "headrace/base/fault_point.h"
#include "headrace/cli/command_line.h"
#include "headrace/env/console.h"

int main(int argc, char** argv) {
  using namespace headrace;  // NOLINT: the program is this namespace's
  IgnoreBrokenPipes();
  cli::Output output(WriteStdout);
  cli::Session session;
  session.ctx.cancelled = CancelOnInterrupt();
  session.out = &output;
  auto storage = object::ReadUrlSettings({});
  if (!storage.ok()) {
    WriteStderr(AsBytes("headrace: " + storage.status().ToString() + "\n"));
    return static_cast<int>(cli::ExitCode::kUsage);
  }
  session.storage = *std::move(storage);
  session.storage.cancelled = session.ctx.cancelled;
  if (auto faults = EnvironmentText("HEADRACE_FAULTS")) {
    Status armed = ArmFaultsFromText(*faults);
    if (!armed.ok()) {
      WriteStderr(AsBytes("headrace: HEADRACE_FAULTS: " + armed.ToString() + "\n"));
      return static_cast<int>(cli::ExitCode::kUsage);
    }
  }
  return static_cast<int>(
      cli::RunCommandLine(std::vector<std::string>(argv + 1, argv + argc), &session));
}
