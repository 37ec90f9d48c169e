// Signatures against the examples that the S3 documentation publishes ("Signature calculations for
// the Authorization header: transferring payload in a single chunk").
#include "headrace/object/s3/signer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headrace/object/uri.h"

namespace headrace::object {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kTime = int64_t{1369353600} * 1'000'000'000;  // 2013-05-24T00:00:00Z
const S3Credentials kCredentials{.access_key_id = "AKIAIOSFODNN7EXAMPLE",
                                 .secret_access_key = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
                                 .session_token = {}};

S3RequestHead Example(std::string method, std::string path) {
  S3RequestHead head;
  head.method = std::move(method);
  head.host = "examplebucket.s3.amazonaws.com";
  head.path = std::move(path);
  head.payload_hash = kEmptyPayload;
  return head;
}

std::string Authorization(S3RequestHead head, const S3Credentials& credentials = kCredentials) {
  Sha256Digest key = S3SigningKey(credentials.secret_access_key, "20130524", "us-east-1");
  SignS3Request(credentials, key, "us-east-1", kTime, &head);
  EXPECT_EQ(head.headers.back().name, "Authorization");
  return head.headers.back().value;
}

TEST(S3Signature, OfAGetOfARange) {
  S3RequestHead head = Example("GET", "/test.txt");
  head.headers.push_back({"Range", "bytes=0-9"});
  EXPECT_EQ(Authorization(head),
            "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request, "
            "SignedHeaders=host;range;x-amz-content-sha256;x-amz-date, "
            "Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
}

TEST(S3Signature, OfAPut) {
  S3RequestHead head = Example("PUT", "/" + PercentEncode("test$file.text", true));
  head.headers.push_back({"Date", "Fri, 24 May 2013 00:00:00 GMT"});
  head.headers.push_back({"x-amz-storage-class", "REDUCED_REDUNDANCY"});
  Sha256 body;
  body.Update("Welcome to Amazon S3.");
  head.payload_hash = body.Finish();
  EXPECT_THAT(
      Authorization(head),
      HasSubstr("Signature=98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"));
}

TEST(S3Signature, OfAQueryWithoutAValue) {
  S3RequestHead head = Example("GET", "/");
  head.query = {{"lifecycle", ""}};
  EXPECT_THAT(
      Authorization(head),
      HasSubstr("Signature=fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"));
}

TEST(S3Signature, OfAListing) {
  S3RequestHead head = Example("GET", "/");
  head.query = {{"prefix", "J"}, {"max-keys", "2"}};
  EXPECT_THAT(
      Authorization(head),
      HasSubstr("Signature=34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"));
}

TEST(S3Signature, CoversTheTokenAndNotItsOrder) {
  S3Credentials credentials = kCredentials;
  credentials.session_token = "TOKEN";
  S3RequestHead one = Example("GET", "/k"), two = Example("GET", "/k");
  one.headers = {{"A", " x   y "}, {"B", "z"}};
  two.headers = {{"b", "z"}, {"a", "x y"}};
  EXPECT_EQ(Authorization(one, credentials), Authorization(two, credentials));
  EXPECT_NE(Authorization(one, credentials).substr(0, 200), Authorization(one).substr(0, 200));
  EXPECT_THAT(Authorization(one, credentials), HasSubstr(";x-amz-date;x-amz-security-token,"));
}

TEST(CanonicalS3Query, SortsWhatIsEncoded) {
  EXPECT_EQ(CanonicalS3Query({}), "");
  EXPECT_EQ(CanonicalS3Query({{"prefix", "a b+c/d~\xc3\xa9"}, {"list-type", "2"}, {"uploads", ""}}),
            "list-type=2&prefix=a%20b%2Bc%2Fd~%C3%A9&uploads=");
}

}  // namespace
}  // namespace headrace::object
