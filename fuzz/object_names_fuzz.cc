// Any bytes as a key, as a name found in a folder, and as a URL: a key's path stays inside its
// folder and tells the key, a name stands for the part it is written for, and a URL's parts and
// messages hold no secrets.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "headrace/env/file.h"
#include "headrace/object/dir/key_path.h"
#include "headrace/object/url.h"

namespace {

void Expect(bool right) {
  if (!right) std::abort();
}

void CheckKey(std::string_view key) {
  using headrace::object::PartOfName;
  const std::string path = headrace::object::PathOfKey(key);
  std::string again;
  for (size_t begin = 0; begin <= path.size();) {
    size_t end = std::min(path.find('/', begin), path.size());
    const std::string name = path.substr(begin, end - begin);
    Expect(!name.empty() && name != "." && name != ".." && name.size() <= 255);
    Expect(name.find('\0') == std::string::npos);
    auto part = PartOfName(name);
    Expect(part.has_value());
    again += part->text;
    if (end < path.size() && !part->goes_on) again += '/';
    begin = end + 1;
  }
  Expect(again == key);
}

void CheckUrl(std::string_view text) {
  auto url = headrace::object::ParseUrl(text);
  if (!url.ok()) return;
  Expect(headrace::IsUrl(text) && !url->scheme.empty());
  const std::string shown = headrace::object::WithoutSecrets(*url);
  Expect(headrace::IsUrl(shown));
  Expect(shown.size() <= text.size());
  (void)headrace::object::DecodePercent(url->path);
  std::string_view root = headrace::UrlRoot(text);
  Expect(!root.empty() && headrace::DirectoryName(root) == root);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (!text.empty() && text.size() <= 1024) CheckKey(text);
  if (text.find('/') == std::string_view::npos) (void)headrace::object::PartOfName(text);
  CheckUrl(text);
  return 0;
}
