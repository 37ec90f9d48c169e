// Places by URL: "s3://bucket/prefix", "https://host/folder", "file:///folder". Pure functions,
// safe from any thread.
#pragma once

#include <string>
#include <string_view>

#include "headrace/base/status.h"

namespace headrace::object {

struct Url {
  std::string scheme;     // in lower case
  std::string authority;  // bucket, or [user[:password]@]host[:port]
  std::string path;       // "" or from its '/' on, as it was written
  std::string query;      // behind '?', of http and https only: a bucket's keys may hold a '?'
};

// kInvalidArgument when `text` is no URL; the message does not repeat a password or a query.
Result<Url> ParseUrl(std::string_view text);
// "%41+" -> "A+". kInvalidArgument for a '%' that is not followed by two hex digits.
Result<std::string> DecodePercent(std::string_view text);
// The URL for messages: without user, password and query.
std::string WithoutSecrets(const Url& url);

}  // namespace headrace::object
