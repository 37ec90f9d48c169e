#include "headrace/object/s3/s3_store.h"

#include <algorithm>
#include <utility>

#include "headrace/base/text.h"
#include "headrace/object/object_key.h"
#include "headrace/object/range_request.h"
#include "headrace/object/s3/answers.h"
#include "headrace/object/s3/s3_listing.h"
#include "headrace/object/s3/s3_session.h"
#include "headrace/object/s3/s3_upload.h"

namespace headrace::object {

namespace {

constexpr uint64_t kMaxPutBytes = uint64_t{5} << 30;
constexpr uint64_t kMinPartBytes = 5 << 20;
constexpr uint32_t kMaxPage = 1000;
// Metadata of the user's own, which every server keeps beside the object.
constexpr std::string_view kMarkHeader = "x-amz-meta-headrace-mark";
constexpr size_t kMaxMarkBytes = 64;
constexpr size_t kMaxUploadPages = 10000;

Abilities AbilitiesOf(const S3Dialect& dialect) {
  Abilities can;
  can.list = can.write = can.upload = true;
  can.put_if_absent = dialect.put_if_absent;
  can.put_if_match = dialect.put_if_match;
  can.get_if_match = can.put_mark = true;
  can.strict_keys = dialect.strict_keys;
  can.ordered_list = dialect.ordered_list;
  can.min_part_bytes = kMinPartBytes;
  can.max_parts = kMaxS3Parts;
  return can;
}

// Keys that a server with files in folders takes for others.
bool IsOddPath(std::string_view key) {
  if (key.find('\\') != std::string_view::npos) return true;
  while (true) {
    size_t slash = key.find('/');
    std::string_view part = key.substr(0, slash);
    bool last = slash == std::string_view::npos;
    if (part == "." || part == ".." || part.empty()) return true;
    if (last) return false;
    key.remove_prefix(slash + 1);
  }
}

Status CheckBucket(const std::string& bucket) {
  bool plain = std::all_of(bucket.begin(), bucket.end(), [](char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '.' || c == '_' || c == ':';
  });
  if (plain && !bucket.empty() && bucket.size() <= 255 && bucket != "." && bucket != "..")
    return OkStatus();
  return Error(Code::kInvalidArgument,
               "'{}' is not the name of a bucket: letters, digits, '-', '.' and '_' are expected",
               EscapeText(bucket));
}

bool IsMark(std::string_view text) {
  return text.size() <= kMaxMarkBytes && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
                  c == '-';
         });
}

std::string Quoted(const std::string& etag) { return "\"" + etag + "\""; }

// The reading of answers, for threads of the client: they may outlive the store, not the session.
Result<ObjectInfo> ReadHead(const S3Session& session, const GetRequest& request, S3Answer answer) {
  ObjectInfo info = DescribeAnswer(answer.response, request.key);
  // 416: asked for the first byte, and there is none.
  if (answer.response.status != 416) {
    HR_RETURN_IF_ERROR(std::move(answer.status));
    auto read = InfoFromAnswer(answer.response, request.key);
    if (!read.ok()) return std::move(read).status().Prefix(session.Where(request.key));
    info = *std::move(read);
  }
  info.mark = answer.response.Header(kMarkHeader);
  Status match = CheckMatch(info, request.if_match);
  if (!match.ok()) return std::move(match).Prefix(session.Where(request.key));
  return info;
}

Result<ObjectInfo> ReadGet(const S3Session& session, const GetRequest& request, S3Answer answer) {
  const net::HttpResponse& response = answer.response;
  // More bytes came than were asked for: the client gives no answer then.
  if (response.status == 0 && answer.status.code() == Code::kDataLoss)
    return Error(Code::kDataLoss,
                 "{}; a server, or a proxy before it, that does not answer range requests sends "
                 "the whole object for a part of it",
                 answer.status.message());
  if (response.status != 416) HR_RETURN_IF_ERROR(std::move(answer.status));
  auto size = CheckRangeAnswer(response, request.offset, request.out.size());
  if (!size.ok()) return std::move(size).status().Prefix(session.Where(request.key));
  ObjectInfo info = DescribeAnswer(response, request.key);
  info.size_bytes = *size;
  Status match = CheckMatch(info, request.if_match);
  if (!match.ok()) return std::move(match).Prefix(session.Where(request.key));
  return info;
}

class S3Store final : public ObjectStore {
 public:
  S3Store(const std::string& bucket, const S3Settings& settings, net::HttpClient* client)
      : session_(std::make_shared<S3Session>(bucket, settings, client)),
        abilities_(AbilitiesOf(settings.dialect)) {}

  const std::string& name() const override { return session_->name(); }
  const Abilities& abilities() const override { return abilities_; }

