// What can be said about a request before it is sent. Pure functions, safe from any thread.
#pragma once

#include <string>
#include <string_view>

#include "headrace/base/status.h"
#include "headrace/net/http_client.h"

namespace headrace::net {

// The part of a URL that names the server, "https://host:443" (scheme and host in lower case,
// without user and password). kInvalidArgument when `url` is not http:// or https:// with a host,
// or has a space or control character.
Result<std::string> OriginOf(std::string_view url);

// A URL for messages: without user, password, query and fragment, which can hold secrets; escaped
// (base/text.h).
std::string UrlForMessages(std::string_view url);

// kInvalidArgument, as HttpClient::Submit has it, for everything but the URL.
Status CheckRequest(const HttpRequest& request);

}  // namespace headrace::net
