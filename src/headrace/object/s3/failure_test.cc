// What S3's failures become, and whether they say what to do.
#include "headrace/object/s3/failure.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headrace/object/s3/s3_listing.h"

namespace headrace::object {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

struct Case {
  int status;
  std::string code;
  Code expected;
  std::string words;
  S3Verb verb = S3Verb::kGet;
};

Status Failure(int status, const std::string& code, S3Attempt attempt = {},
               std::vector<net::HttpHeader> headers = {}) {
  attempt.bucket = "b";
  attempt.endpoint = "http://h";
  attempt.region = "r-1";
  net::HttpResponse response;
  response.status = status;
  response.headers = std::move(headers);
  return S3Failure(attempt, response, {.code = code, .message = {}, .region = {}});
}

TEST(S3Failure, HasACodeAndWordsForEach) {
  const std::vector<Case> cases = {
      {404, "NoSuchKey", Code::kNotFound, "no object"},
      {404, "", Code::kNotFound, "no object"},
      {404, "NoSuchBucket", Code::kNotFound, "no bucket 'b' at http://h"},
      {404, "NoSuchUpload", Code::kFailedPrecondition, "start anew", S3Verb::kPutPart},
      {404, "", Code::kNotFound, "check the endpoint", S3Verb::kList},
      {403, "AccessDenied", Code::kPermissionDenied, "s3:GetObject"},
      {403, "AccessDenied", Code::kPermissionDenied, "s3:ListBucket on bucket 'b'", S3Verb::kList},
      {403, "AccessDenied", Code::kPermissionDenied, "may still be readable", S3Verb::kList},
      {403, "AccessDenied", Code::kPermissionDenied, "s3:PutObject", S3Verb::kPut},
      {403, "AccessDenied", Code::kPermissionDenied, "s3:DeleteObject", S3Verb::kDelete},
      {403, "", Code::kPermissionDenied, "s3:GetObject"},
      {401, "", Code::kPermissionDenied, "s3:GetObject"},
      {403, "SignatureDoesNotMatch", Code::kPermissionDenied, "secret access key"},
      {403, "InvalidAccessKeyId", Code::kPermissionDenied, "does not know"},
      {400, "ExpiredToken", Code::kPermissionDenied, "expired: get new ones"},
      {403, "RequestTimeTooSkewed", Code::kPermissionDenied, "clock"},
      {403, "InvalidObjectState", Code::kFailedPrecondition, "archived"},
      {301, "PermanentRedirect", Code::kFailedPrecondition, "region"},
      {400, "AuthorizationHeaderMalformed", Code::kFailedPrecondition, "'b'"},
      {302, "", Code::kFailedPrecondition, "set region or endpoint"},
      {503, "SlowDown", Code::kUnavailable, "SlowDown"},
      {503, "", Code::kUnavailable, "503"},
      {500, "InternalError", Code::kUnavailable, "cannot answer now"},
      {429, "", Code::kUnavailable, "429"},
      {400, "RequestTimeout", Code::kUnavailable, "cannot answer now"},
      {409, "OperationAborted", Code::kUnavailable, "cannot answer now"},
      {409, "ConditionalRequestConflict", Code::kUnavailable, "cannot answer now", S3Verb::kPut},
      {501, "NotImplemented", Code::kUnimplemented, "cannot do this"},
      {405, "MethodNotAllowed", Code::kUnimplemented, "cannot do this"},
      {400, "InvalidBucketName", Code::kInvalidArgument, "InvalidBucketName"},
      {400, "", Code::kInvalidArgument, "400"},
      {400, "BadDigest", Code::kDataLoss, "damaged", S3Verb::kPut},
      {400, "EntityTooSmall", Code::kInvalidArgument, "EntityTooSmall", S3Verb::kCompleteUpload},
      {400, "InvalidPart", Code::kFailedPrecondition, "part", S3Verb::kCompleteUpload},
      {507, "", Code::kResourceExhausted, "full", S3Verb::kPut},
      {403, "QuotaExceeded", Code::kResourceExhausted, "quota", S3Verb::kPut},
      {409, "BucketNotEmpty", Code::kFailedPrecondition, "refused"},
      {418, "", Code::kFailedPrecondition, "418"},
  };
  for (const Case& c : cases) {
    S3Attempt attempt;
    attempt.verb = c.verb;
    Status status = Failure(c.status, c.code, attempt);
    EXPECT_EQ(CodeName(status.code()), CodeName(c.expected)) << c.status << " " << c.code;
    EXPECT_THAT(status.ToString(), HasSubstr(c.words)) << c.status << " " << c.code;
  }
}

TEST(S3Failure, TellsConditionsApart) {
  S3Attempt absent{.verb = S3Verb::kPut, .if_absent = true};
  EXPECT_EQ(Failure(412, "PreconditionFailed", absent).code(), Code::kAlreadyExists);
  S3Attempt match{.verb = S3Verb::kPut, .if_match = true};
  EXPECT_EQ(Failure(412, "PreconditionFailed", match).code(), Code::kFailedPrecondition);
  EXPECT_THAT(Failure(404, "NoSuchKey", match).ToString(), HasSubstr("deleted"));
  EXPECT_EQ(Failure(404, "NoSuchKey", match).code(), Code::kFailedPrecondition);
  EXPECT_EQ(Failure(404, "NoSuchBucket", match).code(), Code::kNotFound);
  S3Attempt get{.verb = S3Verb::kGet, .if_match = true};
  EXPECT_EQ(Failure(404, "NoSuchKey", get).code(), Code::kNotFound);
  EXPECT_EQ(Failure(412, "", get).code(), Code::kFailedPrecondition);
}

TEST(S3Failure, NamesTheCredentialsByTheirPlace) {
  S3Attempt attempt;
  EXPECT_THAT(Failure(403, "AccessDenied", attempt).ToString(), HasSubstr("nothing was signed"));
  attempt.credentials = "profile 'x' (/f)";
  EXPECT_THAT(Failure(403, "AccessDenied", attempt).ToString(), HasSubstr("profile 'x' (/f)"));
}

TEST(S3Failure, CarriesTheWaitThatTheServerAsksFor) {
  EXPECT_THAT(Failure(503, "SlowDown", {}, {{"retry-after", "7"}}).ToString(),
              HasSubstr("wait for 7 s"));
  EXPECT_EQ(Failure(503, "SlowDown", {}, {{"retry-after", "7"}}).retry_after(),
            std::chrono::seconds(7));
  EXPECT_EQ(Failure(503, "SlowDown").retry_after(), std::nullopt);
  EXPECT_THAT(Failure(503, "", {}, {{"retry-after", std::string(500, 'x')}}).ToString(),
              Not(HasSubstr("xxxx")));
}

TEST(S3Failure, TellsThatTooMuchIsAsked) {
  for (auto [status, code] : {std::pair<int, const char*>{503, "SlowDown"},
                              {503, ""},
                              {429, ""},
                              {400, "RequestLimitExceeded"}})
    EXPECT_TRUE(Failure(status, code).throttled()) << status << " " << code;
  for (auto [status, code] : {std::pair<int, const char*>{500, "InternalError"},
                              {400, "RequestTimeout"},
                              {404, "NoSuchKey"},
                              {403, "AccessDenied"}})
    EXPECT_FALSE(Failure(status, code).throttled()) << status << " " << code;
  EXPECT_TRUE(Failure(503, "SlowDown", {}, {{"retry-after", "7"}}).throttled());
}

TEST(S3Failure, NamesTheRegionThatTheServerTold) {
  EXPECT_THAT(Failure(301, "PermanentRedirect", {}, {{"x-amz-bucket-region", "eu-1"}}).ToString(),
              HasSubstr("in eu-1"));
}

TEST(S3Listing, PositionsSurviveTheirText) {
  S3ListPosition position{.token = "a b %+", .last_key = "k \n", .last_prefix = ""};
  auto again = S3ListPosition::Decode(position.Encode());
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->token, position.token);
  EXPECT_EQ(again->last_key, position.last_key);
  EXPECT_EQ(again->last_prefix, "");
  for (const char* text : {"", "a", "a b", "a b "})
    EXPECT_EQ(S3ListPosition::Decode(text).status().code(), Code::kInvalidArgument) << text;
}

