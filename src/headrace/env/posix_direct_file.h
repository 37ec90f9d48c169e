// A file that is written around the page cache. Internal to env. Any thread may call.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "headrace/env/file.h"

namespace headrace {

// As FileSystem::CreateDirect, but fails where the file system refuses direct I/O, or where memory
// or a thread cannot be had. An empty file may then be there.
Result<std::unique_ptr<WritableFile>> CreatePosixDirectFile(const std::string& path);

// As FileSystem::WriteDirect. Fails where the file system refuses direct I/O, or where memory
// cannot be had. A part of the file may then be there.
Status WritePosixDirect(const std::string& path, std::span<const Bytes> parts);

}  // namespace headrace
