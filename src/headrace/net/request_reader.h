// Reads one HTTP/1.x request from the bytes that a stranger sent, and writes answers. For the admin
// server: one request for each connection, small bodies of a told length. Pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/status.h"
#include "headrace/net/http_client.h"

namespace headrace::net {

struct ReceivedRequest {
  std::string method;               // upper case letters
  std::string path;                 // the target up to "?", not decoded; begins with "/"
  std::string query;                // behind it; may be empty
  std::vector<HttpHeader> headers;  // in order; names in lower case
  std::string body;

  // The value of a header by its name in lower case; empty when it is not there.
  std::string_view Header(std::string_view name) const;
};

struct RequestLimits {
  size_t head_bytes = 8 << 10;  // request line and headers
  size_t headers = 64;
  size_t body_bytes = 4 << 10;
};

// Returns nothing while the request is not whole. What comes after it is not looked at.
//   kInvalidArgument    no HTTP request, or one that could be read in two ways (a header twice that
//                       tells the length or the host, a control character, an odd length).
//   kResourceExhausted  a limit.
//   kUnimplemented      another version than 1.x, or a Transfer-Encoding.
Result<std::optional<ReceivedRequest>> ReadRequest(std::string_view bytes,
                                                   const RequestLimits& limits = {});

// A whole answer that ends the connection. `status` is one of 200, 400, 401, 403, 404, 405, 409,
// 413, 415, 500, 501 and 503. Browsers are told to keep nothing, guess no type and let no other
// page show it.
std::string WriteAnswer(int status, std::string_view content_type, std::string_view body,
                        const std::vector<HttpHeader>& more = {});

// The status that tells a failure: 400 for kInvalidArgument, 404 for kNotFound...
int StatusForFailure(Code code);

}  // namespace headrace::net
