// The bodies of S3's answers, right and wrong.
#include "headrace/object/s3/answers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headrace/object/s3/xml.h"

namespace headrace::object {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::string_view kHead = R"(<?xml version="1.0" encoding="UTF-8"?>)"
                                   "\n";

TEST(ParseXml, ReadsWhatServersWrite) {
  auto root = ParseXml(
      "\xef\xbb\xbf \n<?xml version='1.0'?><!-- <not> --><s3:A x='<>/' xmlns:s3=\"http://a/\">"
      "<B>&lt;a&amp;b&gt;&quot;&apos;&#65;&#x1F600;</B>\n<C/><D ><![CDATA[<x>&amp;]]>y</D "
      "></s3:A>\n");
  ASSERT_TRUE(root.ok()) << root.status().ToString();
  EXPECT_EQ(root->name, "A");
  EXPECT_EQ(root->TextOf("B"), "<a&b>\"'A\xf0\x9f\x98\x80");
  EXPECT_EQ(root->TextOf("C"), "");
  EXPECT_NE(root->Find("C"), nullptr);
  EXPECT_EQ(root->TextOf("D"), "<x>&amp;y");
  EXPECT_EQ(root->Find("E"), nullptr);
}

TEST(ParseXml, RefusesWhatIsNotWhole) {
  for (const char* text : {"",
                           " ",
                           "x",
                           "<",
                           "<a",
                           "<a>",
                           "<a><b></a>",
                           "<a></b>",
                           "</a>",
                           "<a/>x",
                           "<a/><b/>",
                           "<a b='></a>",
                           "<a/ >",
                           "<a>&bogus;</a>",
                           "<a>&#xD800;</a>",
                           "<a>&#0;</a>",
                           "<a>&#x110000;</a>",
                           "<a>&#x;</a>",
                           "<a>&lt</a>",
                           "<!DOCTYPE a [<!ENTITY x 'y'>]><a>&x;</a>",
                           "<a><!-- </a>",
                           "<a><![CDATA[x</a>",
                           "<![CDATA[x]]><a/>",
                           "<?xml <a/>",
                           "<><a/></>",
                           "<a></a",
                           "<a <b/></a>"}) {
    auto root = ParseXml(text);
    EXPECT_FALSE(root.ok()) << text;
    EXPECT_EQ(root.status().code(), Code::kDataLoss);
  }
}

TEST(ParseXml, IsBounded) {
  std::string deep, wide = "<a>";
  for (size_t i = 0; i < kMaxXmlDepth; ++i) deep += "<a>";
  std::string whole = deep;
  for (size_t i = 0; i < kMaxXmlDepth; ++i) whole += "</a>";
  EXPECT_TRUE(ParseXml(whole).ok());
  EXPECT_THAT(ParseXml(deep + "<a>").status().ToString(), HasSubstr("too deep"));
  for (size_t i = 0; i < kMaxXmlElements; ++i) wide += "<b/>";
  EXPECT_THAT(ParseXml(wide + "</a>").status().ToString(), HasSubstr("too many"));
}

TEST(ParseS3Listing, ReadsAPage) {
  auto page = ParseS3Listing(std::string(kHead) + R"(
<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>b</Name><Prefix></Prefix>
<KeyCount>3</KeyCount><MaxKeys>3</MaxKeys><EncodingType>url</EncodingType><IsTruncated>true</IsTruncated>
<NextContinuationToken>1/+=token</NextContinuationToken>
<Contents><Key>a+b%2B%25</Key><LastModified>2013-05-24T00:00:00.000Z</LastModified>
<ETag>&quot;d41d8&quot;</ETag><Size>12345678901</Size><StorageClass>STANDARD</StorageClass></Contents>
<Contents><Key>b</Key><Size>0</Size></Contents>
<CommonPrefixes><Prefix>c%2F/</Prefix></CommonPrefixes><CommonPrefixes><Prefix>d/</Prefix></CommonPrefixes>
</ListBucketResult>)");
  ASSERT_TRUE(page.ok()) << page.status().ToString();
  EXPECT_TRUE(page->truncated);
  EXPECT_EQ(page->token, "1/+=token");
  ASSERT_EQ(page->objects.size(), 2u);
  EXPECT_EQ(page->objects[0].key, "a b+%");
  EXPECT_EQ(page->objects[0].size_bytes, 12345678901u);
  EXPECT_EQ(page->objects[0].etag, "d41d8");
  EXPECT_EQ(page->objects[0].mtime_ns, int64_t{1369353600} * 1'000'000'000);
  EXPECT_EQ(page->objects[1].etag, "");
  EXPECT_EQ(page->objects[1].mtime_ns, 0);
  EXPECT_THAT(page->prefixes, ElementsAre("c//", "d/"));
}

TEST(ParseS3Listing, TakesNamesAsTheyAreWhenTheyAreNotEncoded) {
  auto page = ParseS3Listing(
      "<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>a+%2B&amp;</Key>"
      "<Size>1</Size></Contents></ListBucketResult>");
  ASSERT_TRUE(page.ok());
  EXPECT_EQ(page->objects[0].key, "a+%2B&");
}

TEST(ParseS3Listing, DoesNotTrustACutOrOddOne) {
  for (const char* inside :
       {"", "<IsTruncated>maybe</IsTruncated>", "<IsTruncated>true</IsTruncated>",
        "<IsTruncated>false</IsTruncated><Contents><Size>1</Size></Contents>",
        "<IsTruncated>false</IsTruncated><Contents><Key>a</Key></Contents>",
        "<IsTruncated>false</IsTruncated><Contents><Key>a</Key><Size>-1</Size></Contents>",
        "<IsTruncated>false</IsTruncated><Contents><Key>a</Key><Size>1x</Size></Contents>",
        "<IsTruncated>false</IsTruncated><Contents>"}) {
    auto page = ParseS3Listing("<ListBucketResult>" + std::string(inside) + "</ListBucketResult>");
    ASSERT_FALSE(page.ok()) << inside;
    EXPECT_EQ(page.status().code(), Code::kDataLoss);
  }
  EXPECT_THAT(ParseS3Listing("<html></html>").status().ToString(), HasSubstr("<html>"));
}

TEST(ParseS3UploadListing, ReadsAPage) {
  auto page = ParseS3UploadListing(
      "<ListMultipartUploadsResult><EncodingType>url</EncodingType><IsTruncated>true</IsTruncated>"
      "<NextKeyMarker>k%20</NextKeyMarker><NextUploadIdMarker>i+d</NextUploadIdMarker>"
      "<Upload><Key>k%20</Key><UploadId>i+d</UploadId><Initiated>2013-05-24T00:00:00Z</Initiated>"
      "</Upload></ListMultipartUploadsResult>");
  ASSERT_TRUE(page.ok()) << page.status().ToString();
  EXPECT_EQ(page->key_marker, "k ");
  EXPECT_EQ(page->id_marker, "i+d");
  ASSERT_EQ(page->uploads.size(), 1u);
  EXPECT_EQ(page->uploads[0].key, "k ");
  EXPECT_EQ(page->uploads[0].id, "i+d");
  EXPECT_EQ(page->uploads[0].started_ns, int64_t{1369353600} * 1'000'000'000);
  EXPECT_FALSE(ParseS3UploadListing("<ListMultipartUploadsResult/>").ok());
}

TEST(ParseS3Uploads, ReadsTheIdAndTheEtag) {
  EXPECT_EQ(*ParseS3UploadId("<InitiateMultipartUploadResult><UploadId>x</UploadId>"
                             "</InitiateMultipartUploadResult>"),
            "x");
  EXPECT_FALSE(ParseS3UploadId("<InitiateMultipartUploadResult/>").ok());
  EXPECT_EQ(*ParseS3CompletedEtag("\n \n<CompleteMultipartUploadResult><ETag>\"x-2\"</ETag>"
                                  "</CompleteMultipartUploadResult>"),
            "x-2");
  EXPECT_FALSE(ParseS3CompletedEtag("<Error><Code>InternalError</Code></Error>").ok());
}

TEST(ParseS3Error, ReadsBothForms) {
  std::string inner =
      "<Error><Code>NoSuchKey</Code><Message>The key\nis not there</Message>"
      "<Region>eu-west-1</Region></Error>";
  for (const std::string& body : {inner, "<ErrorResponse>" + inner + "</ErrorResponse>"}) {
    S3Error error = ParseS3Error(body);
    EXPECT_EQ(error.code, "NoSuchKey");
    EXPECT_EQ(error.message, "The key\\nis not there");
    EXPECT_EQ(error.region, "eu-west-1");
    EXPECT_TRUE(IsS3Error(body));
  }
}

TEST(ParseS3Error, IsNotFooled) {
  EXPECT_EQ(ParseS3Error("").code, "");
  EXPECT_EQ(ParseS3Error("<html><body>503</body></html>").code, "");
  EXPECT_EQ(ParseS3Error("<Error><Code>a\nb</Code></Error>").code, "");
  EXPECT_EQ(ParseS3Error("<Error><Region>evil.example/</Region></Error>").region, "");
  std::string body = "<Error><Message>" + std::string(5000, 'x') + "</Message></Error>";
  EXPECT_LT(ParseS3Error(body).message.size(), 400u);
  EXPECT_FALSE(IsS3Error("<CompleteMultipartUploadResult/>"));
}

TEST(StripEtag, TakesQuotesAway) {
  EXPECT_EQ(StripEtag("\"abc-2\""), "abc-2");
  EXPECT_EQ(StripEtag("W/\"abc\""), "W/abc");
  EXPECT_EQ(StripEtag("abc"), "abc");
  EXPECT_EQ(StripEtag("\""), "\"");
  EXPECT_EQ(StripEtag(""), "");
}

}  // namespace
}  // namespace headrace::object
