#include "headrace/object/dir/key_path.h"

#include <algorithm>

namespace headrace::object {

namespace {

constexpr size_t kMaxNameBytes = 255;
constexpr size_t kChunkBytes = 80;  // of a long part: written with three bytes each it is a name
constexpr std::string_view kWhole = "%=", kGoesOn = "%+";
constexpr std::string_view kHexDigits = "0123456789ABCDEF";

bool IsName(std::string_view part) {
  return !part.empty() && part != "." && part != ".." && part.size() <= kMaxNameBytes &&
         part.find('\0') == std::string_view::npos && !part.starts_with(kWhole) &&
         !part.starts_with(kGoesOn) && !part.starts_with(kReservedPrefix);
}

bool IsPlain(char c) {
  return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_' ||
         c == '-';
}

void AppendWritten(std::string_view text, std::string* out) {
  for (char c : text) {
    if (IsPlain(c)) {
      *out += c;
    } else {
      auto byte = static_cast<unsigned char>(c);
      *out += '%';
      *out += kHexDigits[byte >> 4];
      *out += kHexDigits[byte & 15];
    }
  }
}

void AppendPart(std::string_view part, std::string* path) {
  if (IsName(part)) {
    path->append(part);
    return;
  }
  for (; part.size() > kChunkBytes; part.remove_prefix(kChunkBytes)) {
    path->append(kGoesOn);
    AppendWritten(part.substr(0, kChunkBytes), path);
    *path += '/';
  }
  path->append(kWhole);
  AppendWritten(part, path);
}

std::optional<std::string> Read(std::string_view written) {
  std::string text;
  for (size_t i = 0; i < written.size(); ++i) {
    if (written[i] != '%') {
      text += written[i];
      continue;
    }
    size_t high = i + 1 < written.size() ? kHexDigits.find(written[i + 1]) : kHexDigits.npos;
    size_t low = i + 2 < written.size() ? kHexDigits.find(written[i + 2]) : kHexDigits.npos;
    if (high == kHexDigits.npos || low == kHexDigits.npos) return std::nullopt;
    text += static_cast<char>(high << 4 | low);
    i += 2;
  }
  return text;
}

}  // namespace

std::string PathOfKey(std::string_view key) {
  std::string path;
  while (true) {
    size_t end = std::min(key.find('/'), key.size());
    AppendPart(key.substr(0, end), &path);
    if (end == key.size()) return path;
    path += '/';
    key.remove_prefix(end + 1);
  }
}

std::optional<NamedPart> PartOfName(std::string_view name) {
  if (IsName(name)) return NamedPart{std::string(name), false};
  bool goes_on = name.starts_with(kGoesOn);
  if (!goes_on && !name.starts_with(kWhole)) return std::nullopt;
  std::optional<std::string> text = Read(name.substr(2));
  if (!text) return std::nullopt;
  // Only as it is written, or two names would be the same part.
  std::string again(name.substr(0, 2));
  AppendWritten(*text, &again);
  bool right =
      again == name && (goes_on ? text->size() == kChunkBytes : text->size() <= kChunkBytes);
  if (!right) return std::nullopt;
  return NamedPart{*std::move(text), goes_on};
}

}  // namespace headrace::object
