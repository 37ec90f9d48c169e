#include "headrace/object/url.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headrace/object/url_settings.h"

namespace headrace::object {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Url Parse(const std::string& text) {
  auto url = ParseUrl(text);
  EXPECT_TRUE(url.ok()) << url.status().ToString();
  return url.ok() ? *url : Url();
}

TEST(Url, HasParts) {
  Url url = Parse("s3://bucket/a b/c?d#e");
  EXPECT_EQ(url.scheme, "s3");
  EXPECT_EQ(url.authority, "bucket");
  EXPECT_EQ(url.path, "/a b/c?d#e") << "a key may hold anything";
  url = Parse("HTTPS://user:word@host:8080/a/b?token=1&x=2#there");
  EXPECT_EQ(url.scheme, "https");
  EXPECT_EQ(url.authority, "user:word@host:8080");
  EXPECT_EQ(url.path, "/a/b");
  EXPECT_EQ(url.query, "token=1&x=2");
  EXPECT_EQ(Parse("https://host").path, "");
  EXPECT_EQ(Parse("https://host?x").query, "x");
  EXPECT_EQ(Parse("file:///a/b").path, "/a/b");
  EXPECT_EQ(Parse("s3://bucket").path, "");
  EXPECT_EQ(Parse("s3://bucket//a").path, "//a");
}

TEST(Url, RefusesOthers) {
  for (const char* text : {"", "a/b", "/a", "s3:/bucket", "://x", "s3://", "https:///a"})
    EXPECT_EQ(ParseUrl(text).status().code(), Code::kInvalidArgument) << text;
}

TEST(Url, KeepsSecretsOutOfMessages) {
  EXPECT_EQ(WithoutSecrets(Parse("https://user:p@ss@host/a?token=1")), "https://host/a");
  EXPECT_THAT(ParseUrl("https://?token=secret").status().ToString(), Not(HasSubstr("secret")));
}

TEST(Url, DecodesPercents) {
  EXPECT_EQ(*DecodePercent("/a%20b%2Fc%25+~%e9"), "/a b/c%+~\xe9");
  for (const char* text : {"%", "%4", "%zz", "a%2", "%-1", "% 1"})
    EXPECT_EQ(DecodePercent(text).status().code(), Code::kInvalidArgument) << text;
}

TEST(UrlSettings, AreReadByName) {
  auto settings = ReadUrlSettings({{"endpoint", "http://127.0.0.1:9000"},
                                   {"region", "eu-west-1"},
                                   {"anonymous", "true"},
                                   {"path_style", "false"},
                                   {"connections", "10"},
                                   {"retry_budget", "1.5s"},
                                   {"bandwidth", "200MiB"}});
  ASSERT_TRUE(settings.ok()) << settings.status().ToString();
  EXPECT_EQ(settings->s3.endpoint, "http://127.0.0.1:9000");
  EXPECT_EQ(settings->s3.region, "eu-west-1");
  EXPECT_TRUE(settings->s3.anonymous);
  EXPECT_EQ(settings->s3.path_style, std::optional<bool>(false));
  EXPECT_EQ(settings->connections, 10u);
  EXPECT_EQ(settings->retry_budget, std::chrono::milliseconds(1500));
  EXPECT_EQ(settings->bandwidth_bytes, uint64_t{200} << 20);
}

TEST(UrlSettings, RefuseWhatTheyDoNotKnow) {
  Status unknown = ReadUrlSettings({{"endpont", "x"}}).status();
  EXPECT_EQ(unknown.code(), Code::kInvalidArgument);
  EXPECT_THAT(unknown.ToString(), HasSubstr("endpoint, region, profile"));
  for (const auto& [name, value] : std::map<std::string, std::string>{{"anonymous", "maybe"},
                                                                      {"path_style", ""},
                                                                      {"connections", "0"},
                                                                      {"retry_budget", "x"},
                                                                      {"bandwidth", "fast"}}) {
    Status refused = ReadUrlSettings({{name, value}}).status();
    EXPECT_EQ(refused.code(), Code::kInvalidArgument) << name;
    EXPECT_THAT(refused.ToString(), HasSubstr(name));
  }
}

TEST(UrlSettings, EqualOnesHaveOneFingerprint) {
  auto settings = [](const std::map<std::string, std::string>& named) {
    return ReadUrlSettings(named)->Fingerprint();
  };
  EXPECT_EQ(settings({{"region", "a"}}), settings({{"region", "a"}}));
  EXPECT_NE(settings({{"region", "a"}}), settings({{"region", "b"}}));
  EXPECT_NE(settings({{"region", "a"}, {"profile", "bc"}}),
            settings({{"region", "ab"}, {"profile", "c"}}));
  EXPECT_NE(settings({}), settings({{"path_style", "true"}}));
  EXPECT_NE(settings({}), settings({{"bandwidth", "1MiB"}}));
  EXPECT_NE(settings({{"path_style", "false"}}), settings({{"path_style", "true"}}));
}

}  // namespace
}  // namespace headrace::object
