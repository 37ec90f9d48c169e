#include "headrace/net/request_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace headrace::net {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(RequestCheck, NamesTheServerOfAUrl) {
  EXPECT_EQ(*OriginOf("http://host"), "http://host");
  EXPECT_EQ(*OriginOf("HTTPS://Host.Example:8443/A/B?c=d"), "https://host.example:8443");
  EXPECT_EQ(*OriginOf("http://user:p@ss@host/x"), "http://host");
  EXPECT_EQ(*OriginOf("http://[::1]:80/x@y"), "http://[::1]:80");
  EXPECT_EQ(*OriginOf("http://host?q=a@b"), "http://host");
}

TEST(RequestCheck, RefusesOtherUrls) {
  for (const char* url :
       {"", "host/x", "ftp://host/x", "file:///etc/passwd", "http://", "http:///x",
        "http://user@/x", "http://host/a b", "http://host/a\nb", "//host/x"})
    EXPECT_EQ(OriginOf(url).status().code(), Code::kInvalidArgument) << url;
}

TEST(RequestCheck, KeepsSecretsOutOfMessages) {
  EXPECT_EQ(UrlForMessages("https://me:secret@host:1/a/b?X-Signature=secret#frag"),
            "https://host:1/a/b");
  EXPECT_EQ(UrlForMessages("https://host?secret"), "https://host");
  EXPECT_EQ(UrlForMessages("nonsense?secret"), "nonsense");
  EXPECT_EQ(UrlForMessages("http://host/a\nb"), "http://host/a\\nb");
  EXPECT_THAT(OriginOf("ftp://me:secret@host/x?secret").status().ToString(),
              Not(HasSubstr("secret")));
}

TEST(RequestCheck, TakesTheFiveMethods) {
  HttpRequest request;
  for (const char* method : {"GET", "HEAD", "PUT", "POST", "DELETE"}) {
    request.method = method;
    EXPECT_TRUE(CheckRequest(request).ok()) << method;
  }
  for (const char* method : {"", "get", "PATCH", "GET / HTTP/1.1\r\nX: y"}) {
    request.method = method;
    EXPECT_EQ(CheckRequest(request).code(), Code::kInvalidArgument) << method;
  }
}

TEST(RequestCheck, RefusesABodyWhereThereIsNone) {
  HttpRequest request;
  request.body = AsBytes("body");
  for (const char* method : {"GET", "HEAD"}) {
    request.method = method;
    EXPECT_EQ(CheckRequest(request).code(), Code::kInvalidArgument) << method;
  }
  request.method = "DELETE";
  EXPECT_TRUE(CheckRequest(request).ok());
}

TEST(RequestCheck, RefusesHeadersThatWouldMakeOthers) {
  HttpRequest request;
  auto check = [&](std::string name, std::string value) {
    request.headers = {{std::move(name), std::move(value)}};
    return CheckRequest(request).code();
  };
  EXPECT_EQ(check("X-Good", "any text: \xc3\xa4 \"\""), Code::kOk);
  EXPECT_EQ(check("X-Empty", ""), Code::kOk);
  EXPECT_EQ(check("X", "a\r\nY: b"), Code::kInvalidArgument);
  EXPECT_EQ(check("X", "a\nb"), Code::kInvalidArgument);
  EXPECT_EQ(check("X", std::string("a\0b", 3)), Code::kInvalidArgument);
  EXPECT_EQ(check("", "a"), Code::kInvalidArgument);
  EXPECT_EQ(check("X:", "a"), Code::kInvalidArgument);
  EXPECT_EQ(check("X Y", "a"), Code::kInvalidArgument);
  EXPECT_EQ(check("X\r\nY", "a"), Code::kInvalidArgument);
}

TEST(RequestCheck, DoesNotTellAHeadersValue) {
  HttpRequest request;
  request.headers = {{"Authorization", "secret\r\n"}};
  EXPECT_THAT(CheckRequest(request).ToString(), Not(HasSubstr("secret")));
}

}  // namespace
}  // namespace headrace::net
