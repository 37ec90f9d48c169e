// Letters and digits of ASCII, whatever the locale says.
#pragma once

#include <string>
#include <string_view>

namespace headrace {

// 0 to 15; -1 for what is no hexadecimal digit.
inline int HexValue(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// A to Z become a to z; all else stays.
inline std::string Lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return lower;
}

}  // namespace headrace
