#include "headrace/object/retry_after.h"

#include <gtest/gtest.h>

#include "headrace/object/timestamp.h"

namespace headrace::object {
namespace {

using std::chrono::hours;
using std::chrono::seconds;
using Wait = std::optional<std::chrono::nanoseconds>;

Wait Read(std::vector<net::HttpHeader> headers) {
  net::HttpResponse response;
  response.status = 503;
  response.headers = std::move(headers);
  return ReadRetryAfter(response, *ParseHttpDate("Fri, 24 May 2013 00:00:00 GMT"));
}

TEST(ReadRetryAfter, ReadsSeconds) {
  EXPECT_EQ(Read({{"retry-after", "7"}}), Wait(seconds(7)));
  EXPECT_EQ(Read({{"retry-after", "0"}}), Wait(seconds(0)));
  EXPECT_EQ(Read({{"retry-after", "86401"}}), Wait(hours(24)));
  EXPECT_EQ(Read({{"retry-after", "99999999999999999999999999"}}), Wait(hours(24)));
}

TEST(ReadRetryAfter, ReadsADateByTheServersOwnClock) {
  const net::HttpHeader later{"retry-after", "Fri, 24 May 2013 00:00:30 GMT"};
  EXPECT_EQ(Read({later}), Wait(seconds(30)));
  EXPECT_EQ(Read({later, {"date", "Fri, 24 May 2013 00:00:20 GMT"}}), Wait(seconds(10)));
  EXPECT_EQ(Read({later, {"date", "Fri, 24 May 2013 01:00:00 GMT"}}), Wait(seconds(0)));
  EXPECT_EQ(Read({later, {"date", "whenever"}}), Wait(seconds(30)));
  EXPECT_EQ(Read({{"retry-after", "Fri, 24 May 2023 00:00:00 GMT"}}), Wait(hours(24)));
}

TEST(ReadRetryAfter, LeavesTheRestAlone) {
  for (const char* text : {"", "-1", "1.5", "soon", "7 s", "Fri, 24 May 2013"})
    EXPECT_EQ(Read({{"retry-after", text}}), std::nullopt) << text;
  EXPECT_EQ(Read({}), std::nullopt);
}

}  // namespace
}  // namespace headrace::object
