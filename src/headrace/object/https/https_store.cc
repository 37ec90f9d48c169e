#include "headrace/object/https/https_store.h"

#include <utility>

#include "headrace/base/mutex.h"
#include "headrace/base/text.h"
#include "headrace/env/process.h"
#include "headrace/object/object_key.h"
#include "headrace/object/range_request.h"
#include "headrace/object/retry_after.h"
#include "headrace/object/uri.h"

namespace headrace::object {

namespace {

constexpr int kMaxRedirects = 5;
constexpr uint64_t kMaxErrorBody = 64 << 10;

Abilities ReadOnly() {
  Abilities can;
  can.get_if_match = true;
  return can;
}

// What a status that is not 2xx means.
Status HttpFailure(const net::HttpResponse& response, const std::string& host) {
  int status = response.status;
  if (status == 404 || status == 410)
    return Error(Code::kNotFound, "the server has no such file (status {})", status);
  if (status == 401 || status == 403)
    return Error(Code::kPermissionDenied,
                 "the server does not let it be read (status {}): it may need a user and password "
                 "or a token in the address, or one that has not expired",
                 status);
  if (status == 412)
    return Error(Code::kFailedPrecondition, "the file was replaced since its etag was taken");
  if (status == 407)
    return Error(Code::kPermissionDenied, "a proxy wants authorization (status {})", status);
  if (status == 408 || status == 425 || status == 429 || status >= 500) {
    Status later =
        Error(Code::kUnavailable, "the server {} cannot answer now (status {})", host, status);
    if (status == 429 || status == 503) later = std::move(later).Throttled();
    auto wait = ReadRetryAfter(response, WallClockNanos());
    return wait ? std::move(later).RetryAfter(*wait) : later;
  }
  if (status >= 300 && status < 400)
    return Error(Code::kFailedPrecondition,
                 "the server sends elsewhere in a way that is not followed (status {})", status);
  return Error(Code::kFailedPrecondition, "the server refused (status {})", status);
}

class HttpsStore final : public ObjectStore {
 public:
  HttpsStore(Uri uri, net::HttpClient* client);
  // Waits for the reads that still run.
  ~HttpsStore() override;

  const std::string& name() const override { return name_; }
  const Abilities& abilities() const override { return abilities_; }

  Result<ObjectInfo> Head(const std::string& key, const Context& ctx) override;
  void SubmitGets(std::vector<GetRequest> requests, std::vector<GetDone> dones,
                  const Context& ctx) override;

  Result<std::string> Put(const std::string&, Bytes, const PutOptions&, const Context&) override {
    return CannotWrite();
  }
  Status Delete(const std::string&, const Context&) override { return CannotWrite(); }
  Result<ListPage> List(const ListRequest&, const Context&) override { return CannotList(); }
  Result<std::unique_ptr<Upload>> StartUpload(const std::string&, const Context&) override {
    return CannotWrite();
  }
  Result<std::vector<PendingUpload>> ListUploads(const std::string&, const Context&) override {
    return CannotList();
  }
  Status AbortUpload(const PendingUpload&, const Context&) override { return CannotWrite(); }

 private:
  // What happens to one read until it is done. One thread at a time has it.
  struct Reading {
    GetRequest request;
    GetDone done;
    Context ctx;
    std::string url;
    bool trusted = true;  // still on the server that was named: it may see the authorization
    int redirects = 0;
    bool probing = false;  // finding out whether the server answers range requests
    Status first;          // the failure that it is about
  };
  using ReadingPtr = std::shared_ptr<Reading>;

