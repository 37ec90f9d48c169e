#include "headrace/object/retry_after.h"

#include <algorithm>
#include <charconv>

#include "headrace/object/timestamp.h"

namespace headrace::object {

std::optional<std::chrono::nanoseconds> ReadRetryAfter(const net::HttpResponse& response,
                                                       int64_t now_ns) {
  constexpr std::chrono::nanoseconds kNone(0), kLongest = std::chrono::hours(24);
  std::string_view text = response.Header("retry-after");
  if (text.empty()) return std::nullopt;
  if (text.find_first_not_of("0123456789") == std::string_view::npos) {
    int64_t seconds = 0;
    auto read = std::from_chars(text.data(), text.data() + text.size(), seconds);
    const int64_t most = std::chrono::seconds(std::chrono::hours(24)).count();
    if (read.ec != std::errc() || seconds > most) return kLongest;  // also what has no 64 bits
    return std::chrono::seconds(seconds);
  }
  std::optional<int64_t> then_ns = ParseHttpDate(text);
  if (!then_ns) return std::nullopt;
  const int64_t since_ns = ParseHttpDate(response.Header("date")).value_or(now_ns);
  return std::clamp(std::chrono::nanoseconds(*then_ns - since_ns), kNone, kLongest);
}

}  // namespace headrace::object
