// A checkpoint store over several folders of one machine, each on a disk of its own, so that a save
// goes to all of them at once. The first folder holds head, catalogs and manifests; each data file
// lies whole in one of them, in the one to which the fewest bytes went, and is looked for in all,
// so the list may change between runs. With one folder it is StoreInFolder and FilesInFolder.
// Thread-safe.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "headrace/checkpoint/catalog.h"
#include "headrace/checkpoint/data_files.h"
#include "headrace/env/file.h"

namespace headrace::checkpoint {

// Folders are made when they are missing. `fs` must outlive the place.
//   kInvalidArgument  no folder, or one that is named twice.
Result<StorePlace> StoreInFolders(FileSystem* fs, const std::vector<std::string>& folders);
// A file that does not fit into one folder goes to the next. kResourceExhausted when none has room.
std::unique_ptr<DataFiles> FilesInFolders(FileSystem* fs, const std::vector<std::string>& folders);

}  // namespace headrace::checkpoint
