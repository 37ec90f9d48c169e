#include "headrace/object/uri.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace headrace::object {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(PercentEncode, KeepsOnlyTheUnreserved) {
  EXPECT_EQ(PercentEncode("AZaz09-._~"), "AZaz09-._~");
  EXPECT_EQ(PercentEncode("a b+c%d/e"), "a%20b%2Bc%25d%2Fe");
  EXPECT_EQ(PercentEncode("/a//b/../c", true), "/a//b/../c");
  EXPECT_EQ(PercentEncode("\xc3\xa9\xff\x01"), "%C3%A9%FF%01");
  EXPECT_EQ(PercentEncode(std::string_view("\0", 1)), "%00");
}

TEST(PercentDecode, LeavesWhatIsNoEscape) {
  EXPECT_EQ(PercentDecode("%41%6a%6A"), "Ajj");
  EXPECT_EQ(PercentDecode("%"), "%");
  EXPECT_EQ(PercentDecode("%4"), "%4");
  EXPECT_EQ(PercentDecode("%zz%4g"), "%zz%4g");
  EXPECT_EQ(PercentDecode("a+b"), "a+b");
  EXPECT_EQ(PercentDecode("a+b%2B", true), "a b+");
}

RC_GTEST_PROP(PercentEncode, DecodesToTheSame, (const std::string& bytes, bool keep_slash)) {
  RC_ASSERT(PercentDecode(PercentEncode(bytes, keep_slash), true) == bytes);
}

TEST(ParseUri, TakesApart) {
  auto uri = ParseUri("HTTPS://me:pa%40ss@Data.Example.com:8443/a/../b%20c?x=1&y#part");
  ASSERT_TRUE(uri.ok()) << uri.status().ToString();
  EXPECT_EQ(uri->scheme, "https");
  EXPECT_EQ(uri->user_info, "me:pa%40ss");
  EXPECT_EQ(uri->host, "data.example.com");
  EXPECT_EQ(uri->port, 8443);
  EXPECT_EQ(uri->path, "/a/../b%20c");
  EXPECT_EQ(uri->query, "x=1&y");
  EXPECT_EQ(uri->Authority(), "data.example.com:8443");
}

TEST(ParseUri, LeavesOutTheSchemesOwnPort) {
  EXPECT_EQ(ParseUri("https://h:443")->Authority(), "h");
  EXPECT_EQ(ParseUri("http://h:80/")->Authority(), "h");
  EXPECT_EQ(ParseUri("http://h:443")->Authority(), "h:443");
  EXPECT_EQ(ParseUri("http://[::1]:9000/x")->Authority(), "[::1]:9000");
  EXPECT_EQ(ParseUri("http://[::1]")->host, "[::1]");
}

TEST(ParseUri, RefusesWhatIsNoAddressWithoutQuotingIt) {
  for (const char* text : {"", "secret", "ftp://secret/", "http://", "http:///secret",
                           "http://h:0/", "http://h:99999/", "http://h:8x/", "http://a b/",
                           "http://a\n/", "http://[]/", "http://secret,x/", "http://u:secret@/"}) {
    auto uri = ParseUri(text);
    ASSERT_FALSE(uri.ok()) << text;
    EXPECT_EQ(uri.status().code(), Code::kInvalidArgument);
    EXPECT_THAT(uri.status().ToString(), Not(HasSubstr("secret")));
  }
}

}  // namespace
}  // namespace headrace::object
