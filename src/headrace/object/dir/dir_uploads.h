// Uploads of a DirStore. Internal to object/dir. Thread-safe.
//
// In the folder of uploads ID.key holds the key, and ID.1, ID.2... the parts; Complete copies them
// into one file. An id is used once.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "headrace/object/dir/dir_files.h"

namespace headrace::object {

Result<std::unique_ptr<Upload>> StartDirUpload(std::shared_ptr<DirFiles> files,
                                               const std::string& key);
Result<std::vector<PendingUpload>> ListDirUploads(const DirFiles& files, const std::string& prefix,
                                                  const Context& ctx);
// OK where no upload has the id. kInvalidArgument for what cannot be one.
Status AbortDirUpload(const DirFiles& files, const std::string& id);

}  // namespace headrace::object
