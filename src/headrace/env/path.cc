#include "headrace/env/file.h"

namespace headrace {

namespace {
std::string_view WithoutTrailingSlashes(std::string_view path) {
  while (path.size() > 1 && path.back() == '/') path.remove_suffix(1);
  return path;
}
}  // namespace

std::string JoinPath(std::string_view directory, std::string_view name) {
  while (!directory.empty() && !name.empty() && name.front() == '/') name.remove_prefix(1);
  if (directory.empty() || name.empty()) return std::string(directory.empty() ? name : directory);
  directory = WithoutTrailingSlashes(directory);
  std::string path(directory);
  if (path.back() != '/') path += '/';
  return path.append(name);
}

std::string_view BaseName(std::string_view path) {
  path = WithoutTrailingSlashes(path);
  size_t slash = path.rfind('/');
  if (slash == std::string_view::npos || path.size() == 1) return path;
  return path.substr(slash + 1);
}

std::string_view DirectoryName(std::string_view path) {
  path = WithoutTrailingSlashes(path);
  size_t slash = path.rfind('/');
  if (slash == std::string_view::npos) return ".";
  return WithoutTrailingSlashes(path.substr(0, slash == 0 ? 1 : slash));
}

}  // namespace headrace