S3Listing Page(std::vector<std::string> keys, std::vector<std::string> prefixes = {},
               std::string token = "") {
  S3Listing listing;
  for (std::string& key : keys) {
    listing.objects.emplace_back();
    listing.objects.back().key = std::move(key);
  }
  listing.prefixes = std::move(prefixes);
  listing.truncated = !token.empty();
  listing.token = std::move(token);
  return listing;
}

Status Check(const ListRequest& request, S3Listing listing, const S3ListPosition& before = {}) {
  return CheckS3Listing(request, before, std::move(listing)).status();
}

TEST(S3Listing, NoticesKeysThatRepeatOrGoBackwards) {
  ListRequest all;
  EXPECT_TRUE(Check(all, Page({"a", "b"})).ok());
  EXPECT_THAT(Check(all, Page({"a", "a"})).ToString(), HasSubstr("twice"));
  EXPECT_EQ(Check(all, Page({"b", "a"})).code(), Code::kDataLoss);
  EXPECT_EQ(Check(all, Page({}, {"b/", "a/"})).code(), Code::kDataLoss);
  EXPECT_TRUE(Check(all, Page({"b"}, {"a/"})).ok());
  ListRequest after;
  after.after = "b";
  EXPECT_EQ(Check(after, Page({"b"})).code(), Code::kDataLoss);
  EXPECT_TRUE(Check(after, Page({"c"}, {"a/"})).ok());
  ListRequest below;
  below.prefix = "x/";
  EXPECT_EQ(Check(below, Page({"y"})).code(), Code::kDataLoss);
}

