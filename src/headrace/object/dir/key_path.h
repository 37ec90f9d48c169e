// How a key becomes a path below a store's folder. A part of a key (what stands between two '/')
// that can be a file's name is that name, so that a folder of ordinary files is a store as it is.
// Others are written so that no two keys share a path and none leaves the folder:
//
//   "%=" + the part with all but letters, digits, '_' and '-' as %XX   "" "." ".." "a\0b"
//   "%+" + its first 80 bytes written so, a folder for the rest         more than 255 bytes
//
// So are parts that begin with "%=", "%+" or kReservedPrefix, the store's own names. Pure
// functions, safe from any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace headrace::object {

inline constexpr std::string_view kReservedPrefix = ".headrace-";

// "a//b" -> "a/%=/b". Of a key that is not empty.
std::string PathOfKey(std::string_view key);

// What a name in the store's folder stands for.
struct NamedPart {
  std::string text;
  bool goes_on = false;  // a folder of what follows in the same part
};
// Empty for a name that PathOfKey does not give (a temporary file).
std::optional<NamedPart> PartOfName(std::string_view name);

}  // namespace headrace::object
