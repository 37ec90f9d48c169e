// Sends requests to one bucket: addresses and signs them, and signs one anew where that is what it
// failed for. Internal to the driver s3. Thread-safe.
//
// Not a retry: a request is sent again only after something was learned, and for each reason once:
// renewed credentials, the bucket's region, the server's time, or the place a redirect names. And
// where an answer lacks something it is asked for: the reason of a failed HEAD (by a GET of one
// byte), the size of an object that a range is outside of (by a HEAD).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "headrace/base/mutex.h"
#include "headrace/net/http_client.h"
#include "headrace/object/s3/answers.h"
#include "headrace/object/s3/credentials.h"
#include "headrace/object/s3/failure.h"
#include "headrace/object/s3/settings.h"
#include "headrace/object/s3/signer.h"
#include "headrace/object/uri.h"

namespace headrace::object {

// A request to the bucket, without its address and signature.
struct S3Call {
  S3Verb verb = S3Verb::kGet;
  std::string method = "GET";
  std::string key;  // empty: the bucket itself
  S3Query query;
  std::vector<net::HttpHeader> headers;
  Bytes body = {};                           // must outlive the request
  MutableBytes into = {};                    // must outlive the request
  bool if_absent = false, if_match = false;  // a condition is among the headers
};

struct S3Answer {
  Status status = {};  // OK: a 2xx answer; else what S3Failure says, naming bucket and key
  S3Error error = {};  // of a failed answer
  net::HttpResponse response = {};  // status 0: there was none
};

class S3Session {
 public:
  using Done = std::function<void(S3Answer)>;

  // As OpenS3Store.
  S3Session(std::string bucket, S3Settings settings, net::HttpClient* client);
  // Waits for the requests that still run.
  ~S3Session();
  S3Session(const S3Session&) = delete;
  S3Session& operator=(const S3Session&) = delete;

  // Starts a request; `done` is called once, on the client's thread, the credentials' thread or,
  // before this returns, on this one. Never waits.
  void Submit(S3Call call, const Context& ctx, Done done);
  // The same, waiting for the answer.
  S3Answer Send(S3Call call, const Context& ctx);

  // "s3://bucket/key", printable.
  std::string Where(std::string_view key) const;
  const std::string& name() const { return name_; }
  const S3Settings& settings() const { return settings_; }

 private:
  struct Running;
  using RunningPtr = std::shared_ptr<Running>;

  void Start(const RunningPtr& running);
  Result<net::HttpRequest> Build(Running* running);
  Uri EndpointFor(const std::string& region) const;
  Uri Place(const Running& running, const std::string& region) const;
  Sha256Digest KeyFor(const S3Credentials& credentials, const std::string& date,
                      const std::string& region);
  void OnAnswer(const RunningPtr& running, Result<net::HttpResponse> result);
  bool SendAgain(const RunningPtr& running, const S3Answer& answer);
  bool LearnRegion(const RunningPtr& running, const S3Answer& answer);
  bool LearnTime(const RunningPtr& running, const S3Answer& answer);
  bool LearnPlace(const RunningPtr& running, const S3Answer& answer);
  bool AskWhy(const RunningPtr& running, const S3Answer& answer);
  bool AskSize(const RunningPtr& running, const S3Answer& answer);
  void Renew(const RunningPtr& running, S3Answer answer);
  void Fail(const RunningPtr& running, S3Answer answer);
  void Finish(const RunningPtr& running, S3Answer answer);
  std::string region();

  const std::string bucket_, name_;
  const S3Settings settings_;
  net::HttpClient* const client_;
  const std::unique_ptr<S3CredentialCache> credentials_;  // null: anonymous
  std::atomic<bool> bucket_seen_{false};  // an answer has shown that the bucket is there

  Mutex mu_;  // none is taken while it is held; no I/O under it
  CondVar finished_;
  std::string region_ HR_GUARDED_BY(mu_);
  int64_t skew_ns_ HR_GUARDED_BY(mu_) = 0;  // the server's time less ours
  uint64_t num_running_ HR_GUARDED_BY(mu_) = 0;
  // The last signing key and what it is made of.
  struct SigningKey {
    std::string secret, date, region;
    Sha256Digest key{};
  };
  SigningKey signing_key_ HR_GUARDED_BY(mu_);
};

}  // namespace headrace::object
