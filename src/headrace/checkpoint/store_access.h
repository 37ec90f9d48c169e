// A checkpoint store as programs open it: by a path or URL. Thread-safe.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "headrace/base/status.h"
#include "headrace/checkpoint/catalog.h"
#include "headrace/checkpoint/data_files.h"
#include "headrace/object/url_settings.h"

namespace headrace::checkpoint {

struct StoreAccess {
  StorePlace place;
  // A DataFiles of one's own.
  std::unique_ptr<DataFiles> files;
};

// `storage` are settings by name, as ReadUrlSettings takes them. Asks nothing of the place yet.
//   kInvalidArgument  no such scheme or setting.
//   kUnimplemented    a place that cannot be written to, or not with conditions.
Result<StoreAccess> OpenCheckpointStore(const std::string& url,
                                        const std::map<std::string, std::string>& storage);
Result<StoreAccess> OpenCheckpointStore(const std::string& url,
                                        const object::UrlSettings& settings);

}  // namespace headrace::checkpoint
