#include "headrace/base/redaction.h"

#include <gtest/gtest.h>

#include <initializer_list>
#include <string>

namespace headrace {
namespace {

TEST(Redaction, ReplacesWhatIsSecret) {
  struct Row {
    const char *text, *shown;
  };
  for (const Row& row : std::initializer_list<Row>{
           {"GET https://me:pa%2Fss@host/a failed", "GET https://***@host/a failed"},
           {"s3://AKIAIOSFODNN7EXAMPLE:ab/cd+e@bucket/k", "s3://***@bucket/k"},
           {"'http://u:p@w@host:80/'", "'http://***@host:80/'"},
           {"https://host/a?sv=2020&sig=x%2By%3D&se=1", "https://host/a?sv=2020&sig=***&se=1"},
           {"?X-Amz-Credential=AKIA/2026&X-Amz-Signature=0af&X-Amz-Security-Token=Fwo",
            "?X-Amz-Credential=***&X-Amz-Signature=***&X-Amz-Security-Token=***"},
           {"AWS_SECRET_ACCESS_KEY=wJalr/K7+x= next", "AWS_SECRET_ACCESS_KEY=*** next"},
           {"aws_session_token = \"Fwo GZ\"", "aws_session_token = \"***\""},
           {"{'session_token': 'abc', 'region': 'r'}", "{'session_token': '***', 'region': 'r'}"},
           {R"({"SecretAccessKey" : "abc"})", R"({"SecretAccessKey" : "***"})"},
           {"Authorization: Bearer 0123456789abcdef", "Authorization: Bearer ***"},
           {"authorization: Basic bWU6c2VjcmV0LXdvcmQ=", "authorization: Basic ***"},
           {"key AKIAIOSFODNN7EXAMPLE is unknown", "key *** is unknown"},
           {"password=a token=b", "password=*** token=***"},
           {"AccountKey=abc==;EndpointSuffix=x", "AccountKey=***;EndpointSuffix=x"},
       })
    EXPECT_EQ(RedactSecrets(row.text), row.shown);
}

TEST(Redaction, LeavesTheRestAsItIs) {
  for (const char* text : {
           "",
           "=",
           ":",
           "://",
           "a=b",
           "the token: at least 16 characters",
           "wants 'Authorization: Bearer TOKEN'",
           "Basic authentication",
           "tokens=4096",
           "s3://bucket/a@b/c.tar",
           "http://[::1]:80/a@b",
           "http://host:9400/x@y",
           "s3://tenant:bucket/a b",
           "AKIAIOSFODNN7EXAMPLEX",
           "design=3",
           "sig=",
           "secret=",
           "loss=0.1 step=7",
           "'token': 5",
           "\xff\xfe=\x80",
           "bearer x",
       })
    EXPECT_EQ(RedactSecrets(text), text);
}

TEST(Redaction, FindsWhatItWasTold) {
  RememberSecret("canary/one+two");
  RememberSecret("canary/one+two");
  RememberSecret("short");
  EXPECT_EQ(RedactSecrets("a canary/one+twocanary/one+two b"), "a ****** b");
  EXPECT_EQ(RedactSecrets("in short"), "in short");
  for (int i = 0; i < 10; ++i) RememberSecret("another one " + std::to_string(i));
  EXPECT_EQ(RedactSecrets("x another one 9 y, canary/one+two"), "x *** y, ***");
}

}  // namespace
}  // namespace headrace
