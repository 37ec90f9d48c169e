#include "headrace/object/s3/signer.h"

#include <algorithm>

#include "headrace/base/ascii.h"
#include "headrace/base/text.h"
#include "headrace/object/timestamp.h"
#include "headrace/object/uri.h"

namespace headrace::object {

namespace {

constexpr std::string_view kAlgorithm = "AWS4-HMAC-SHA256";

// Without blanks around it, and with one for several in a row.
std::string Folded(std::string_view value) {
  std::string folded;
  for (char c : value) {
    bool blank = c == ' ' || c == '\t';
    if (blank && (folded.empty() || folded.back() == ' ')) continue;
    folded.push_back(blank ? ' ' : c);
  }
  if (!folded.empty() && folded.back() == ' ') folded.pop_back();
  return folded;
}

struct CanonicalHeaders {
  std::string lines;  // "name:value\n" each
  std::string names;  // "a;b"
};

CanonicalHeaders Canonicalize(const S3RequestHead& head) {
  std::vector<std::pair<std::string, std::string>> sorted{{"host", head.host}};
  for (const net::HttpHeader& header : head.headers)
    sorted.emplace_back(Lower(header.name), Folded(header.value));
  std::sort(sorted.begin(), sorted.end());
  CanonicalHeaders canonical;
  for (const auto& [name, value] : sorted) {
    canonical.lines.append(name).append(":").append(value).append("\n");
    if (!canonical.names.empty()) canonical.names += ";";
    canonical.names += name;
  }
  return canonical;
}

Sha256Digest Hmac(const Sha256Digest& key, std::string_view text) {
  return HmacSha256(key, AsBytes(text));
}

}  // namespace

std::string CanonicalS3Query(S3Query query) {
  for (auto& [name, value] : query) {
    name = PercentEncode(name);
    value = PercentEncode(value);
  }
  std::sort(query.begin(), query.end());
  std::string text;
  for (const auto& [name, value] : query) {
    if (!text.empty()) text += "&";
    text.append(name).append("=").append(value);
  }
  return text;
}

Sha256Digest S3SigningKey(std::string_view secret_access_key, std::string_view date,
                          std::string_view region) {
  std::string first = "AWS4" + std::string(secret_access_key);
  return Hmac(Hmac(Hmac(HmacSha256(AsBytes(first), AsBytes(date)), region), "s3"), "aws4_request");
}

void SignS3Request(const S3Credentials& credentials, const Sha256Digest& key,
                   std::string_view region, int64_t time_ns, S3RequestHead* head) {
  std::string time = FormatBasicIso8601(time_ns);
  head->headers.push_back({"x-amz-date", time});
  head->headers.push_back({"x-amz-content-sha256", head->payload_hash});
  if (!credentials.session_token.empty())
    head->headers.push_back({"x-amz-security-token", credentials.session_token});

  CanonicalHeaders headers = Canonicalize(*head);
  Sha256 request;
  for (std::string_view part : {std::string_view(head->method), std::string_view("\n"),
                                std::string_view(head->path), std::string_view("\n")})
    request.Update(part);
  request.Update(CanonicalS3Query(head->query));
  request.Update("\n" + headers.lines + "\n" + headers.names + "\n" + head->payload_hash);

  std::string scope = time.substr(0, 8) + "/" + std::string(region) + "/s3/aws4_request";
  std::string to_sign =
      std::string(kAlgorithm) + "\n" + time + "\n" + scope + "\n" + request.Finish();
  std::string signature = HexText(Hmac(key, to_sign));
  head->headers.push_back({"Authorization", std::string(kAlgorithm) +
                                                " Credential=" + credentials.access_key_id + "/" +
                                                scope + ", SignedHeaders=" + headers.names +
                                                ", Signature=" + signature});
}

}  // namespace headrace::object
