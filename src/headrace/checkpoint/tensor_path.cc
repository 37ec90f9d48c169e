#include "headrace/checkpoint/tensor_path.h"

#include <fmt/format.h>

#include "headrace/base/text.h"

namespace headrace::checkpoint {

void AppendKey(std::string_view key, std::string* path) {
  path->push_back('/');
  for (char c : key) {
    if (c == '~') {
      path->append("~0");
    } else if (c == '/') {
      path->append("~1");
    } else {
      path->push_back(c);
    }
  }
}

Result<std::vector<std::string>> SplitPath(std::string_view path) {
  auto refuse = [path](std::string_view why) {
    return Error(Code::kInvalidArgument, "'{}' is no path of a tensor: {}",
                 EscapeText(path.substr(0, 200)), why);
  };
  std::vector<std::string> keys;
  if (!path.empty() && path.front() != '/') return refuse("it does not begin with '/'");
  for (size_t i = 0; i < path.size(); ++i) {
    if (path[i] == '/') {
      keys.emplace_back();
    } else if (path[i] != '~') {
      keys.back().push_back(path[i]);
    } else {
      const char next = ++i < path.size() ? path[i] : '\0';
      if (next != '0' && next != '1') return refuse("'~' stands before neither 0 nor 1");
      keys.back().push_back(next == '0' ? '~' : '/');
    }
  }
  return keys;
}

Result<std::string> GroupOf(std::string_view path) {
  HR_ASSIGN_OR_RETURN(std::vector<std::string> keys, SplitPath(path));
  return keys.size() < 2 ? std::string() : std::move(keys.front());
}

Result<std::string> EntryName(std::string_view path) {
  HR_ASSIGN_OR_RETURN(std::vector<std::string> keys, SplitPath(path));
  if (keys.empty()) return std::string("tensor");
  std::string name = keys.size() == 1 ? keys[0] : keys[1];
  for (size_t i = 2; i < keys.size(); ++i) name.append(".").append(keys[i]);
  return name;
}

Result<std::string> EntryName(std::string_view path, BoxView box, Extents shape) {
  HR_ASSIGN_OR_RETURN(std::string name, EntryName(path));
  if (IsWhole(box, shape)) return name;
  for (size_t k = 0; k < box.dimensions(); ++k)
    name += fmt::format("{}{}", k == 0 ? "@" : ",", box.offset[k]);
  return name;
}

}  // namespace headrace::checkpoint
