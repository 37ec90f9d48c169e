// Writes tensors of a checkpoint to one safetensors file, whatever ranks and boxes they were saved
// by, without holding more than a piece of one in memory. Any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include "headrace/base/context.h"
#include "headrace/base/status.h"
#include "headrace/checkpoint/data_files.h"
#include "headrace/checkpoint/manifest.h"
#include "headrace/env/file.h"

namespace headrace::checkpoint {

struct ExportOptions {
  // Only tensors at this path or below it, whose names leave it out: "/model" gives
  // "layers.0.weight". "": all, with names that begin with their first key:
  // "model.layers.0.weight".
  std::string below;
  uint64_t memory_bytes = uint64_t{64} << 20;  // at once
  int threads = 4;
};

// May be read by other threads meanwhile.
struct ExportProgress {
  std::atomic<uint64_t> bytes{0}, total_bytes{0};
};

struct ExportReport {
  uint64_t tensors = 0, bytes = 0;  // of the file
};

// The file appears whole or not at all, and is durable then.
//   kNotFound         no tensor lies below that path.
//   kInvalidArgument  two tensors would have the same name.
//   others            those of Restore and of the file system.
Result<ExportReport> ExportSafetensors(DataFiles* files, const Manifest& manifest,
                                       const ExportOptions& options, FileSystem* fs,
                                       const std::string& path, const Context& ctx,
                                       ExportProgress* progress);

}  // namespace headrace::checkpoint
