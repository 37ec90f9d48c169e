#include "headrace/env/runtime_directory.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "headrace/env/posix_descriptor.h"
#include "headrace/env/process.h"

namespace headrace {

namespace {

constexpr const char* kVariable = "HEADRACE_RUNTIME_DIR";

// `any_owner`: whoever's it is.
Status CheckPrivate(const std::string& path, bool any_owner) {
  struct stat info{};
  if (::lstat(path.c_str(), &info) != 0) return PathError(errno, "look at", path);
  const bool owned = any_owner || info.st_uid == ::geteuid();
  if (!S_ISDIR(info.st_mode) || !owned || (info.st_mode & 077) != 0)
    return Error(Code::kFailedPrecondition,
                 "{} must be a folder of this user and closed to all others (chmod 700), or name "
                 "another one with {}",
                 path, kVariable);
  return OkStatus();
}

}  // namespace

std::string RuntimeDirectoryPath() {
  if (auto named = EnvironmentVariable(kVariable)) return *named;
  if (auto session = EnvironmentVariable("XDG_RUNTIME_DIR")) return *session + "/headrace";
  return fmt::format("/tmp/headrace-{}", ::geteuid());
}

Result<std::string> MakeRuntimeDirectory() {
  std::string path = RuntimeDirectoryPath();
  HR_RETURN_IF_ERROR(CheckPath(path));
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return PathError(errno, "make", path);
  HR_RETURN_IF_ERROR(CheckPrivate(path, false));
  return path;
}

Result<std::string> FindRuntimeDirectory() {
  std::string path = RuntimeDirectoryPath();
  HR_RETURN_IF_ERROR(CheckPath(path));
  HR_RETURN_IF_ERROR(CheckPrivate(path, ::geteuid() == 0 && EnvironmentVariable(kVariable)));
  return path;
}

}  // namespace headrace
