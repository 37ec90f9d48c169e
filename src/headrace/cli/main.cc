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
  session.fs = PosixFileSystem();
  session.ctx.cancelled = CancelOnInterrupt();
  session.out = &output;
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
