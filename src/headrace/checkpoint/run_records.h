// The records of runs (docs/formats/run-record.md) that lie beside their checkpoints, where the
// store is a folder: "records/EPOCH", with the epoch in which the run writes. No reader of
// checkpoints looks there. Any thread.
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "headrace/base/status.h"
#include "headrace/env/file.h"

namespace headrace::checkpoint {

// The folder of one run: "HOME/records/000007".
std::string RunRecordFolder(const std::string& home, uint64_t epoch);

// Removes the records of runs whose checkpoints have all been removed. `epochs`: of the checkpoints
// that are there; `running`: of who writes now. Records of this epoch and of later ones stay. So
// does, of runs that had no checkpoint at all, the newest one before: somebody will want to know
// why it ended. That a run had one is remembered by a file "published" in its folder. Returns how
// many were removed; without records 0. Failures of the file system.
Result<uint64_t> PruneRunRecords(FileSystem* fs, const std::string& home,
                                 const std::set<uint64_t>& epochs, uint64_t running);

}  // namespace headrace::checkpoint
