#include "headrace/object/s3/s3_session.h"

#include <algorithm>
#include <utility>

#include "headrace/base/text.h"
#include "headrace/object/object_key.h"
#include "headrace/object/s3/redirect.h"
#include "headrace/object/timestamp.h"

namespace headrace::object {

namespace {

constexpr uint64_t kMaxBody = 16 << 20;  // of listings and errors
constexpr uint64_t kMaxExplanation = 64 << 10;

// Names that can stand in front of the endpoint's host. With a dot the certificate would not fit.
bool FitsHost(std::string_view bucket, bool tls) {
  if (bucket.size() < 3 || bucket.size() > 63) return false;
  auto is_alnum = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); };
  if (!is_alnum(bucket.front()) || !is_alnum(bucket.back())) return false;
  return std::all_of(bucket.begin(), bucket.end(),
                     [&](char c) { return is_alnum(c) || c == '-' || (c == '.' && !tls); });
}

std::string HashOf(Bytes body) {
  Sha256 sha;
  sha.Update(body);
  return sha.Finish();
}

// A server that echoes what it was sent must not put a secret into our message, not even one that
// was cut there.
void HideSecrets(const S3Credentials& credentials, S3Error* error) {
  constexpr size_t kTelling = 8;
  for (const std::string& secret : {credentials.secret_access_key, credentials.session_token}) {
    if (secret.empty()) continue;
    std::string start = secret.substr(0, kTelling);
    if (error->message.find(start) != std::string::npos) error->message.clear();
    if (error->code.find(start) != std::string::npos) error->code.clear();
  }
}

std::unique_ptr<S3CredentialCache> MakeCache(const S3Settings& settings, net::HttpClient* client) {
  const S3CredentialSource& source = settings.credentials;
  if (source.kind == S3CredentialSource::Kind::kAnonymous) return nullptr;
  auto fetch = [source, surroundings = settings.surroundings, client](const Context& ctx) {
    return FetchS3Credentials(source, surroundings, client, ctx);
  };
  auto cache = std::make_unique<S3CredentialCache>(source.description, fetch,
                                                   settings.surroundings.wall_clock_ns);
  if (source.kind == S3CredentialSource::Kind::kFixed)
    cache->Set({source.access_key_id, source.secret_access_key, source.session_token, 0});
  return cache;
}

}  // namespace

// What happens to one call until it is done. One thread at a time has it.
struct S3Session::Running {
  S3Call call;
  Context ctx;
  Done done;
  S3CredentialsPtr credentials;  // null: anonymous
  std::string region;            // that it was signed for
  std::optional<Uri> place;      // a redirect has named another one
  bool renewed = false, region_learned = false, time_learned = false;
  bool asking_why = false, asking_size = false;
  S3Answer first;  // the failure that more is asked about
};

S3Session::S3Session(std::string bucket, S3Settings settings, net::HttpClient* client)
    : bucket_(std::move(bucket)),
      name_("s3://" + EscapeText(bucket_)),
      settings_(std::move(settings)),
      client_(client),
      credentials_(MakeCache(settings_, client)),
      region_(settings_.region) {}

S3Session::~S3Session() {
  if (credentials_) credentials_->Stop();
  MutexLock lock(&mu_);
  while (num_running_ > 0) finished_.Wait(&mu_);
}

std::string S3Session::Where(std::string_view key) const {
  return key.empty() ? name_ : ObjectName(name_, key);
}

std::string S3Session::region() {
  MutexLock lock(&mu_);
  return region_;
}

void S3Session::Submit(S3Call call, const Context& ctx, Done done) {
  auto running = std::make_shared<Running>();
  running->call = std::move(call);
  running->ctx = ctx;
  running->done = std::move(done);
  {
    MutexLock lock(&mu_);
    ++num_running_;
  }
  if (Status ended = ctx.Check(); !ended.ok()) return Fail(running, {.status = std::move(ended)});
  if (!credentials_) return Start(running);
  credentials_->Get(ctx, [this, running](auto credentials) {
    if (!credentials.ok()) return Fail(running, {.status = std::move(credentials).status()});
    running->credentials = *std::move(credentials);
    Start(running);
  });
}

S3Answer S3Session::Send(S3Call call, const Context& ctx) {
  Mutex mu;
  CondVar set;
  std::optional<S3Answer> answer;
  Submit(std::move(call), ctx, [&](S3Answer got) {
    MutexLock lock(&mu);
    answer.emplace(std::move(got));
    set.NotifyOne();  // under the lock: the waiter owns it, and may end as soon as it is free
  });
  MutexLock lock(&mu);
  while (!answer) set.Wait(&mu);
  return *std::move(answer);
}

void S3Session::Start(const RunningPtr& running) {
  auto request = Build(running.get());
  if (!request.ok()) return Fail(running, {.status = std::move(request).status()});
  client_->Submit(*std::move(request), running->ctx,
                  [this, running](auto result) { OnAnswer(running, std::move(result)); });
}

