#include "headrace/object/timestamp.h"

#include <gtest/gtest.h>

namespace headrace::object {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

TEST(ParseIso8601, ReadsTheFormsThatServersWrite) {
  EXPECT_EQ(ParseIso8601("1970-01-01T00:00:00Z"), 0);
  EXPECT_EQ(ParseIso8601("2013-05-24T00:00:00Z"), 1369353600 * kSecond);
  EXPECT_EQ(ParseIso8601("2013-05-24T00:00:00.000Z"), 1369353600 * kSecond);
  EXPECT_EQ(ParseIso8601("2013-05-24T00:00:00.25Z"), 1369353600 * kSecond + kSecond / 4);
  EXPECT_EQ(ParseIso8601("2013-05-24T02:00:00+02:00"), 1369353600 * kSecond);
  EXPECT_EQ(ParseIso8601("2013-05-23T22:30:00-0130"), 1369353600 * kSecond);
  EXPECT_EQ(ParseIso8601("2024-02-29T23:59:60Z"), 1709251200 * kSecond);
}

TEST(ParseIso8601, RefusesOthers) {
  for (const char* text :
       {"", "2013", "2013-05-24", "2013-05-24T00:00:00", "2013-13-24T00:00:00Z",
        "2013-02-29T00:00:00Z", "2013-05-24T24:00:00Z", "2013-05-24T00:00:00Zx",
        "2013-05-24 00:00:00Z", "20130524T000000Z", "x013-05-24T00:00:00Z", "9999-05-24T00:00:00Z"})
    EXPECT_EQ(ParseIso8601(text), std::nullopt) << text;
}

TEST(ParseHttpDate, ReadsTheOneForm) {
  EXPECT_EQ(ParseHttpDate("Fri, 24 May 2013 00:00:00 GMT"), 1369353600 * kSecond);
  EXPECT_EQ(ParseHttpDate("Wed, 21 Oct 2015 07:28:00 GMT"), 1445412480 * kSecond);
  for (const char* text : {"", "Fri, 24 May 2013 00:00:00", "24 May 2013 00:00:00 GMT",
                           "Fri, 24 Mai 2013 00:00:00 GMT", "Fri, 24 May 2013 00:00:00 CET"})
    EXPECT_EQ(ParseHttpDate(text), std::nullopt) << text;
}

TEST(FormatBasicIso8601, WritesWhatSignaturesWant) {
  EXPECT_EQ(FormatBasicIso8601(0), "19700101T000000Z");
  EXPECT_EQ(FormatBasicIso8601(1369353600 * kSecond + 999), "20130524T000000Z");
  EXPECT_EQ(FormatBasicIso8601(1709251199 * kSecond), "20240229T235959Z");
}

}  // namespace
}  // namespace headrace::object
