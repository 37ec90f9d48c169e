#include "headrace/object/s3/s3_upload.h"

#include <array>
#include <chrono>
#include <utility>

#include "headrace/base/crc32c.h"
#include "headrace/base/sha256.h"
#include "headrace/base/text.h"
#include "headrace/object/s3/answers.h"

namespace headrace::object {

namespace {

// How long the destructor may take to give the parts up.
constexpr std::chrono::seconds kAbortTimeout{10};

std::string EscapeXml(std::string_view text) {
  std::string escaped;
  for (char c : text) {
    if (c == '&')
      escaped += "&amp;";
    else if (c == '<')
      escaped += "&lt;";
    else if (c == '>')
      escaped += "&gt;";
    else if (c == '"')
      escaped += "&quot;";
    else
      escaped.push_back(c);
  }
  return escaped;
}

}  // namespace

std::string AddBodyChecksum(S3Checksum checksum, Bytes body,
                            std::vector<net::HttpHeader>* headers) {
  if (checksum == S3Checksum::kMd5) {
    headers->push_back({"Content-MD5", Base64Text(Md5(body))});
  } else if (checksum == S3Checksum::kCrc32c) {
    uint32_t crc = Crc32c(body);
    std::array<std::byte, 4> big_endian;
    for (size_t i = 0; i < 4; ++i) big_endian[i] = static_cast<std::byte>(crc >> (24 - 8 * i));
    headers->push_back({"x-amz-checksum-crc32c", Base64Text(big_endian)});
    return headers->back().value;
  }
  return "";
}

Status AbortS3Upload(S3Session* session, const std::string& key, const std::string& id,
                     const Context& ctx) {
  S3Call call;
  call.verb = S3Verb::kAbortUpload;
  call.method = "DELETE";
  call.key = key;
  call.query = {{"uploadId", id}};
  S3Answer answer = session->Send(std::move(call), ctx);
  if (answer.error.code == "NoSuchUpload") return OkStatus();
  return std::move(answer.status);
}

S3Upload::S3Upload(std::shared_ptr<S3Session> session, std::string key, std::string id)
    : session_(std::move(session)), key_(std::move(key)), id_(std::move(id)) {}

S3Upload::~S3Upload() {
  {
    MutexLock lock(&mu_);
    if (ended_) return;
  }
  Context ctx;
  ctx.deadline = Context::Clock::now() + kAbortTimeout;
  (void)Abort(ctx);  // what stays is found by ListUploads
}

Status S3Upload::CheckOpen() {
  MutexLock lock(&mu_);
  if (!ended_) return OkStatus();
  return Error(Code::kFailedPrecondition, "{}: the upload was completed or given up",
               session_->Where(key_));
}

Status S3Upload::PutPart(uint32_t number, Bytes data, const Context& ctx) {
  if (number == 0 || number > kMaxS3Parts || data.size() > kMaxS3PartBytes)
    return Error(Code::kInvalidArgument,
                 "{}: part {} of {} bytes: parts are numbered 1 to {} and have up to {} bytes",
                 session_->Where(key_), number, data.size(), kMaxS3Parts, kMaxS3PartBytes);
  HR_RETURN_IF_ERROR(CheckOpen());
  S3Call call;
  call.verb = S3Verb::kPutPart;
  call.method = "PUT";
  call.key = key_;
  call.query = {{"partNumber", std::to_string(number)}, {"uploadId", id_}};
  call.body = data;
  std::string checksum =
      AddBodyChecksum(session_->settings().dialect.checksum, data, &call.headers);
  S3Answer answer = session_->Send(std::move(call), ctx);
  HR_RETURN_IF_ERROR(std::move(answer.status));
  std::string etag(answer.response.Header("etag"));
  if (etag.empty())
    return Error(Code::kDataLoss, "{}: the server took part {} and told no ETag for it",
                 session_->Where(key_), number);
  MutexLock lock(&mu_);
  parts_[number] = {std::move(etag), std::move(checksum)};
  return OkStatus();
}

Result<std::string> S3Upload::PartList(uint32_t num_parts) {
  std::string xml = "<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">";
  MutexLock lock(&mu_);
  for (uint32_t number = 1; number <= num_parts; ++number) {
    auto part = parts_.find(number);
    if (part == parts_.end())
      return Error(Code::kFailedPrecondition, "{}: part {} of {} was not sent",
                   session_->Where(key_), number, num_parts);
    xml += fmt::format("<Part><PartNumber>{}</PartNumber><ETag>{}</ETag>", number,
                       EscapeXml(part->second.etag));
    if (!part->second.checksum.empty())
      xml += "<ChecksumCRC32C>" + part->second.checksum + "</ChecksumCRC32C>";
    xml += "</Part>";
  }
  return xml + "</CompleteMultipartUpload>";
}

// After a completion whose outcome is not known: of one that is not there any more some servers say
// for ever that they are busy.
Status S3Upload::CheckStillThere(const Context& ctx) {
  {
    MutexLock lock(&mu_);
    if (!unclear_) return OkStatus();
  }
  S3Call call;
  call.verb = S3Verb::kCompleteUpload;
  call.key = key_;
  call.query = {{"uploadId", id_}, {"max-parts", "1"}};
  S3Answer answer = session_->Send(std::move(call), ctx);
  // Some servers call it NoSuchKey.
  if (answer.response.status != 404 || answer.error.code == "NoSuchBucket") return OkStatus();
  return Error(Code::kFailedPrecondition,
               "{}: the upload is not there any more: it was completed or given up",
               session_->Where(key_));
}

Result<std::string> S3Upload::Complete(uint32_t num_parts, const Context& ctx) {
  if (num_parts == 0 || num_parts > kMaxS3Parts)
    return Error(Code::kInvalidArgument, "{}: an upload of {} parts: 1 to {} are possible",
                 session_->Where(key_), num_parts, kMaxS3Parts);
  HR_RETURN_IF_ERROR(CheckOpen());
  HR_ASSIGN_OR_RETURN(std::string xml, PartList(num_parts));
  HR_RETURN_IF_ERROR(CheckStillThere(ctx));
  S3Call call;
  call.verb = S3Verb::kCompleteUpload;
  call.method = "POST";
  call.key = key_;
  call.query = {{"uploadId", id_}};
  call.headers = {{"Content-Type", "application/xml"}};
  call.body = AsBytes(xml);
  S3Answer answer = session_->Send(std::move(call), ctx);
  if (answer.status.code() == Code::kUnavailable) {
    MutexLock lock(&mu_);
    unclear_ = true;
  }
  HR_RETURN_IF_ERROR(std::move(answer.status));
  // The status comes before the parts are joined: a failure after that is in the body.
  if (IsS3Error(answer.response.body)) {
    S3Error error = ParseS3Error(answer.response.body);
    return Error(error.code == "NoSuchUpload" || error.code == "InvalidPart"
                     ? Code::kFailedPrecondition
                     : Code::kUnavailable,
                 "{}: the server could not join the parts ({}: {})", session_->Where(key_),
                 error.code, error.message);
  }
  auto etag = ParseS3CompletedEtag(answer.response.body);
  if (!etag.ok()) return std::move(etag).status().Prefix(session_->Where(key_));
  {
    MutexLock lock(&mu_);
    ended_ = true;
  }
  return etag->empty() ? AskEtag(num_parts, ctx) : std::move(etag);
}

// For servers that do not tell it. Another object may be there by now, made in another way.
std::string S3Upload::AskEtag(uint32_t num_parts, const Context& ctx) {
  S3Call call;
  call.verb = S3Verb::kHead;
  call.method = "HEAD";
  call.key = key_;
  S3Answer answer = session_->Send(std::move(call), ctx);
  std::string etag = StripEtag(answer.response.Header("etag"));
  bool fits = answer.status.ok() && etag.ends_with("-" + std::to_string(num_parts));
  return fits ? etag : "";
}

Status S3Upload::Abort(const Context& ctx) {
  Status aborted = AbortS3Upload(session_.get(), key_, id_, ctx);
  MutexLock lock(&mu_);
  if (aborted.ok()) ended_ = true;
  return aborted;
}

}  // namespace headrace::object
