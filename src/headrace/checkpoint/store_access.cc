#include "headrace/checkpoint/store_access.h"

#include <utility>

#include "headrace/object/url_file_system.h"

namespace headrace::checkpoint {

Result<StoreAccess> OpenCheckpointStore(const std::string& url,
                                        const std::map<std::string, std::string>& storage) {
  HR_ASSIGN_OR_RETURN(object::UrlSettings settings, object::ReadUrlSettings(storage));
  return OpenCheckpointStore(url, settings);
}

Result<StoreAccess> OpenCheckpointStore(const std::string& url,
                                        const object::UrlSettings& settings) {
  HR_ASSIGN_OR_RETURN(object::Place located, object::LocateUrl(url, settings));
  StoreAccess access;
  if (!IsUrl(located.path)) {
    HR_ASSIGN_OR_RETURN(access.place, StoreInFolder(PosixFileSystem(), located.path));
    access.files = FilesInFolder(PosixFileSystem(), located.path);
    return access;
  }
  HR_ASSIGN_OR_RETURN(object::StorePlace opened, object::OpenStore(url, settings));
  HR_ASSIGN_OR_RETURN(access.place, StoreInBucket(opened.store, opened.key));
  access.files = FilesInBucket(access.place.store, access.place.prefix);
  return access;
}

}  // namespace headrace::checkpoint
