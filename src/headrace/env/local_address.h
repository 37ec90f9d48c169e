// Addresses of local sockets, and the folders they may lie in. Internal to env. Pure or one look at
// the disk: safe from any thread.
#pragma once

#include <sys/un.h>

#include <string>

#include "headrace/base/status.h"

namespace headrace {

// kInvalidArgument: the path is empty, holds a NUL, or is longer than the 107 bytes the system
// takes.
Result<sockaddr_un> LocalAddress(const std::string& path);

// kFailedPrecondition when the folder is another user's or others may write to it.
Status CheckSocketFolder(const std::string& folder);

}  // namespace headrace