  Result<ObjectInfo> Head(const std::string& key, const Context& ctx) override;
  void SubmitGets(std::vector<GetRequest> requests, std::vector<GetDone> dones,
                  const Context& ctx) override;
  Result<std::string> Put(const std::string& key, Bytes data, const PutOptions& options,
                          const Context& ctx) override;
  Status Delete(const std::string& key, const Context& ctx) override;
  Result<ListPage> List(const ListRequest& request, const Context& ctx) override;
  Result<std::unique_ptr<Upload>> StartUpload(const std::string& key, const Context& ctx) override;
  Result<std::vector<PendingUpload>> ListUploads(const std::string& prefix,
                                                 const Context& ctx) override;
  Status AbortUpload(const PendingUpload& upload, const Context& ctx) override;

 private:
  Status Check(const std::string& key) const;
  Status CheckPut(const std::string& key, Bytes data, const PutOptions& options) const;
  void SubmitGet(GetRequest request, GetDone done, const Context& ctx);
  S3Call HeadCall(const std::string& key, const std::string& if_match) const;
  Status Named(const std::string& key, Status status) const {
    return std::move(status).Prefix(session_->Where(key));
  }

  const std::shared_ptr<S3Session> session_;
  const Abilities abilities_;
};

Status S3Store::Check(const std::string& key) const {
  HR_RETURN_IF_ERROR(CheckKey(name(), key));
  if (abilities_.strict_keys || (!IsOddPath(key) && IsValidUtf8(key))) return OkStatus();
  return Error(Code::kInvalidArgument,
               "{}: a server of the kind '{}' takes no keys with empty, '.' or '..' parts or a "
               "backslash, nor keys that are not UTF-8",
               session_->Where(key), session_->settings().dialect.name);
}

S3Call S3Store::HeadCall(const std::string& key, const std::string& if_match) const {
  S3Call call;
  call.verb = S3Verb::kHead;
  call.method = "HEAD";
  call.key = key;
  if (!if_match.empty()) {
    call.headers.push_back({"If-Match", Quoted(if_match)});
    call.if_match = true;
  }
  return call;
}

Result<ObjectInfo> S3Store::Head(const std::string& key, const Context& ctx) {
  HR_RETURN_IF_ERROR(Check(key));
  GetRequest request;
  request.key = key;
  return ReadHead(*session_, request, session_->Send(HeadCall(key, ""), ctx));
}

void S3Store::SubmitGets(std::vector<GetRequest> requests, std::vector<GetDone> dones,
                         const Context& ctx) {
  for (size_t i = 0; i < requests.size(); ++i)
    SubmitGet(std::move(requests[i]), std::move(dones[i]), ctx);
}

void S3Store::SubmitGet(GetRequest request, GetDone done, const Context& ctx) {
  Status fits = Check(request.key);
  if (fits.ok()) fits = Named(request.key, CheckRange(request.offset, request.out.size()));
  if (!fits.ok()) return done(std::move(fits));
  S3Call call = HeadCall(request.key, request.if_match);
  auto read = ReadHead;
  if (!request.out.empty()) {
    call.verb = S3Verb::kGet;
    call.method = "GET";
    call.headers.push_back({"Range", RangeHeader(request.offset, request.out.size())});
    call.into = request.out;
    read = ReadGet;
  }
  const S3Session& session = *session_;
  session_->Submit(std::move(call), ctx,
                   [&session, read, request = std::move(request), done = std::move(done)](
                       S3Answer answer) { done(read(session, request, std::move(answer))); });
}

Status S3Store::CheckPut(const std::string& key, Bytes data, const PutOptions& options) const {
  HR_RETURN_IF_ERROR(Check(key));
  if ((options.if_absent && !abilities_.put_if_absent) ||
      (!options.if_match.empty() && !abilities_.put_if_match))
    return Error(Code::kUnimplemented, "{}: a server of the kind '{}' puts without conditions",
                 session_->Where(key), session_->settings().dialect.name);
  if (options.if_absent && !options.if_match.empty())
    return Error(Code::kInvalidArgument, "{}: if_absent and if_match exclude each other",
                 session_->Where(key));
  if (!IsMark(options.mark))
    return Error(Code::kInvalidArgument, "{}: a mark has at most {} letters, digits and '-'",
                 session_->Where(key), kMaxMarkBytes);
  if (data.size() > kMaxPutBytes)
    return Error(Code::kInvalidArgument, "{}: {} bytes in one put: above {} use an upload",
                 session_->Where(key), data.size(), FormatSize(kMaxPutBytes));
  return OkStatus();
}

Result<std::string> S3Store::Put(const std::string& key, Bytes data, const PutOptions& options,
                                 const Context& ctx) {
  HR_RETURN_IF_ERROR(CheckPut(key, data, options));
  const S3Dialect& dialect = session_->settings().dialect;
  S3Call call;
  call.verb = S3Verb::kPut;
  call.method = "PUT";
  call.key = key;
  call.body = data;
  AddBodyChecksum(dialect.checksum, data, &call.headers);
  call.if_absent = options.if_absent;
  call.if_match = !options.if_match.empty();
  if (call.if_absent) call.headers.push_back({"If-None-Match", "*"});
  if (call.if_match)
    call.headers.push_back(
        {"If-Match", dialect.put_if_match_quoted ? Quoted(options.if_match) : options.if_match});
  if (!options.mark.empty()) call.headers.push_back({std::string(kMarkHeader), options.mark});
  S3Answer answer = session_->Send(std::move(call), ctx);
  HR_RETURN_IF_ERROR(std::move(answer.status));
  return StripEtag(answer.response.Header("etag"));
}

