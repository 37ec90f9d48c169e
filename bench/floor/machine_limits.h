// How fast this machine copies memory, checks it and writes to its disk. One thread each.
#pragma once

#include <cstddef>
#include <string>

namespace headrace::floor {

// Bytes per second of memcpy between two buffers larger than the caches, over at least `seconds`.
double CopyBytesPerSecond(double seconds);

// Bytes per second of ISA-L's CRC32C over a buffer larger than the caches, over at least `seconds`.
double Crc32cBytesPerSecond(double seconds);

// Bytes per second of sequential writes of 1 MiB to a new file in `folder`, past the page cache
// where the file system allows that, fdatasync included. Negative if the file cannot be written.
double DiskWriteBytesPerSecond(const std::string& folder, double seconds);

// Bytes per second of reading the files below `folder` past the page cache, in blocks of
// `block_bytes` (a multiple of 4,096) by `threads` threads, over about `seconds`. Negative if
// nothing can be read that way.
double DirectReadBytesPerSecond(const std::string& folder, size_t block_bytes, int threads,
                                double seconds);

}  // namespace headrace::floor
