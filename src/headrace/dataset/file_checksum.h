// What tells a file's content apart: the CRC32C of all of it, and, without reading it, what the
// file system says. Pure or blocking; any thread.
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

// A number for what an open file is: another one where it was replaced or written since. 0 where
// the file system tells too little.
uint64_t FileVersion(const FileInfo& info);

}  // namespace headrace::dataset
