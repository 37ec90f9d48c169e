// Makes a checkpoint of safetensors files that other tools wrote, and publishes it. The tensors
// pass through a bounded memory; what the store has already is not written again. Any thread; one
// import of an epoch at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "headrace/base/context.h"
#include "headrace/base/status.h"
#include "headrace/checkpoint/catalog.h"
#include "headrace/checkpoint/data_files.h"
#include "headrace/env/file.h"

namespace headrace::checkpoint {

struct ImportOptions {
  uint64_t step = 0;  // of the new checkpoint; its attempt is the next free one of this epoch
  // Where the tensors go in the state: "/model" makes "layers.0.weight" the tensor
  // "/model/layers.0.weight". "": directly into the state.
  std::string below = "/model";
  // Of tensors' bytes at once, at least one element. Each such part becomes a part of the
  // checkpoint as one rank would have written it; a tensor that is larger is cut into boxes.
  uint64_t memory_bytes = uint64_t{1} << 30;
  int threads = 4;
  Level level = Level::kLocal;  // what durable in this store means
};

// May be read by other threads meanwhile.
struct ImportProgress {
  std::atomic<uint64_t> bytes{0}, total_bytes{0};
};

struct ImportReport {
  SaveId id;
  uint64_t files = 0, tensors = 0;
  uint64_t bytes = 0;         // of all tensors
  uint64_t reused_bytes = 0;  // of these: the checkpoint before holds them
};

// Tensors come from these files alone.
struct ImportSource {
  std::vector<std::string> files;
  // By name, the file (its place in `files`) that must hold it. Empty: all names of all files.
  std::vector<std::pair<std::string, size_t>> names;
};
// What a path means: a .safetensors file; an index (model.safetensors.index.json, which says in
// which file each tensor lies); or a folder with an index or one or more such files.
//   kInvalidArgument  none of these, or an index that names files outside of its folder.
//   others            those of the file system.
Result<ImportSource> FindImportSource(FileSystem* fs, const std::string& path);

// The checkpoint is published and durable, or nothing of it is seen.
//   kInvalidArgument    a name that two files hold, or that the index and the files do not both
//                       have; elements of less than a byte (F4, F6), which no state can hold: all
//                       are named.
//   kDataLoss           a file that is no whole safetensors file.
//   kResourceExhausted  no room; known before the first byte, unless the checkpoint before may
//                       hold some of them.
//   others              those of PartsWriter.
Result<ImportReport> ImportSafetensors(CatalogStore* store, DataFiles* files, uint64_t epoch,
                                       FileSystem* fs, const ImportSource& source,
                                       const ImportOptions& options, const Context& ctx,
                                       ImportProgress* progress);

}  // namespace headrace::checkpoint
