// Any bytes as an HTTP request: limits hold, names are in lower case, and what is a whole request
// is none before its last byte.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "headrace/net/request_reader.h"

namespace {

void Require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const headrace::net::RequestLimits limits{.head_bytes = 512, .headers = 8, .body_bytes = 64};
  auto request = headrace::net::ReadRequest(bytes, limits);
  if (!request.ok()) {
    Require(!request.status().message().empty());
    Require(headrace::net::StatusForFailure(request.status().code()) >= 400);
    return 0;
  }
  if (!*request) {
    Require(size < limits.head_bytes + limits.body_bytes);
    return 0;
  }
  const auto& whole = **request;
  Require(whole.path.starts_with('/') && whole.path.find('?') == std::string::npos);
  Require(whole.headers.size() <= limits.headers && whole.body.size() <= limits.body_bytes);
  for (const auto& header : whole.headers)
    Require(std::none_of(header.name.begin(), header.name.end(),
                         [](char c) { return c >= 'A' && c <= 'Z'; }));
  auto shorter = headrace::net::ReadRequest(bytes.substr(0, size - 1), limits);
  Require(!shorter.ok() || !*shorter || (**shorter).body == whole.body);
  return 0;
}