TEST(S3Listing, TakesAnotherOrderWhereItIsDeclared) {
  ListRequest after;
  after.after = "b";
  auto page = CheckUnorderedS3Listing(after, {}, Page({"c", "b", "a", "d"}, {"z/", "a/"}, "t"));
  ASSERT_TRUE(page.ok()) << page.status().ToString();
  ASSERT_EQ(page->objects.size(), 2u);
  EXPECT_EQ(page->objects[0].key, "c");
  EXPECT_EQ(page->prefixes, std::vector<std::string>{"z/"});
  EXPECT_EQ(S3ListPosition::Decode(page->next)->token, "t");
  EXPECT_EQ(CheckUnorderedS3Listing({}, {}, Page({"b", "a", "b"})).status().code(),
            Code::kDataLoss);
  auto before = *S3ListPosition::Decode(page->next);
  EXPECT_TRUE(CheckUnorderedS3Listing({}, before, Page({"c"}, {}, "u")).ok());
  EXPECT_EQ(CheckUnorderedS3Listing({}, before, Page({"c"}, {}, "t")).status().code(),
            Code::kDataLoss)
      << "the same page for ever";
}

TEST(S3Listing, HoldsEachPageAgainstThoseBefore) {
  auto first = CheckS3Listing({}, {}, Page({"a", "c"}, {"b/"}, "t"));
  ASSERT_TRUE(first.ok());
  auto before = *S3ListPosition::Decode(first->next);
  EXPECT_EQ(before.token, "t");
  EXPECT_TRUE(Check({}, Page({"d"}, {"c/"}), before).ok());
  EXPECT_EQ(Check({}, Page({"c"}), before).code(), Code::kDataLoss);
  EXPECT_EQ(Check({}, Page({"b"}), before).code(), Code::kDataLoss);
  EXPECT_EQ(Check({}, Page({}, {"b/"}), before).code(), Code::kDataLoss);
  EXPECT_TRUE(Check({}, Page({}, {}, "u"), before).ok()) << "an empty page may come in between";
  EXPECT_THAT(Check({}, Page({}, {}, "t"), before).ToString(), HasSubstr("goes on"));
}

}  // namespace
}  // namespace headrace::object
