// Addresses and their percent-encoding (RFC 3986), for bytes of any kind. Pure functions, safe from
// any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "headrace/base/status.h"

namespace headrace::object {

// Writes each byte but A-Z a-z 0-9 - . _ ~ as %XX, in upper case; '/' stays with `keep_slash`.
std::string PercentEncode(std::string_view bytes, bool keep_slash = false);
// Reverses it. What is no %XX stays as it is; '+' becomes a space with `plus_is_space`.
std::string PercentDecode(std::string_view text, bool plus_is_space = false);

struct Uri {
  std::string scheme;     // in lower case: "https"
  std::string user_info;  // "user:password", still encoded; secret
  std::string host;       // in lower case; an IPv6 address in its brackets
  uint16_t port = 0;      // 0: the scheme's own
  std::string path;       // as it was, still encoded; empty or with a '/' in front
  std::string query;      // without its '?'; may hold secrets

  // "host:port", without the port where it is the scheme's own.
  std::string Authority() const;
};

// Reads "http://..." or "https://...". A part behind '#' is dropped. kInvalidArgument does not
// quote the text, which may hold secrets.
Result<Uri> ParseUri(std::string_view text);

}  // namespace headrace::object
