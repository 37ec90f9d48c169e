// The CRC32C of a whole file. Any thread. Used by makers and checkers of indexes only.
#pragma once

#include <cstdint>
#include <string>

#include "headrace/base/context.h"
#include "headrace/base/status.h"
#include "headrace/env/file.h"

namespace headrace::dataset {

// Reads the file at `path` to its end in pieces of 1 MiB. Fails as the file system does.
Result<uint32_t> ChecksumOfFile(FileSystem* fs, const std::string& path, const Context& ctx);
// The same of an open file.
Result<uint32_t> ChecksumOfFile(const RandomAccessFile& file, const Context& ctx);

}  // namespace headrace::dataset