Uri S3Session::EndpointFor(const std::string& region) const {
  auto parsed = ParseUri(settings_.aws ? AwsS3Endpoint(region) : settings_.endpoint);
  return parsed.ok() ? *std::move(parsed) : Uri();  // it was checked when it was set
}

// Scheme, host and encoded path of the call.
Uri S3Session::Place(const Running& running, const std::string& region) const {
  Uri uri = EndpointFor(region);
  bool in_host = !settings_.path_style && FitsHost(bucket_, uri.scheme == "https");
  if (in_host)
    uri.host = bucket_ + "." + uri.host;
  else
    uri.path += "/" + PercentEncode(bucket_);
  const std::string& key = running.call.key;
  if (in_host || !key.empty()) uri.path += "/" + PercentEncode(key, true);
  return uri;
}

Sha256Digest S3Session::KeyFor(const S3Credentials& credentials, const std::string& date,
                               const std::string& region) {
  MutexLock lock(&mu_);
  SigningKey& last = signing_key_;
  if (last.date != date || last.region != region || last.secret != credentials.secret_access_key)
    last = {credentials.secret_access_key, date, region,
            S3SigningKey(credentials.secret_access_key, date, region)};
  return last.key;
}

Result<net::HttpRequest> S3Session::Build(Running* running) {
  const S3Call& call = running->call;
  int64_t now_ns = settings_.surroundings.wall_clock_ns();
  {
    MutexLock lock(&mu_);
    running->region = region_;
    now_ns += skew_ns_;
  }
  Uri place = running->place ? *running->place : Place(*running, running->region);
  S3RequestHead head;
  head.method = call.method;
  head.host = place.Authority();
  head.path = place.path;
  head.query = call.query;
  head.headers = call.headers;
  // TLS guards the body as well as its hash would.
  bool hashed = call.body.empty() || place.scheme != "https";
  if (running->credentials) {
    const S3Credentials& credentials = *running->credentials;
    head.payload_hash = call.body.empty() ? std::string(kEmptyPayload)
                        : hashed          ? HashOf(call.body)
                                          : std::string(kUnsignedPayload);
    std::string date = FormatBasicIso8601(now_ns).substr(0, 8);
    Sha256Digest key = KeyFor(credentials, date, running->region);
    SignS3Request(credentials, key, running->region, now_ns, &head);
  }
  net::HttpRequest request;
  request.method = call.method;
  std::string query = CanonicalS3Query(call.query);
  request.url = place.scheme + "://" + head.host + head.path + (query.empty() ? "" : "?" + query);
  request.headers = std::move(head.headers);
  request.body = call.body;
  request.into = running->asking_why ? MutableBytes() : call.into;
  request.max_body_bytes = running->asking_why ? kMaxExplanation : kMaxBody;
  return request;
}

void S3Session::OnAnswer(const RunningPtr& running, Result<net::HttpResponse> result) {
  if (!result.ok()) {
    // The reason of a failure could not be had: the failure itself is the answer.
    bool ours = result.status().code() == Code::kCancelled ||
                result.status().code() == Code::kDeadlineExceeded;
    bool asking = running->asking_why || running->asking_size;
    if (asking && !ours) return Fail(running, std::move(running->first));
    return Fail(running, {.status = std::move(result).status()});
  }
  S3Answer answer{.status = {}, .error = {}, .response = *std::move(result)};
  int status = answer.response.status;
  if (running->asking_size) {
    std::string size(answer.response.Header("content-length"));
    if (status == 200 && !size.empty())
      running->first.response.headers.push_back({"content-range", "bytes */" + size});
    return Fail(running, std::move(running->first));
  }
  if (status >= 200 && status < 300) {
    bucket_seen_.store(true, std::memory_order_relaxed);
    return Finish(running, std::move(answer));
  }
  answer.error = ParseS3Error(answer.response.body);
  const std::string& code = answer.error.code;
  if (code == "NoSuchKey" || status == 412 || status == 416)
    bucket_seen_.store(true, std::memory_order_relaxed);
  bool renewable = settings_.credentials.kind != S3CredentialSource::Kind::kFixed;
  if (renewable && running->credentials && !running->renewed && NeedsOtherCredentials(code))
    return Renew(running, std::move(answer));
  if (SendAgain(running, answer)) return Start(running);
  Fail(running, std::move(answer));
}

// True where something was learned that may make the same request succeed.
bool S3Session::SendAgain(const RunningPtr& running, const S3Answer& answer) {
  return LearnRegion(running, answer) || LearnTime(running, answer) ||
         LearnPlace(running, answer) || AskWhy(running, answer) || AskSize(running, answer);
}

