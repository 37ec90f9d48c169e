// The compressions that whole shards come in. Pure functions: any thread. Used by the readers of
// shard formats only.
#pragma once

#include <cstdint>
#include <string_view>

#include "headrace/base/bytes.h"
#include "headrace/base/status.h"

namespace headrace::dataset {

enum class Compression : uint8_t { kNone, kZstd, kGzip, kBzip2, kSnappy, kBrotli };

// Reads "zstd", "gz", "bz2", "snappy" or "br", with a level behind a colon that does not matter for
// reading ("zstd:7"). kUnimplemented names any other.
Result<Compression> ParseCompression(std::string_view text);

// Unpacks `packed` to exactly out.size() bytes; kNone copies. kDataLoss: damaged, or of another
// size. kResourceExhausted: no memory for the decoder.
Status Unpack(Compression compression, Bytes packed, MutableBytes out);

}  // namespace headrace::dataset
