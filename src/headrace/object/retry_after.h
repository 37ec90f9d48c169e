// The wait that a server asks for: the header Retry-After of an answer. Pure, safe from any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "headrace/net/http_client.h"

namespace headrace::object {

// Reads seconds ("120") or a date. A date is held against the answer's own Date, which is of the
// same clock, else against `now_ns` (since 1970); one that has passed is 0. At most a day. None
// where there is no such header, or it is neither.
std::optional<std::chrono::nanoseconds> ReadRetryAfter(const net::HttpResponse& response,
                                                       int64_t now_ns);

}  // namespace headrace::object
