// Options of clients in tests that are not about limits of time. For tests only.
#pragma once

#include <chrono>

#include "headrace/net/http_client.h"

namespace headrace::net {

// These options, with limits of time that no busy machine reaches in place of the usual ones. What
// a test has set stays.
inline HttpClientOptions Patient(HttpClientOptions options = {}) {
  const HttpClientOptions usual;
  const auto extend = [](std::chrono::milliseconds* limit, std::chrono::milliseconds as_usual) {
    if (*limit == as_usual) *limit = std::chrono::hours(1);
  };
  extend(&options.connect_timeout, usual.connect_timeout);
  extend(&options.stall_timeout, usual.stall_timeout);
  extend(&options.slow_window, usual.slow_window);
  return options;
}

}  // namespace headrace::net
