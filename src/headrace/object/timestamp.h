// Times as protocols write them, in UTC, as nanoseconds since 1970. Pure functions, safe from any
// thread; no locale and no time zone of the machine counts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace headrace::object {

// Reads "2019-05-29T00:21:43Z", with a fraction and "+01:00" where there are, or "+0000". None when
// it is something else.
std::optional<int64_t> ParseIso8601(std::string_view text);
// Reads the date of an HTTP header: "Wed, 21 Oct 2015 07:28:00 GMT".
std::optional<int64_t> ParseHttpDate(std::string_view text);
// Writes "20130524T000000Z", as signatures want it.
std::string FormatBasicIso8601(int64_t time_ns);

}  // namespace headrace::object
