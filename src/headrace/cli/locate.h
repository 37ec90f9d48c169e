// Where the operands of a command are: paths, or URLs with the session's settings. Functions
// without state; the main thread.
#pragma once

#include <string>
#include <vector>

#include "headrace/cli/commands.h"
#include "headrace/object/url_file_system.h"

namespace headrace::cli {

// A path stays one of the session's file system. Fails as object::LocateUrl.
Result<object::Place> Locate(const Session& session, const std::string& operand);
// Makes paths of several operands, all of the file system that it returns. kInvalidArgument when
// they need different ones: URLs with a user or a query go one at a time.
Result<FileSystem*> LocateAll(const Session& session, std::vector<std::string>* operands);

}  // namespace headrace::cli
