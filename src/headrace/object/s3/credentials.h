// The keys that sign requests to a bucket, renewed before they end. Thread-safe. Nothing here puts
// a secret into a message.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/context.h"
#include "headrace/base/mutex.h"
#include "headrace/base/status.h"
#include "headrace/env/process.h"
#include "headrace/net/http_client.h"
#include "headrace/object/s3/settings.h"

namespace headrace::object {

struct S3Credentials {
  std::string access_key_id, secret_access_key;
  std::string session_token;  // empty: none
  int64_t expires_ns = 0;     // since 1970; 0 = never

  bool operator==(const S3Credentials& other) const = default;
};
using S3CredentialsPtr = std::shared_ptr<const S3Credentials>;

// Fetches credentials from their source once, waiting for it.
//   kNotFound, kPermissionDenied, kUnavailable, kInvalidArgument  name the source.
Result<S3Credentials> FetchS3Credentials(const S3CredentialSource& source,
                                         const S3Surroundings& surroundings,
                                         net::HttpClient* client, const Context& ctx);

// Credentials of one source, shared by all requests. They are fetched when first asked for, and
// again by a thread of its own (started then) when they near their end: one fetch at a time,
// however many wait for it. While the old ones are good, nobody waits. Another thread, started when
// somebody waits for a limited time, ends what has waited too long.
class S3CredentialCache {
 public:
  using Fetch = std::function<Result<S3Credentials>(const Context&)>;
  using Then = std::function<void(Result<S3CredentialsPtr>)>;

  // `description` says in messages where they come from; `now_ns` is the wall clock.
  S3CredentialCache(std::string description, Fetch fetch, std::function<int64_t()> now_ns);
  // Stops, and waits for its thread. Not on that thread.
  ~S3CredentialCache();
  S3CredentialCache(const S3CredentialCache&) = delete;
  S3CredentialCache& operator=(const S3CredentialCache&) = delete;

  // Sets what was known beforehand.
  void Set(S3Credentials credentials);
  // Hands credentials that are good for a while longer to `then`, which must not block: at once, on
  // the caller's thread, when there are some; else when they were fetched or the Context is over,
  // on a thread of the cache. Never waits.
  void Get(const Context& ctx, const Then& then);
  // For a server that refused `refused`: fetches others, unless that was done already, and hands
  // them to `then`, which must not block: on the cache's thread, or on the caller's before this
  // returns. kPermissionDenied when the source has no others.
  void Renew(S3CredentialsPtr refused, const Then& then);

  // Gives up a fetch that runs; what waits for one, now or later, gets kCancelled.
  void Stop();

  const std::string& description() const { return description_; }

 private:
  enum class Age : uint8_t { kGood, kSoonOver, kOver };
  Age AgeOf(const S3CredentialsPtr& credentials) const;
  struct Waiter {
    S3CredentialsPtr refused;  // null: any will do
    Context ctx;
    Then then;
  };
  Status WantFetchLocked() HR_REQUIRES(mu_);
  Status WaitLocked(Waiter waiter) HR_REQUIRES(mu_);
  void Run();
  void Watch();
  bool TakeOverdue(std::vector<Waiter>* overdue);
  void FetchOnce();

  const std::string description_;
  const Fetch fetch_;
  const std::function<int64_t()> now_ns_;
  Mutex mu_;  // none is taken while it is held; no I/O under it
  CondVar changed_;
  S3CredentialsPtr current_ HR_GUARDED_BY(mu_);
  int64_t try_again_ns_ HR_GUARDED_BY(mu_) = 0;  // no early renewal before
  bool wanted_ HR_GUARDED_BY(mu_) = false;       // a fetch is asked for or runs
  bool stop_ HR_GUARDED_BY(mu_) = false;
  std::vector<Waiter> waiters_ HR_GUARDED_BY(mu_);
  std::atomic<bool> cancelled_{false};
  std::unique_ptr<Thread> thread_ HR_GUARDED_BY(mu_), watcher_ HR_GUARDED_BY(mu_);
};

}  // namespace headrace::object
