#include "headrace/object/s3/redirect.h"

#include <gtest/gtest.h>

namespace headrace::object {
namespace {

bool May(const std::string& other, const std::string& endpoint, bool aws = false) {
  return MaySignFor(*ParseUri(other), *ParseUri(endpoint), aws, "bucket");
}

TEST(MaySignFor, TheSameHostAndThoseBelowIt) {
  const std::string here = "https://s3.corp.example:9000";
  EXPECT_TRUE(May("https://s3.corp.example:9000/bucket/key", here));
  EXPECT_TRUE(May("https://S3.Corp.Example:9000/bucket/key", here));
  EXPECT_TRUE(May("https://bucket.s3.corp.example:9000/key", here));
  for (const char* other :
       {"https://s3.corp.example/bucket/key", "https://s3.corp.example:9001/bucket/key",
        "http://s3.corp.example:9000/bucket/key", "https://other.corp.example:9000/bucket/key",
        "https://evils3.corp.example:9000/bucket/key", "https://s3.corp.example.evil:9000/key"})
    EXPECT_FALSE(May(other, here)) << other;
  EXPECT_TRUE(May("https://127.0.0.1/bucket/key", "http://127.0.0.1")) << "from http to https";
}

TEST(MaySignFor, TheS3EndpointsOfAws) {
  const std::string here = "https://s3.us-east-1.amazonaws.com";
  for (const char* other :
       {"https://s3.us-east-1.amazonaws.com/bucket/key", "https://bucket.s3.amazonaws.com/key",
        "https://bucket.s3-eu-west-1.amazonaws.com/key",
        "https://bucket.s3.dualstack.eu-west-1.amazonaws.com/key",
        "https://s3.cn-north-1.amazonaws.com.cn/bucket/key"})
    EXPECT_TRUE(May(other, here, true)) << other;
  for (const char* other :
       {"http://s3.us-east-1.amazonaws.com/bucket/key", "https://s3.amazonaws.com.evil/key",
        "https://ec2-1-2-3-4.compute-1.amazonaws.com/key", "https://amazonaws.com/key",
        "https://evil.s3.amazonaws.com/key", "https://s3.us-east-1.amazonaws.com:444/bucket/key",
        "https://bucket.s3-website.us-east-1.amazonaws.com/key"})
    EXPECT_FALSE(May(other, here, true)) << other;
}

}  // namespace
}  // namespace headrace::object
