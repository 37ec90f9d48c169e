// Writes a whole file and makes its bytes durable, as fast as its disk takes them. Any thread.
#pragma once

#include <span>
#include <string>

#include "headrace/base/bytes.h"
#include "headrace/base/context.h"
#include "headrace/base/status.h"
#include "headrace/env/file.h"

namespace headrace {

// As Create, Append of each part, Sync and Close of `fs`. On the system's own file system, where
// that can be done, the bytes go around the page cache, many at once, and without a copy where a
// part lies in memory as it does in the file (in units of kDirectAlignment). Room for all of it is
// taken first, so a full disk is known before the first byte. On failure a part of the file may be
// there.
//   kInvalidArgument  also when HEADRACE_DIRECT_WRITE has a value that makes no sense.
Status WriteDurably(FileSystem* fs, const std::string& path, std::span<const Bytes> parts,
                    const Context& ctx);

}  // namespace headrace
