// Text a person reads or types: sizes like "64MiB", times like "10m", and keys that may hold any
// bytes; and bytes as hex digits and base64. Pure functions, safe from any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "headrace/base/bytes.h"
#include "headrace/base/status.h"

namespace headrace {

// Returns `bytes` with control characters (C0, DEL, C1), backslash and what is not valid UTF-8
// written as \n, \t, \\ or \xHH (lower case), so that the result is one printable line of valid
// UTF-8. UnescapeText turns it back.
std::string EscapeText(std::string_view bytes);
// Reverses EscapeText; hex digits may be upper case too. kInvalidArgument on any other escape names
// its offset.
Result<std::string> UnescapeText(std::string_view text);
// Returns true when `bytes` is valid UTF-8 (no surrogates, no overlong forms).
bool IsValidUtf8(std::string_view bytes);

// Writes bytes as lower-case hex digits, two each.
std::string HexText(Bytes bytes);
// Writes bytes as base64 (RFC 4648, with '=' at the end).
std::string Base64Text(Bytes bytes);

// Leaves out spaces, tabs and carriage returns at both ends.
std::string_view Trim(std::string_view text);

// Reads "65536", "64KiB", "64 MiB", "1.5GiB", "2TiB", "10MB" (powers of ten), "10k"/"10M" (counts);
// upper or lower case, rounded down. Exact: no floating point. kInvalidArgument names the text and
// shows an example.
Result<uint64_t> ParseSize(std::string_view text);
// Writes 1536 as "1.5 KiB"; below 1 KiB as "512 B".
std::string FormatSize(uint64_t bytes);
// Reads "250ms", "10s", "10m", "2h", "1.5d" (ns, us, ms, s, m or min, h, d). A bare number is
// seconds. kInvalidArgument names the text and shows an example.
Result<std::chrono::nanoseconds> ParseDuration(std::string_view text);
// Writes "1.25 s", "3m 20s", "412 us".
std::string FormatDuration(std::chrono::nanoseconds duration);
// Writes 1234567 as "1,234,567".
std::string FormatCount(uint64_t count);

// Reads a switch: true, 1, yes, on, or false, 0, no, off. kInvalidArgument names it by `name`.
Result<bool> ParseSwitch(std::string_view name, std::string_view value);

}  // namespace headrace
