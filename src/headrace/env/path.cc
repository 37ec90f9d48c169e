#include <algorithm>

#include "headrace/env/file.h"

namespace headrace {

namespace {

// The length of "s3://bucket" in "s3://bucket/a"; 0 for what is no URL.
size_t UrlRootBytes(std::string_view path) {
  size_t colon = path.find("://");
  if (colon == std::string_view::npos || colon == 0) return 0;
  bool letters =
      std::all_of(path.begin(), path.begin() + static_cast<ptrdiff_t>(colon), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
               c == '+' || c == '-' || c == '.';
      });
  return letters ? std::min(path.find('/', colon + 3), path.size()) : 0;
}

std::string_view WithoutTrailingSlashes(std::string_view path) {
  size_t root = std::max<size_t>(UrlRootBytes(path), 1);
  while (path.size() > root && path.back() == '/') path.remove_suffix(1);
  return path;
}

}  // namespace

Status FileSystem::WriteDirect(const std::string& path, std::span<const Bytes> parts) {
  HR_ASSIGN_OR_RETURN(auto file, Create(path));
  for (Bytes part : parts) HR_RETURN_IF_ERROR(file->Append(part));
  return file->Close();
}

bool IsUrl(std::string_view path) { return UrlRootBytes(path) > 0; }

std::string_view UrlRoot(std::string_view path) { return path.substr(0, UrlRootBytes(path)); }

bool IsAbsolutePath(std::string_view path) { return path.starts_with('/') || IsUrl(path); }

std::string JoinPath(std::string_view directory, std::string_view name) {
  while (!directory.empty() && !name.empty() && name.front() == '/') name.remove_prefix(1);
  if (directory.empty() || name.empty()) return std::string(directory.empty() ? name : directory);
  directory = WithoutTrailingSlashes(directory);
  std::string path(directory);
  if (path.back() != '/' || IsUrl(path)) path += '/';
  return path.append(name);
}

std::string_view BaseName(std::string_view path) {
  path = WithoutTrailingSlashes(path);
  size_t slash = path.rfind('/');
  if (slash == std::string_view::npos || path.size() == 1 || path.size() <= UrlRootBytes(path))
    return path;
  return path.substr(slash + 1);
}

std::string_view DirectoryName(std::string_view path) {
  path = WithoutTrailingSlashes(path);
  size_t slash = path.rfind('/');
  if (slash == std::string_view::npos) return ".";
  size_t root = UrlRootBytes(path);
  if (path.size() <= root) return path;
  return WithoutTrailingSlashes(path.substr(0, slash == 0 ? 1 : slash));
}

}  // namespace headrace
