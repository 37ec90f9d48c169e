#include "headrace/env/local_address.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "headrace/env/posix_descriptor.h"

namespace headrace {

Result<sockaddr_un> LocalAddress(const std::string& path) {
  HR_RETURN_IF_ERROR(CheckPath(path));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path))
    return Error(Code::kInvalidArgument, "a socket's path has 1 to {} bytes: {}",
                 sizeof(address.sun_path) - 1, path);
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

Status CheckSocketFolder(const std::string& folder) {
  struct stat info{};
  if (::stat(folder.c_str(), &info) != 0) return PathError(errno, "look at", folder);
  if (info.st_uid != ::geteuid() || (info.st_mode & 022) != 0)
    return Error(Code::kFailedPrecondition,
                 "{} must belong to this user and be writable by no other (chmod 700)", folder);
  return OkStatus();
}

}  // namespace headrace
