// Signatures of requests to S3, version 4 (AWS4-HMAC-SHA256), in the Authorization header. Pure
// functions, safe from any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "headrace/base/bytes.h"
#include "headrace/base/sha256.h"
#include "headrace/net/http_client.h"
#include "headrace/object/s3/credentials.h"

namespace headrace::object {

// The SHA-256 of nothing, and what stands for a body's when it is not signed.
inline constexpr std::string_view kEmptyPayload =
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
inline constexpr std::string_view kUnsignedPayload = "UNSIGNED-PAYLOAD";

using S3Query = std::vector<std::pair<std::string, std::string>>;

// A request as it goes out. What is signed and what is sent must be the same bytes.
struct S3RequestHead {
  std::string method;
  std::string host;  // with the port unless it is the scheme's own: the Host header
  std::string path;  // encoded, '/' in front
  S3Query query;     // not encoded
  std::vector<net::HttpHeader> headers;  // all are signed; without Host
  std::string payload_hash;              // x-amz-content-sha256
};

// The query as it is signed and sent: encoded, in order, "a=1&b=".
std::string CanonicalS3Query(S3Query query);

// The key that signs for one day ("20130524"), region and service "s3".
Sha256Digest S3SigningKey(std::string_view secret_access_key, std::string_view date,
                          std::string_view region);

// Adds x-amz-date, x-amz-content-sha256, x-amz-security-token (where there is a token) and
// Authorization to head->headers. `key` is S3SigningKey of the same day and region.
void SignS3Request(const S3Credentials& credentials, const Sha256Digest& key,
                   std::string_view region, int64_t time_ns, S3RequestHead* head);

}  // namespace headrace::object
