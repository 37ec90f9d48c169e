#include "headrace/env/testing/temporary_directory.h"

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <system_error>

namespace headrace {

TemporaryDirectory::TemporaryDirectory() {
  const char* parent = std::getenv("TMPDIR");
  path_ = std::string(parent && *parent ? parent : "/tmp") + "/headrace-test-XXXXXX";
  if (::mkdtemp(path_.data())) return;
  std::perror(("cannot make " + path_).c_str());
  std::abort();
}

TemporaryDirectory::~TemporaryDirectory() {
  namespace fs = std::filesystem;
  std::error_code ignored;
  auto options = fs::directory_options::skip_permission_denied;
  for (auto it = fs::recursive_directory_iterator(path_, options, ignored);
       !ignored && it != fs::recursive_directory_iterator(); it.increment(ignored))
    if (it->is_directory(ignored) && !it->is_symlink(ignored))
      fs::permissions(it->path(), fs::perms::owner_all, fs::perm_options::add, ignored);
  fs::remove_all(path_, ignored);
}

}  // namespace headrace
