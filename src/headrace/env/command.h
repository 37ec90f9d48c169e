// Runs another program and takes what it prints. No shell is in between: the arguments reach the
// program as they are. Thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/context.h"
#include "headrace/base/status.h"

namespace headrace {

struct CommandOutput {
  int exit_code = 0;  // minus the number of the signal that ended it
  std::string text;   // its standard output
};

// Splits a command line as a POSIX shell splits words: blanks part them; '...', "..." and a
// backslash quote. Nothing is expanded: $, *, ~, ; and | are characters like others.
// kInvalidArgument: a quote that is never closed, or no word at all. The message does not quote
// the text, which may hold secrets.
Result<std::vector<std::string>> SplitCommand(std::string_view text);

// Runs arguments[0], looked up in PATH, and waits for its end. It reads nothing (/dev/null) and its
// standard error is dropped.
//   kNotFound, kPermissionDenied  it could not be started.
//   kResourceExhausted            it printed more than `limit_bytes`.
//   kDeadlineExceeded, kCancelled from the Context, noticed within 100 ms.
// In all failures after the start it and the processes of its group are killed. A message names
// arguments[0] and never the others.
Result<CommandOutput> RunCommand(const std::vector<std::string>& arguments, uint64_t limit_bytes,
                                 const Context& ctx);

}  // namespace headrace