bool S3Session::LearnRegion(const RunningPtr& running, const S3Answer& answer) {
  if (running->region_learned) return false;
  int status = answer.response.status;
  bool redirected = status >= 300 && status < 400;
  if (!redirected && answer.error.code != "AuthorizationHeaderMalformed" &&
      answer.error.code != "IllegalLocationConstraintException" && status != 400)
    return false;
  std::string region = answer.error.region;
  if (region.empty()) {
    std::string_view told = answer.response.Header("x-amz-bucket-region");
    // As in ParseS3Error: it becomes a part of a host's name.
    region = ParseS3Error("<Error><Region>" + std::string(told) + "</Region></Error>").region;
  }
  if (region.empty() || region == running->region) return false;
  running->region_learned = true;
  MutexLock lock(&mu_);
  region_ = std::move(region);
  return true;
}

bool S3Session::LearnTime(const RunningPtr& running, const S3Answer& answer) {
  const std::string& code = answer.error.code;
  if (running->time_learned || (code != "RequestTimeTooSkewed" && code != "RequestInTheFuture"))
    return false;
  auto time_ns = ParseHttpDate(answer.response.Header("date"));
  if (!time_ns) return false;
  running->time_learned = true;
  int64_t skew_ns = *time_ns - settings_.surroundings.wall_clock_ns();
  MutexLock lock(&mu_);
  skew_ns_ = skew_ns;
  return true;
}

// Follows a 307 or 308, once and never from https to http. Elsewhere than to the endpoint's own
// hosts only what is not signed goes.
bool S3Session::LearnPlace(const RunningPtr& running, const S3Answer& answer) {
  int status = answer.response.status;
  if (running->place || (status != 307 && status != 308)) return false;
  auto location = ParseUri(answer.response.Header("location"));
  if (!location.ok()) return false;
  Uri here = Place(*running, running->region);
  if (here.scheme == "https" && location->scheme != "https") return false;
  if (running->credentials &&
      !MaySignFor(*location, EndpointFor(running->region), settings_.aws, bucket_))
    return false;
  // The key stays what it was: only the host, and the bucket's place in the address, may change.
  std::string key = "/" + PercentEncode(running->call.key, true);
  std::string with_bucket = "/" + PercentEncode(bucket_) + key;
  if (location->path != key && location->path != with_bucket && location->path != here.path)
    return false;
  running->place = *std::move(location);
  return true;
}

// HEAD has no body that could give a reason.
bool S3Session::AskWhy(const RunningPtr& running, const S3Answer& answer) {
  if (running->call.method != "HEAD" || running->asking_why) return false;
  int status = answer.response.status;
  bool unclear = status == 400 || status == 401 || status == 403 || status == 301 ||
                 (status == 404 && !bucket_seen_.load(std::memory_order_relaxed));
  if (!unclear) return false;
  running->first = answer;
  running->asking_why = true;
  running->call.method = "GET";
  running->call.headers.push_back({"Range", "bytes=0-0"});
  return true;
}

// Not all servers tell it with 416.
bool S3Session::AskSize(const RunningPtr& running, const S3Answer& answer) {
  S3Call& call = running->call;
  if (call.into.empty() || answer.response.status != 416 ||
      !answer.response.Header("content-range").empty())
    return false;
  running->first = answer;
  running->asking_size = true;
  call.method = "HEAD";
  std::erase_if(call.headers, [](const net::HttpHeader& header) { return header.name == "Range"; });
  return true;
}

void S3Session::Renew(const RunningPtr& running, S3Answer answer) {
  running->renewed = true;
  auto refused = std::make_shared<S3Answer>(std::move(answer));
  credentials_->Renew(running->credentials, [this, running, refused](auto credentials) {
    if (!credentials.ok()) return Fail(running, std::move(*refused));
    running->credentials = *std::move(credentials);
    Start(running);
  });
}

void S3Session::Fail(const RunningPtr& running, S3Answer answer) {
  const S3Call& call = running->call;
  if (answer.status.ok()) {
    if (running->credentials) HideSecrets(*running->credentials, &answer.error);
    S3Attempt attempt;
    attempt.verb = call.verb;
    attempt.if_absent = call.if_absent;
    attempt.if_match = call.if_match;
    attempt.bucket = bucket_;
    attempt.endpoint = settings_.aws ? AwsS3Endpoint(running->region) : settings_.endpoint;
    attempt.region = running->region;
    if (credentials_) attempt.credentials = credentials_->description();
    attempt.now_ns = settings_.surroundings.wall_clock_ns();
    answer.status = S3Failure(attempt, answer.response, answer.error);
  }
  answer.status = std::move(answer.status).Prefix(Where(call.key));
  Finish(running, std::move(answer));
}

void S3Session::Finish(const RunningPtr& running, S3Answer answer) {
  std::exchange(running->done, nullptr)(std::move(answer));
  MutexLock lock(&mu_);
  --num_running_;
  finished_.NotifyAll();  // under the lock: whoever waits destroys this as soon as it is free
}

}  // namespace headrace::object
