// From the arguments of main to an exit code: finds the subcommand, reads its options, runs it, and
// prints faults. The only file that knows the argument parser.
#pragma once

#include <string>
#include <vector>

#include "headrace/cli/commands.h"

namespace headrace::cli {

// Runs the command that `arguments` (without the program's name) asks for. Help goes to session's
// output, faults to standard error as one line.
ExitCode RunCommandLine(const std::vector<std::string>& arguments, Session* session);

}  // namespace headrace::cli
