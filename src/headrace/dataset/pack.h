// Packs samples into a data set of tar shards, each with an index, and one manifest. The layout is
// a function of the sorted input and the limits: the same bytes for any number of threads. Stopped
// at any point, by an error, a signal or a power cut, it leaves the destination as it was before,
// or with the new version; a later pack of the same input goes on from the shards that are
// finished. pack_staging.h says how. Any thread may call; two packs into one destination exclude
// each other.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "headrace/base/context.h"
#include "headrace/base/status.h"
#include "headrace/dataset/pack_shard.h"
#include "headrace/env/file.h"

namespace headrace::dataset {

struct PackOptions {
  uint64_t shard_bytes = uint64_t{256} << 20;  // most bytes of a shard's tar; > 0
  uint64_t shard_samples = 0;                  // most samples of a shard; 0 = no limit
  uint32_t threads = 0;                        // 0 = one for each processor
  // Mixes the samples over the shards; empty keeps the order of the source.
  std::optional<uint64_t> shuffle_seed;
  bool overwrite = false;  // replace the data set that is at the destination
  bool sync = true;        // make everything durable before it is published
  // MCUs (4 or 8) between the seek points that the index keeps of each JPEG; 0 = none.
  uint32_t seek_spacing = 8;
  // Lossless rewriting of JPEGs. `shard_bytes` counts their sizes before it.
  codec::JpegTranscode jpeg = codec::JpegTranscode::kKeep;
  bool skip_unreadable = false;      // leave out samples that cannot be read, and list them
  std::string message;               // kept in the manifest
  PackProgress* progress = nullptr;  // may be null; not owned
};

struct PackReport {
  std::string version;  // of the data set
  uint64_t samples = 0;
  uint64_t shards = 0;
  uint64_t bytes = 0;                 // of all tars
  uint64_t reused_shards = 0;         // finished by an earlier pack that was broken off
  std::vector<PackSkip> skipped;      // skip_unreadable only
  std::vector<std::string> left_out;  // files of the source that are no samples, with the reason
  SeekTally seek;
  JpegTally jpeg;  // nothing when all shards were published by an earlier run
};

// Packs `sources` (one folder, one list file, one data set, or any number of tars) into the folder
// `destination`.
//   kNotFound            a source is not there.
//   kInvalidArgument     no sample in it, equal keys, destination inside a source, limits of 0, a
//                        spacing of seek points that is none.
//   kAlreadyExists       see PackStaging::Open.
//   kUnavailable         another pack is at work there.
//   kFailedPrecondition  a source file changed its size meanwhile.
//   kResourceExhausted   the disk is full (says how much is missing), or memory.
//   kCancelled           ctx said so; finished shards are kept for the next try.
//   kPermissionDenied, kIoError, kDataLoss  a source cannot be read: named, with key and offset.
Result<PackReport> Pack(FileSystem* fs, const std::vector<std::string>& sources,
                        const std::string& destination, const PackOptions& options,
                        const Context& ctx);

}  // namespace headrace::dataset
