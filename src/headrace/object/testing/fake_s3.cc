#include "headrace/object/testing/fake_s3.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "headrace/base/text.h"
#include "headrace/object/s3/signer.h"
#include "headrace/object/s3/xml.h"
#include "headrace/object/timestamp.h"
#include "headrace/object/uri.h"

namespace headrace::object {

namespace {

constexpr std::string_view kBucket = "/bucket";
constexpr std::string_view kMarkHeader = "x-amz-meta-headrace-mark";

uint64_t NumberOf(std::string_view text) {
  uint64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

net::ServerAnswer Xml(std::string body) {
  net::ServerAnswer answer;
  answer.headers.push_back({"Content-Type", "application/xml"});
  answer.body = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n" + std::move(body);
  return answer;
}

std::string Element(std::string_view name, std::string_view text) {
  return "<" + std::string(name) + ">" + std::string(text) + "</" + std::string(name) + ">";
}

// The part of `text` between two marks.
std::string Between(std::string_view text, std::string_view begin, std::string_view end) {
  size_t from = text.find(begin);
  if (from == std::string_view::npos) return "";
  from += begin.size();
  return std::string(text.substr(from, text.find(end, from) - from));
}

std::string Sha256Of(std::string_view text) {
  Sha256 sha;
  sha.Update(text);
  return sha.Finish();
}

}  // namespace

struct FakeS3::Wanted {
  std::string method, path;
  bool in_bucket = false;
  std::string key;  // empty: the bucket itself
  std::map<std::string, std::string> query;

