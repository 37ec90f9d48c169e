#include "headrace/base/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <limits>

namespace headrace {
namespace {

using std::chrono::nanoseconds;
using namespace std::chrono_literals;  // NOLINT: literals only

TEST(Escape, WritesOnePrintableLine) {
  EXPECT_EQ(EscapeText(""), "");
  EXPECT_EQ(EscapeText("plain text, 'quoted'"), "plain text, 'quoted'");
  EXPECT_EQ(EscapeText("a\\b\nc\td\re"), "a\\\\b\\nc\\td\\x0de");
  EXPECT_EQ(EscapeText(std::string_view("\0\x1f\x7f", 3)), "\\x00\\x1f\\x7f");
  EXPECT_EQ(EscapeText("caf\xc3\xa9 \xf0\x9f\x98\x80"), "caf\xc3\xa9 \xf0\x9f\x98\x80");
  EXPECT_EQ(EscapeText("caf\xe9"), "caf\\xe9");
  EXPECT_EQ(EscapeText("\xc2\x9b[31m"), "\\xc2\\x9b[31m");  // a terminal's escape as one character
  EXPECT_EQ(EscapeText("\xc2\xa0"), "\xc2\xa0");
}

TEST(Escape, ReadsBothCasesOfHex) { EXPECT_EQ(*UnescapeText("\\xAf\\xaF"), "\xaf\xaf"); }

TEST(Escape, RefusesWhatItNeverWrites) {
  for (const char* text : {"\\", "a\\", "\\q", "\\x", "\\x1", "\\xg0", "\\x0g", "\\N", "ab\\r"}) {
    Result<std::string> bytes = UnescapeText(text);
    ASSERT_FALSE(bytes.ok()) << text;
    EXPECT_EQ(bytes.status().code(), Code::kInvalidArgument);
    EXPECT_THAT(std::string(bytes.status().message()), ::testing::HasSubstr("at byte"));
  }
  EXPECT_THAT(std::string(UnescapeText("ab\\r").status().message()),
              ::testing::HasSubstr("at byte 2"));
}

RC_GTEST_PROP(Escape, RoundTripsAnyBytes, (const std::vector<uint8_t>& raw)) {
  std::string bytes(raw.begin(), raw.end());
  std::string text = EscapeText(bytes);
  RC_ASSERT(IsValidUtf8(text));
  RC_ASSERT(std::all_of(text.begin(), text.end(),
                        [](unsigned char c) { return c >= 0x20 && c != 0x7f; }));
  Result<std::string> back = UnescapeText(text);
  RC_ASSERT(back.ok());
  RC_ASSERT(*back == bytes);
}

RC_GTEST_PROP(Escape, UnescapeOfAnythingIsAnAnswer, (const std::string& text)) {
  Result<std::string> bytes = UnescapeText(text);
  if (bytes.ok()) RC_ASSERT(bytes->size() <= text.size());
}

TEST(Utf8, KnowsTheBorders) {
  for (const char* good : {"", "a", "\x7f", "\xc2\x80", "\xdf\xbf", "\xe0\xa0\x80", "\xed\x9f\xbf",
                           "\xee\x80\x80", "\xef\xbf\xbf", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"})
    EXPECT_TRUE(IsValidUtf8(good)) << EscapeText(good);
  for (const char* bad :
       {"\x80", "\xbf", "\xc0\x80", "\xc1\xbf", "\xc2", "\xc2\x41", "\xe0\x9f\xbf", "\xe0\xa0",
        "\xed\xa0\x80", "\xed\xbf\xbf", "\xf0\x8f\xbf\xbf", "\xf0\x90\x80", "\xf4\x90\x80\x80",
        "\xf5\x80\x80\x80", "\xff", "a\xff"})
    EXPECT_FALSE(IsValidUtf8(bad)) << EscapeText(bad);
}

TEST(Trim, LeavesOutBlanksAtTheEndsOnly) {
  EXPECT_EQ(Trim(" \t a b \r"), "a b");
  EXPECT_EQ(Trim("ab"), "ab");
  EXPECT_EQ(Trim(" \r\t"), "");
  EXPECT_EQ(Trim(""), "");
  EXPECT_EQ(Trim("\na\n"), "\na\n");
}

TEST(Size, ReadsUnits) {
  EXPECT_EQ(*ParseSize("65536"), 65536u);
  EXPECT_EQ(*ParseSize("0"), 0u);
  EXPECT_EQ(*ParseSize(" 512 B "), 512u);
  EXPECT_EQ(*ParseSize("64KiB"), 65536u);
  EXPECT_EQ(*ParseSize("64 MiB"), 64u << 20);
  EXPECT_EQ(*ParseSize("1.5GiB"), 3u << 29);
  EXPECT_EQ(*ParseSize("2TiB"), uint64_t{2} << 40);
  EXPECT_EQ(*ParseSize("10MB"), 10'000'000u);
  EXPECT_EQ(*ParseSize("10k"), 10'000u);
  EXPECT_EQ(*ParseSize("10M"), 10'000'000u);
  EXPECT_EQ(*ParseSize("1kib"), 1024u);
  EXPECT_EQ(*ParseSize("0.3KiB"), 307u);  // rounded down
  EXPECT_EQ(*ParseSize("0.1GB"), 100'000'000u);
  EXPECT_EQ(*ParseSize("18446744073709551615"), UINT64_MAX);
  EXPECT_EQ(*ParseSize("15EiB"), uint64_t{15} << 60);
}

TEST(Size, RefusesTheRest) {
  for (const char* text : {"",
                           " ",
                           "B",
                           "KiB",
                           "-1",
                           "+1",
                           "1.5",
                           "1.5B",
                           "1e3",
                           "1 2",
                           "1Kib2",
                           "0x10",
                           ".5KiB",
                           "1.KiB",
                           "64XiB",
                           "1,000",
                           "18446744073709551616",
                           "16EiB",
                           "99999999TiB",
                           "1.1234567890123456789KiB",
                           "nan"}) {
    Result<uint64_t> size = ParseSize(text);
    ASSERT_FALSE(size.ok()) << text;
    EXPECT_EQ(size.status().code(), Code::kInvalidArgument);
    EXPECT_THAT(std::string(size.status().message()), ::testing::HasSubstr(text));
  }
}

RC_GTEST_PROP(Size, ReadsEveryNumber, (uint64_t n)) {
  RC_ASSERT(*ParseSize(std::to_string(n)) == n);
}

RC_GTEST_PROP(Size, FormatReadsBackWithinFivePercent, ()) {
  auto shift = *rc::gen::inRange(0, 63);
  uint64_t n = *rc::gen::arbitrary<uint64_t>() >> shift;
  RC_PRE(n < (uint64_t{15} << 60));
  uint64_t back = *ParseSize(FormatSize(n));
  uint64_t off = back > n ? back - n : n - back;
  RC_ASSERT(off <= n / 20);
}

RC_GTEST_PROP(Size, AnythingIsAnAnswer, (const std::string& text)) {
  (void)ParseSize(text);
  (void)ParseDuration(text);
}

TEST(Size, Formats) {
  EXPECT_EQ(FormatSize(0), "0 B");
  EXPECT_EQ(FormatSize(512), "512 B");
  EXPECT_EQ(FormatSize(1023), "1023 B");
  EXPECT_EQ(FormatSize(1024), "1 KiB");
  EXPECT_EQ(FormatSize(1536), "1.5 KiB");
  EXPECT_EQ(FormatSize((1 << 20) - 1), "1 MiB");
  EXPECT_EQ(FormatSize(uint64_t{277} << 20), "277 MiB");
  EXPECT_EQ(FormatSize(UINT64_MAX), "16 EiB");
}

TEST(Duration, ReadsUnits) {
  EXPECT_EQ(*ParseDuration("250ms"), 250ms);
  EXPECT_EQ(*ParseDuration("10s"), 10s);
  EXPECT_EQ(*ParseDuration("10"), 10s);
  EXPECT_EQ(*ParseDuration("10m"), 10min);
  EXPECT_EQ(*ParseDuration("10 min"), 10min);
  EXPECT_EQ(*ParseDuration("2h"), 2h);
  EXPECT_EQ(*ParseDuration("1.5d"), 36h);
  EXPECT_EQ(*ParseDuration("7us"), 7us);
  EXPECT_EQ(*ParseDuration("7ns"), 7ns);
  EXPECT_EQ(*ParseDuration("0.5"), 500ms);
}

TEST(Duration, RefusesTheRest) {
  for (const char* text : {"", "s", "-1s", "1 hour", "10M", "1e3s", "300y", "999999999999h"}) {
    Result<nanoseconds> duration = ParseDuration(text);
    ASSERT_FALSE(duration.ok()) << text;
    EXPECT_EQ(duration.status().code(), Code::kInvalidArgument);
  }
}

TEST(Duration, Formats) {
  EXPECT_EQ(FormatDuration(0ns), "0 ns");
  EXPECT_EQ(FormatDuration(999ns), "999 ns");
  EXPECT_EQ(FormatDuration(412us), "412 us");
  EXPECT_EQ(FormatDuration(1'500ns), "1.5 us");
  EXPECT_EQ(FormatDuration(999'700ns), "1 ms");
  EXPECT_EQ(FormatDuration(12'340us), "12.3 ms");
  EXPECT_EQ(FormatDuration(1250ms), "1.25 s");
  EXPECT_EQ(FormatDuration(10s), "10 s");
  EXPECT_EQ(FormatDuration(59'400ms), "59.4 s");
  EXPECT_EQ(FormatDuration(59'600ms), "1m 0s");
  EXPECT_EQ(FormatDuration(200s), "3m 20s");
  EXPECT_EQ(FormatDuration(2h + 5min + 7s), "2h 5m");
  EXPECT_EQ(FormatDuration(27h), "1d 3h");
  EXPECT_EQ(FormatDuration(-412us), "-412 us");
  EXPECT_EQ(FormatDuration(nanoseconds::min()), "-" + FormatDuration(nanoseconds::max()));
}

TEST(Count, Formats) {
  EXPECT_EQ(FormatCount(0), "0");
  EXPECT_EQ(FormatCount(999), "999");
  EXPECT_EQ(FormatCount(1000), "1,000");
  EXPECT_EQ(FormatCount(1234567), "1,234,567");
  EXPECT_EQ(FormatCount(UINT64_MAX), "18,446,744,073,709,551,615");
}

TEST(HexText, WritesTwoDigitsAByte) {
  EXPECT_EQ(HexText({}), "");
  EXPECT_EQ(HexText(AsBytes(std::string_view("\0\x09\xaf\xff", 4))), "0009afff");
}

TEST(Base64Text, PublishedValues) {  // RFC 4648, 10
  EXPECT_EQ(Base64Text(AsBytes("")), "");
  EXPECT_EQ(Base64Text(AsBytes("f")), "Zg==");
  EXPECT_EQ(Base64Text(AsBytes("fo")), "Zm8=");
  EXPECT_EQ(Base64Text(AsBytes("foo")), "Zm9v");
  EXPECT_EQ(Base64Text(AsBytes("foob")), "Zm9vYg==");
  EXPECT_EQ(Base64Text(AsBytes("fooba")), "Zm9vYmE=");
  EXPECT_EQ(Base64Text(AsBytes("foobar")), "Zm9vYmFy");
  EXPECT_EQ(Base64Text(AsBytes("\xfb\xef\xff")), "++//");
}

TEST(ParseSwitch, KnowsItsWordsAndNamesTheSwitch) {
  for (const char* yes : {"true", "True", "1", "yes", "on"}) EXPECT_TRUE(*ParseSwitch("s", yes));
  for (const char* no : {"false", "False", "0", "no", "off"}) EXPECT_FALSE(*ParseSwitch("s", no));
  Status refused = ParseSwitch("the_switch", "maybe\n").status();
  EXPECT_EQ(refused.code(), Code::kInvalidArgument);
  EXPECT_NE(refused.message().find("the_switch"), std::string_view::npos);
  EXPECT_NE(refused.message().find("maybe\\n"), std::string_view::npos);
}

}  // namespace
}  // namespace headrace