Status S3Store::Delete(const std::string& key, const Context& ctx) {
  HR_RETURN_IF_ERROR(Check(key));
  S3Call call;
  call.verb = S3Verb::kDelete;
  call.method = "DELETE";
  call.key = key;
  S3Answer answer = session_->Send(std::move(call), ctx);
  if (answer.error.code == "NoSuchKey") return OkStatus();
  return std::move(answer.status);
}

Result<ListPage> S3Store::List(const ListRequest& request, const Context& ctx) {
  S3ListPosition position;
  S3Call call;
  call.verb = S3Verb::kList;
  call.query = {{"list-type", "2"},
                {"encoding-type", "url"},
                {"max-keys", std::to_string(std::clamp(request.max, 1u, kMaxPage))},
                {"prefix", request.prefix}};
  if (!request.delimiter.empty()) call.query.push_back({"delimiter", request.delimiter});
  if (!request.token.empty()) {
    HR_ASSIGN_OR_RETURN(position, S3ListPosition::Decode(request.token));
    call.query.push_back({"continuation-token", position.token});
  } else if (!request.after.empty() && abilities_.ordered_list) {
    call.query.push_back({"start-after", request.after});
  }
  S3Answer answer = session_->Send(std::move(call), ctx);
  HR_RETURN_IF_ERROR(std::move(answer.status));
  auto listing = ParseS3Listing(answer.response.body);
  if (!listing.ok()) return Named("", std::move(listing).status());
  auto page = abilities_.ordered_list
                  ? CheckS3Listing(request, position, *std::move(listing))
                  : CheckUnorderedS3Listing(request, position, *std::move(listing));
  if (!page.ok()) return Named("", std::move(page).status());
  return page;
}

Result<std::unique_ptr<Upload>> S3Store::StartUpload(const std::string& key, const Context& ctx) {
  HR_RETURN_IF_ERROR(Check(key));
  S3Call call;
  call.verb = S3Verb::kStartUpload;
  call.method = "POST";
  call.key = key;
  call.query = {{"uploads", ""}};
  if (session_->settings().dialect.checksum == S3Checksum::kCrc32c)
    call.headers.push_back({"x-amz-checksum-algorithm", "CRC32C"});
  S3Answer answer = session_->Send(std::move(call), ctx);
  HR_RETURN_IF_ERROR(std::move(answer.status));
  auto id = ParseS3UploadId(answer.response.body);
  if (!id.ok()) return Named(key, std::move(id).status());
  return std::make_unique<S3Upload>(session_, key, *std::move(id));
}

Result<std::vector<PendingUpload>> S3Store::ListUploads(const std::string& prefix,
                                                        const Context& ctx) {
  std::vector<PendingUpload> uploads;
  std::string key_marker, id_marker;
  for (size_t page = 0; page < kMaxUploadPages; ++page) {
    S3Call call;
    call.verb = S3Verb::kListUploads;
    call.query = {{"uploads", ""}, {"encoding-type", "url"}, {"prefix", prefix}};
    if (!key_marker.empty()) call.query.push_back({"key-marker", key_marker});
    if (!id_marker.empty()) call.query.push_back({"upload-id-marker", id_marker});
    S3Answer answer = session_->Send(std::move(call), ctx);
    HR_RETURN_IF_ERROR(std::move(answer.status));
    auto listing = ParseS3UploadListing(answer.response.body);
    if (!listing.ok()) return Named("", std::move(listing).status());
    for (PendingUpload& upload : listing->uploads)
      if (upload.key.starts_with(prefix)) uploads.push_back(std::move(upload));
    if (!listing->truncated) return uploads;
    if (listing->key_marker == key_marker && listing->id_marker == id_marker) break;
    key_marker = std::move(listing->key_marker);
    id_marker = std::move(listing->id_marker);
  }
  return Error(Code::kDataLoss,
               "{}: the server says that the list of uploads goes on, and it does not",
               session_->name());
}

Status S3Store::AbortUpload(const PendingUpload& upload, const Context& ctx) {
  HR_RETURN_IF_ERROR(Check(upload.key));
  return AbortS3Upload(session_.get(), upload.key, upload.id, ctx);
}

}  // namespace

Result<std::unique_ptr<ObjectStore>> OpenS3Store(const std::string& bucket,
                                                 const S3Settings& settings,
                                                 net::HttpClient* client) {
  HR_RETURN_IF_ERROR(CheckBucket(bucket));
  return std::make_unique<S3Store>(bucket, settings, client);
}

Result<std::unique_ptr<ObjectStore>> OpenS3Store(const std::string& bucket,
                                                 const S3Options& options,
                                                 net::HttpClient* client) {
  HR_ASSIGN_OR_RETURN(S3Settings settings, ReadS3Settings(options));
  return OpenS3Store(bucket, settings, client);
}

}  // namespace headrace::object