  bool Has(const std::string& name) const { return query.count(name) > 0; }
  std::string Value(const std::string& name) const {
    auto found = query.find(name);
    return found == query.end() ? "" : found->second;
  }
};

FakeS3::FakeS3() : server_([this](const net::ServerRequest& request) { return Serve(request); }) {}

S3Options FakeS3::Options() {
  S3Options options;
  options.endpoint = server_.url();
  options.region = "us-east-1";
  options.access_key_id = Credentials().access_key_id;
  options.secret_access_key = Credentials().secret_access_key;
  options.dialect = "s3";
  return options;
}

void FakeS3::SetCredentials(S3Credentials credentials) {
  MutexLock lock(&mu_);
  credentials_ = std::move(credentials);
}

void FakeS3::SetRegion(std::string region) {
  MutexLock lock(&mu_);
  region_ = std::move(region);
}

void FakeS3::SetPageLimit(uint32_t names) {
  MutexLock lock(&mu_);
  page_limit_ = names;
}

net::ServerAnswer FakeS3::Failure(int status, std::string_view code, std::string_view more) {
  net::ServerAnswer answer = Xml(
      Element("Error", Element("Code", code) + Element("Message", "as told") + std::string(more)));
  answer.status = status;
  return answer;
}

net::ServerAnswer FakeS3::Serve(const net::ServerRequest& request) {
  Wanted wanted;
  wanted.method = request.method;
  wanted.path = std::string(request.path());
  std::string_view query(request.target);
  query.remove_prefix(std::min(wanted.path.size() + 1, query.size()));
  while (!query.empty()) {
    std::string_view pair = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(pair.size() + 1, query.size()));
    size_t equals = std::min(pair.find('='), pair.size());
    wanted.query[PercentDecode(pair.substr(0, equals))] =
        PercentDecode(pair.substr(std::min(equals + 1, pair.size())));
  }
  std::string_view path = wanted.path;
  wanted.in_bucket = path == kBucket || path.starts_with(std::string(kBucket) + "/");
  if (wanted.in_bucket && path.size() > kBucket.size())
    wanted.key = PercentDecode(path.substr(kBucket.size() + 1));
  Answer refused = CheckSignature(request, wanted);
  if (refused.status != 200) return refused;
  if (!wanted.in_bucket) return Failure(404, "NoSuchBucket");
  MutexLock lock(&mu_);
  return wanted.key.empty() ? ServeBucket(wanted) : ServeObject(request, wanted);
}

// Signs what came once more and compares.
net::ServerAnswer FakeS3::CheckSignature(const net::ServerRequest& request, const Wanted& wanted) {
  S3Credentials credentials;
  std::string region;
  {
    MutexLock lock(&mu_);
    credentials = credentials_;
    region = region_;
  }
  std::string_view authorization = request.Header("authorization");
  std::string scope = Between(authorization, "Credential=", ",");
  std::string id = scope.substr(0, scope.find('/'));
  std::string signed_region =
      Between(scope.substr(std::min(id.size() + 10, scope.size())), "", "/");
  if (authorization.empty()) return Failure(403, "AccessDenied");
  if (id != credentials.access_key_id) return Failure(400, "ExpiredToken");
  if (!region.empty() && region != signed_region)
    return Failure(400, "AuthorizationHeaderMalformed", Element("Region", region));
  S3RequestHead head;
  head.method = wanted.method;
  head.host = request.Header("host");
  head.path = wanted.path;
  for (const auto& [name, value] : wanted.query) head.query.push_back({name, value});
  std::string names = ";" + Between(authorization, "SignedHeaders=", ",") + ";";
  for (const net::HttpHeader& header : request.headers) {
    bool added_anew = header.name == "host" || header.name == "x-amz-date" ||
                      header.name == "x-amz-content-sha256" ||
                      header.name == "x-amz-security-token";
    if (!added_anew && names.find(";" + header.name + ";") != std::string::npos)
      head.headers.push_back(header);
  }
  head.payload_hash = request.Header("x-amz-content-sha256");
  std::string date(request.Header("x-amz-date"));
  if (date.size() != 16) return Failure(403, "AccessDenied");
  auto time_ns = ParseIso8601(date.substr(0, 4) + "-" + date.substr(4, 2) + "-" +
                              date.substr(6, 5) + ":" + date.substr(11, 2) + ":" + date.substr(13));
  Sha256Digest key = S3SigningKey(credentials.secret_access_key, date.substr(0, 8), signed_region);
  SignS3Request(credentials, key, signed_region, time_ns.value_or(0), &head);
  if (head.headers.back().value != authorization) return Failure(403, "SignatureDoesNotMatch");
  if (head.payload_hash != kUnsignedPayload && head.payload_hash != Sha256Of(request.body))
    return Failure(400, "XAmzContentSHA256Mismatch");
  return Answer();
}

net::ServerAnswer FakeS3::ServeBucket(const Wanted& wanted) {
  if (wanted.method != "GET") return Failure(405, "MethodNotAllowed");
  if (wanted.Has("uploads")) return ListUploads(wanted);
  return wanted.Value("list-type") == "2" ? List(wanted) : Failure(501, "NotImplemented");
}

net::ServerAnswer FakeS3::ServeObject(const net::ServerRequest& request, const Wanted& wanted) {
  if (wanted.method == "PUT")
    return wanted.Has("uploadId") ? PutPart(request, wanted) : Put(request, wanted);
  if (wanted.method == "POST" && wanted.Has("uploads")) {
    std::string id = "upload+" + std::to_string(++num_made_);
    uploads_[id].key = wanted.key;
    return Xml(Element("InitiateMultipartUploadResult", Element("UploadId", id)));
  }
  if (wanted.method == "POST") return Complete(request, wanted);
  if (wanted.method == "DELETE") {
    if (wanted.Has("uploadId") && uploads_.erase(wanted.Value("uploadId")) == 0)
      return Failure(404, "NoSuchUpload");
    if (!wanted.Has("uploadId")) objects_.erase(wanted.key);
    Answer answer;
    answer.status = 204;
    return answer;
  }
  if (wanted.Has("uploadId") && uploads_.count(wanted.Value("uploadId")) == 0)
    return Failure(404, "NoSuchUpload");
  if (wanted.Has("uploadId")) return Xml("<ListPartsResult/>");
  auto found = objects_.find(wanted.key);
  if (found == objects_.end()) return Failure(404, "NoSuchKey");
  std::string_view match = request.Header("if-match");
  if (!match.empty() && match != "\"" + found->second.etag + "\"")
    return Failure(412, "PreconditionFailed");
  Answer answer = net::AnswerRange(request, found->second.content, found->second.etag);
  answer.headers.push_back({"Last-Modified", "Fri, 24 May 2013 00:00:00 GMT"});
  if (!found->second.mark.empty())
    answer.headers.push_back({std::string(kMarkHeader), found->second.mark});
  if (answer.status == 416) answer.body = Failure(416, "InvalidRange").body;
  return answer;
}

net::ServerAnswer FakeS3::Put(const net::ServerRequest& request, const Wanted& wanted) {
  auto found = objects_.find(wanted.key);
  bool there = found != objects_.end();
  if (request.Header("if-none-match") == "*" && there) return Failure(412, "PreconditionFailed");
  std::string_view match = request.Header("if-match");
  if (!match.empty() && !there) return Failure(404, "NoSuchKey");
  if (!match.empty() && match != "\"" + found->second.etag + "\"")
    return Failure(412, "PreconditionFailed");
  std::string md5 = Base64Text(Md5(AsBytes(request.body)));
  if (std::string_view told = request.Header("content-md5"); !told.empty() && told != md5)
    return Failure(400, "BadDigest");
  Object& object = objects_[wanted.key];
  object = {request.body, HexText(Md5(AsBytes(request.body))),
            std::string(request.Header(kMarkHeader))};
  Answer answer;
  answer.headers.push_back({"ETag", "\"" + object.etag + "\""});
  return answer;
}

net::ServerAnswer FakeS3::List(const Wanted& wanted) {
  uint64_t limit = std::min<uint64_t>(NumberOf(wanted.Value("max-keys")), page_limit_);
  std::string prefix = wanted.Value("prefix"), delimiter = wanted.Value("delimiter");
  std::string after = wanted.Value("start-after");
  if (wanted.Has("continuation-token")) after = PercentDecode(wanted.Value("continuation-token"));
  std::string xml = Element("EncodingType", "url"), last;
  uint64_t names = 0;
  bool truncated = false;
  auto encode = [](const std::string& name) {  // as AWS does: a space is a plus
    std::string text = PercentEncode(name, true);
    for (size_t at = 0; (at = text.find("%20", at)) != std::string::npos;) text.replace(at, 3, "+");
    return text;
  };
  for (auto at = objects_.upper_bound(after); at != objects_.end();) {
    const std::string& key = at->first;
    size_t cut = delimiter.empty() ? std::string::npos : key.find(delimiter, prefix.size());
    if (!key.starts_with(prefix)) {
      ++at;
      continue;
    }
    truncated = names == limit;
    if (truncated) break;
    ++names;
    if (cut == std::string::npos) {
      xml += Element("Contents", Element("Key", encode(key)) +
                                     Element("LastModified", "2013-05-24T00:00:00.000Z") +
                                     Element("ETag", "&quot;" + at->second.etag + "&quot;") +
                                     Element("Size", std::to_string(at->second.content.size())));
      last = key;
      ++at;
      continue;
    }
    std::string common = key.substr(0, cut + delimiter.size());
    xml += Element("CommonPrefixes", Element("Prefix", encode(common)));
    while (at != objects_.end() && at->first.starts_with(common)) last = (at++)->first;
  }
  xml += Element("IsTruncated", truncated ? "true" : "false");
  if (truncated) xml += Element("NextContinuationToken", PercentEncode(last));
  return Xml(Element("ListBucketResult", xml));
}

net::ServerAnswer FakeS3::ListUploads(const Wanted& wanted) {
  std::string xml = Element("EncodingType", "url"), last;
  uint32_t names = 0;
  bool truncated = false;
  for (const auto& [id, upload] : uploads_) {
    bool before = wanted.Has("upload-id-marker") && id <= wanted.Value("upload-id-marker");
    if (before || !upload.key.starts_with(wanted.Value("prefix"))) continue;
    truncated = names++ == page_limit_;
    if (truncated) break;
    xml += Element("Upload", Element("Key", PercentEncode(upload.key)) + Element("UploadId", id) +
                                 Element("Initiated", "2013-05-24T00:00:00.000Z"));
    last = id;
  }
  xml += Element("IsTruncated", truncated ? "true" : "false");
  if (truncated) xml += Element("NextKeyMarker", "any") + Element("NextUploadIdMarker", last);
  return Xml(Element("ListMultipartUploadsResult", xml));
}

net::ServerAnswer FakeS3::PutPart(const net::ServerRequest& request, const Wanted& wanted) {
  auto upload = uploads_.find(wanted.Value("uploadId"));
  if (upload == uploads_.end()) return Failure(404, "NoSuchUpload");
  Object& part = upload->second.parts[static_cast<uint32_t>(NumberOf(wanted.Value("partNumber")))];
  part = {request.body, HexText(Md5(AsBytes(request.body)))};
  Answer answer;
  answer.headers.push_back({"ETag", "\"" + part.etag + "\""});
  return answer;
}

net::ServerAnswer FakeS3::Complete(const net::ServerRequest& request, const Wanted& wanted) {
  auto upload = uploads_.find(wanted.Value("uploadId"));
  if (upload == uploads_.end()) return Failure(404, "NoSuchUpload");
  auto parts = ParseXml(request.body);
  if (!parts.ok()) return Failure(400, "MalformedXML");
  std::string content;
  for (const XmlElement& part : parts->children) {
    auto found =
        upload->second.parts.find(static_cast<uint32_t>(NumberOf(part.TextOf("PartNumber"))));
    if (found == upload->second.parts.end() ||
        part.TextOf("ETag") != "\"" + found->second.etag + "\"")
      return Failure(400, "InvalidPart");
    content += found->second.content;
  }
  std::string etag = HexText(Md5(AsBytes(content))) + "-" + std::to_string(parts->children.size());
  objects_[upload->second.key] = {std::move(content), etag};
  uploads_.erase(upload);
  return Xml(Element("CompleteMultipartUploadResult", Element("ETag", "&quot;" + etag + "&quot;")));
}

}  // namespace headrace::object
