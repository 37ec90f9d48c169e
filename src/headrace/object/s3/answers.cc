#include "headrace/object/s3/answers.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "headrace/base/text.h"
#include "headrace/object/s3/xml.h"
#include "headrace/object/timestamp.h"
#include "headrace/object/uri.h"

namespace headrace::object {

namespace {

constexpr size_t kMaxMessage = 300;

// Parses a document whose root must have this name.
Result<XmlElement> ParseRoot(std::string_view body, std::string_view name) {
  HR_ASSIGN_OR_RETURN(XmlElement root, ParseXml(body));
  if (root.name == name) return root;
  return Error(Code::kDataLoss, "the server answered with <{}> where <{}> was expected",
               EscapeText(root.name.substr(0, 64)), name);
}

Status Missing(std::string_view parent, std::string_view child) {
  return Error(Code::kDataLoss, "the server's answer has no valid <{}> in <{}>", child, parent);
}

Result<bool> BoolOf(const XmlElement& parent, std::string_view child) {
  std::string_view text = parent.TextOf(child);
  if (text == "true") return true;
  if (text == "false") return false;
  return Missing(parent.name, child);
}

// Names come percent-encoded when the server says so, since XML cannot hold each byte.
struct NameDecoder {
  bool encoded = false;
  std::string operator()(std::string_view text) const {
    return encoded ? PercentDecode(text, true) : std::string(text);
  }
};

NameDecoder DecoderFor(const XmlElement& root) { return {root.TextOf("EncodingType") == "url"}; }

Result<ObjectInfo> ReadContents(const XmlElement& element, const NameDecoder& decode) {
  ObjectInfo info;
  info.key = decode(element.TextOf("Key"));
  if (info.key.empty()) return Missing("Contents", "Key");
  std::string_view size = element.TextOf("Size");
  auto [end, error] = std::from_chars(size.data(), size.data() + size.size(), info.size_bytes);
  if (size.empty() || error != std::errc() || end != size.data() + size.size())
    return Missing("Contents", "Size");
  info.etag = StripEtag(element.TextOf("ETag"));
  info.mtime_ns = ParseIso8601(element.TextOf("LastModified")).value_or(0);
  return info;
}

}  // namespace

std::string StripEtag(std::string_view etag) {
  std::string stripped;
  if (etag.starts_with("W/")) {
    stripped = "W/";
    etag.remove_prefix(2);
  }
  if (etag.size() >= 2 && etag.front() == '"' && etag.back() == '"')
    etag = etag.substr(1, etag.size() - 2);
  return stripped.append(etag);
}

S3Error ParseS3Error(std::string_view body) {
  S3Error error;
  auto parsed = ParseXml(body);
  if (!parsed.ok()) return error;
  // Some servers put it inside <ErrorResponse>.
  const XmlElement* found = parsed->name == "Error" ? &*parsed : parsed->Find("Error");
  if (!found) return error;
  std::string_view code = found->TextOf("Code");
  bool plain = std::all_of(code.begin(), code.end(), [](char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.';
  });
  if (plain && code.size() <= 64) error.code = code;
  std::string_view message = found->TextOf("Message");
  error.message = EscapeText(message.substr(0, kMaxMessage));
  if (message.size() > kMaxMessage) error.message += "...";
  std::string_view region = found->TextOf("Region");
  bool is_region = std::all_of(region.begin(), region.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
  });
  if (is_region && region.size() <= 64) error.region = region;
  return error;
}

bool IsS3Error(std::string_view body) {
  auto parsed = ParseXml(body);
  return parsed.ok() && (parsed->name == "Error" || parsed->Find("Error") != nullptr);
}

Result<S3Listing> ParseS3Listing(std::string_view body) {
  HR_ASSIGN_OR_RETURN(XmlElement root, ParseRoot(body, "ListBucketResult"));
  NameDecoder decode = DecoderFor(root);
  S3Listing listing;
  HR_ASSIGN_OR_RETURN(listing.truncated, BoolOf(root, "IsTruncated"));
  listing.token = root.TextOf("NextContinuationToken");
  if (listing.truncated && listing.token.empty())
    return Missing(root.name, "NextContinuationToken");
  for (const XmlElement& child : root.children) {
    if (child.name == "Contents") {
      HR_ASSIGN_OR_RETURN(ObjectInfo info, ReadContents(child, decode));
      listing.objects.push_back(std::move(info));
    } else if (child.name == "CommonPrefixes") {
      // Servers put one <Prefix> in each, or all of them into one.
      for (const XmlElement& prefix : child.children)
        if (prefix.name == "Prefix") listing.prefixes.push_back(decode(prefix.text));
    }
  }
  return listing;
}

Result<S3UploadListing> ParseS3UploadListing(std::string_view body) {
  HR_ASSIGN_OR_RETURN(XmlElement root, ParseRoot(body, "ListMultipartUploadsResult"));
  NameDecoder decode = DecoderFor(root);
  S3UploadListing listing;
  HR_ASSIGN_OR_RETURN(listing.truncated, BoolOf(root, "IsTruncated"));
  listing.key_marker = decode(root.TextOf("NextKeyMarker"));
  listing.id_marker = root.TextOf("NextUploadIdMarker");
  if (listing.truncated && listing.key_marker.empty()) return Missing(root.name, "NextKeyMarker");
  for (const XmlElement& child : root.children) {
    if (child.name != "Upload") continue;
    PendingUpload upload;
    upload.key = decode(child.TextOf("Key"));
    upload.id = child.TextOf("UploadId");
    upload.started_ns = ParseIso8601(child.TextOf("Initiated")).value_or(0);
    if (upload.key.empty()) return Missing("Upload", "Key");
    if (upload.id.empty()) return Missing("Upload", "UploadId");
    listing.uploads.push_back(std::move(upload));
  }
  return listing;
}

Result<std::string> ParseS3UploadId(std::string_view body) {
  HR_ASSIGN_OR_RETURN(XmlElement root, ParseRoot(body, "InitiateMultipartUploadResult"));
  std::string id(root.TextOf("UploadId"));
  if (id.empty()) return Missing(root.name, "UploadId");
  return id;
}

Result<std::string> ParseS3CompletedEtag(std::string_view body) {
  HR_ASSIGN_OR_RETURN(XmlElement root, ParseRoot(body, "CompleteMultipartUploadResult"));
  return StripEtag(root.TextOf("ETag"));
}

}  // namespace headrace::object