  std::string Where(std::string_view key) const { return ObjectName(name_, key); }
  Status CannotWrite() const {
    return CannotDo(name_, "write: web servers are only read; use s3:// or a folder");
  }
  Status CannotList() const {
    return CannotDo(name_, "list: web servers have no listing; name the files");
  }
  void Start(GetRequest request, GetDone done, const Context& ctx);
  void Send(const ReadingPtr& reading);
  void OnAnswer(const ReadingPtr& reading, Result<net::HttpResponse> result);
  Status FollowRedirect(Reading* reading, const net::HttpResponse& response) const;
  void OnProbed(const ReadingPtr& reading, const Result<net::HttpResponse>& result);
  Result<ObjectInfo> Read(const Reading& reading, const net::HttpResponse& response) const;
  void Finish(const ReadingPtr& reading, Result<ObjectInfo> result);

  const Uri uri_;
  const std::string name_;
  const std::string authorization_;  // a header's value, or ""
  net::HttpClient* const client_;
  const Abilities abilities_ = ReadOnly();
  Mutex mu_;  // none is taken while it is held
  CondVar finished_;
  uint64_t num_running_ HR_GUARDED_BY(mu_) = 0;
};

std::string BasicAuthorization(const std::string& user_info) {
  if (user_info.empty()) return "";
  return "Basic " + Base64Text(AsBytes(PercentDecode(user_info)));
}

HttpsStore::HttpsStore(Uri uri, net::HttpClient* client)
    : uri_(std::move(uri)),
      name_(uri_.scheme + "://" + uri_.Authority() + EscapeText(uri_.path)),
      authorization_(BasicAuthorization(uri_.user_info)),
      client_(client) {}

HttpsStore::~HttpsStore() {
  MutexLock lock(&mu_);
  while (num_running_ > 0) finished_.Wait(&mu_);
}

Result<ObjectInfo> HttpsStore::Head(const std::string& key, const Context& ctx) {
  GetRequest request;
  request.key = key;
  return Get(std::move(request), ctx);
}

void HttpsStore::SubmitGets(std::vector<GetRequest> requests, std::vector<GetDone> dones,
                            const Context& ctx) {
  for (size_t i = 0; i < requests.size(); ++i)
    Start(std::move(requests[i]), std::move(dones[i]), ctx);
}

void HttpsStore::Start(GetRequest request, GetDone done, const Context& ctx) {
  Status fits = CheckKey(name_, request.key);
  if (fits.ok()) fits = CheckRange(request.offset, request.out.size());
  if (fits.ok()) fits = ctx.Check().Prefix(Where(request.key));
  if (!fits.ok()) return done(std::move(fits));
  auto reading = std::make_shared<Reading>();
  reading->url = uri_.scheme + "://" + uri_.Authority() + uri_.path + "/" +
                 PercentEncode(request.key, true) + (uri_.query.empty() ? "" : "?" + uri_.query);
  reading->request = std::move(request);
  reading->done = std::move(done);
  reading->ctx = ctx;
  {
    MutexLock lock(&mu_);
    ++num_running_;
  }
  Send(reading);
}

void HttpsStore::Send(const ReadingPtr& reading) {
  const GetRequest& wanted = reading->request;
  net::HttpRequest request;
  request.url = reading->url;
  // The bytes as they are stored: of compressed ones no range could be told.
  request.headers.push_back({"Accept-Encoding", "identity"});
  if (reading->trusted && !authorization_.empty())
    request.headers.push_back({"Authorization", authorization_});
  request.max_body_bytes = kMaxErrorBody;
  if (reading->probing) {
    request.headers.push_back({"Range", "bytes=0-0"});
  } else {
    // A weak one matches nothing on a server; the answer's is compared all the same.
    if (!wanted.if_match.empty() && !wanted.if_match.starts_with("W/"))
      request.headers.push_back({"If-Match", "\"" + wanted.if_match + "\""});
    if (wanted.out.empty()) {
      request.method = "HEAD";
    } else {
      request.headers.push_back({"Range", RangeHeader(wanted.offset, wanted.out.size())});
      request.into = wanted.out;
    }
  }
  client_->Submit(std::move(request), reading->ctx,
                  [this, reading](auto result) { OnAnswer(reading, std::move(result)); });
}

void HttpsStore::OnAnswer(const ReadingPtr& reading, Result<net::HttpResponse> result) {
  if (reading->probing) return OnProbed(reading, result);
  if (!result.ok()) {
    Status status = std::move(result).status();
    // More bytes than were asked for, or fewer than promised: does it know ranges at all?
    if (status.code() != Code::kDataLoss || reading->request.out.empty())
      return Finish(reading, std::move(status));
    reading->first = std::move(status);
    reading->probing = true;
    return Send(reading);
  }
  int status = result->status;
  if (status == 301 || status == 302 || status == 303 || status == 307 || status == 308) {
    Status followed = FollowRedirect(reading.get(), *result);
    if (!followed.ok()) return Finish(reading, std::move(followed));
    return Send(reading);
  }
  Finish(reading, Read(*reading, *result));
}

// Goes where the server says, never from https to http.
Status HttpsStore::FollowRedirect(Reading* reading, const net::HttpResponse& response) const {
  if (++reading->redirects > kMaxRedirects)
    return Error(Code::kFailedPrecondition, "more than {} redirects", kMaxRedirects);
  std::string location(response.Header("location"));
  auto here = ParseUri(reading->url);
  if (!here.ok()) return std::move(here).status();
  if (location.starts_with("//"))
    location = here->scheme + ":" + location;
  else if (location.starts_with('/'))
    location = here->scheme + "://" + here->Authority() + location;
  auto there = ParseUri(location);
  if (!there.ok()) return std::move(there).status().Prefix("the server sends elsewhere");
  if (here->scheme == "https" && there->scheme != "https")
    return Error(Code::kFailedPrecondition,
                 "the server sends from https to http, which is not followed");
  reading->trusted =
      reading->trusted && there->Authority() == uri_.Authority() && there->scheme == uri_.scheme;
  reading->url = there->scheme + "://" + there->Authority() + there->path +
                 (there->query.empty() ? "" : "?" + there->query);
  return OkStatus();
}

void HttpsStore::OnProbed(const ReadingPtr& reading, const Result<net::HttpResponse>& result) {
  bool whole = (result.ok() && result->status == 200) ||
               (!result.ok() && result.status().code() == Code::kResourceExhausted);
  if (!whole) return Finish(reading, std::move(reading->first));
  Finish(reading, RangesNotAnswered());
}

Result<ObjectInfo> HttpsStore::Read(const Reading& reading,
                                    const net::HttpResponse& response) const {
  const GetRequest& request = reading.request;
  int status = response.status;
  bool part = status == 206 || status == 416;
  if (status != 200 && !(part && !request.out.empty()))
    return HttpFailure(response, uri_.Authority());
  ObjectInfo info;
  if (request.out.empty()) {
    HR_ASSIGN_OR_RETURN(info, InfoFromAnswer(response, request.key));
  } else {
    HR_ASSIGN_OR_RETURN(uint64_t size,
                        CheckRangeAnswer(response, request.offset, request.out.size()));
    info = DescribeAnswer(response, request.key);
    info.size_bytes = size;
  }
  HR_RETURN_IF_ERROR(CheckMatch(info, request.if_match));
  return info;
}

void HttpsStore::Finish(const ReadingPtr& reading, Result<ObjectInfo> result) {
  if (!result.ok()) result = std::move(result).status().Prefix(Where(reading->request.key));
  std::exchange(reading->done, nullptr)(std::move(result));
  MutexLock lock(&mu_);
  --num_running_;
  finished_.NotifyAll();  // under the lock: whoever waits destroys this as soon as it is free
}

}  // namespace

Result<std::unique_ptr<ObjectStore>> OpenHttpsStore(const std::string& url,
                                                    net::HttpClient* client) {
  HR_ASSIGN_OR_RETURN(Uri uri, ParseUri(url));
  while (uri.path.ends_with('/')) uri.path.pop_back();
  return std::make_unique<HttpsStore>(std::move(uri), client);
}

}  // namespace headrace::object
