// The folder of this user's local sockets on this machine. Safe from any thread.
#pragma once

#include <string>

#include "headrace/base/status.h"

namespace headrace {

// The folder's path: HEADRACE_RUNTIME_DIR, else XDG_RUNTIME_DIR/headrace, else /tmp/headrace-UID.
// Looks at nothing.
std::string RuntimeDirectoryPath();

// Makes the folder, readable by this user alone, where it is missing. Returns its path.
//   kFailedPrecondition  it is a link, another user's, or open to others: says so.
//   others               the system's.
Result<std::string> MakeRuntimeDirectory();

// The same for those who look for sockets: kNotFound where it is missing. Root may name that of
// another user.
Result<std::string> FindRuntimeDirectory();

}  // namespace headrace
