// What a helper has in memory, as bytes that another process reads: the saves, their files, and
// where in the arena the parts of each lie. Pure functions, any thread.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "headrace/base/bytes.h"
#include "headrace/base/status.h"
#include "headrace/checkpoint/catalog.h"
#include "headrace/checkpoint/memory_files.h"
#include "headrace/checkpoint/save_keeper.h"

namespace headrace::checkpoint {

// A checkpoint in memory. Of a run of several ranks only the id is known, and no manifest.
struct MemoryCheckpoint {
  CatalogEntry entry;
  std::string manifest;
};
struct MemoryContent {
  std::vector<MemoryCheckpoint> checkpoints;  // from the oldest to the newest
  std::unique_ptr<MemoryFiles> files;         // of all of them
};

// `arena` is what the saves' bytes lie in.
Result<std::string> WriteMemoryIndex(std::span<const std::shared_ptr<const KeptSave>> saves,
                                     Bytes arena);
// `index` and `arena` must outlive what is returned. kDataLoss: damaged, or parts that do not lie
// in them.
Result<MemoryContent> ReadMemoryIndex(Bytes index, Bytes arena);

}  // namespace headrace::checkpoint
