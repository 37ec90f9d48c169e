#include "headrace/object/s3/credentials.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include "headrace/base/redaction.h"

namespace headrace::object {

namespace {

constexpr int64_t kSecond = 1'000'000'000;
// Renewed in the background from here to their end...
constexpr int64_t kSoonOverNs = 300 * kSecond;
// ... and no longer used from here.
constexpr int64_t kOverNs = 15 * kSecond;
// After a renewal that failed while the old ones are still good.
constexpr int64_t kTryAgainNs = 30 * kSecond;
constexpr std::chrono::seconds kFetchTimeout{60};
constexpr std::chrono::milliseconds kPoll{50};

// So that they are found in texts that others make, as in the lines of a job's log.
void RememberSecretsOf(const S3Credentials& credentials) {
  RememberSecret(credentials.secret_access_key);
  RememberSecret(credentials.session_token);
}

}  // namespace

S3CredentialCache::S3CredentialCache(std::string description, Fetch fetch,
                                     std::function<int64_t()> now_ns)
    : description_(std::move(description)), fetch_(std::move(fetch)), now_ns_(std::move(now_ns)) {}

S3CredentialCache::~S3CredentialCache() {
  Stop();
  std::unique_ptr<Thread> thread, watcher;
  {
    MutexLock lock(&mu_);
    thread = std::move(thread_);
    watcher = std::move(watcher_);
  }
}

void S3CredentialCache::Stop() {
  cancelled_.store(true);
  MutexLock lock(&mu_);
  stop_ = true;
  changed_.NotifyAll();
}

void S3CredentialCache::Set(S3Credentials credentials) {
  RememberSecretsOf(credentials);
  MutexLock lock(&mu_);
  current_ = std::make_shared<const S3Credentials>(std::move(credentials));
}

S3CredentialCache::Age S3CredentialCache::AgeOf(const S3CredentialsPtr& credentials) const {
  if (!credentials) return Age::kOver;
  if (credentials->expires_ns == 0) return Age::kGood;
  int64_t left_ns = credentials->expires_ns - now_ns_();
  return left_ns < kOverNs ? Age::kOver : left_ns < kSoonOverNs ? Age::kSoonOver : Age::kGood;
}

Status S3CredentialCache::WantFetchLocked() {
  if (stop_) return Error(Code::kCancelled, "the store was closed");
  if (!thread_) {
    HR_ASSIGN_OR_RETURN(thread_, Thread::Start("hr-credentials", [this] { Run(); }));
  }
  if (!wanted_) {
    wanted_ = true;
    changed_.NotifyAll();
  }
  return OkStatus();
}

// Whoever fetches will come to it.
Status S3CredentialCache::WaitLocked(Waiter waiter) {
  HR_RETURN_IF_ERROR(WantFetchLocked());
  bool limited = waiter.ctx.cancelled || waiter.ctx.deadline != Context::Clock::time_point::max();
  if (limited && !watcher_) {
    HR_ASSIGN_OR_RETURN(watcher_, Thread::Start("hr-cred-watch", [this] { Watch(); }));
  }
  waiters_.push_back(std::move(waiter));
  changed_.NotifyAll();
  return OkStatus();
}

void S3CredentialCache::Get(const Context& ctx, const Then& then) {
  Result<S3CredentialsPtr> at_once = S3CredentialsPtr();
  {
    MutexLock lock(&mu_);
    Age age = AgeOf(current_);
    if (age == Age::kSoonOver && now_ns_() >= try_again_ns_)
      (void)WantFetchLocked();  // without it the old ones do
    if (age != Age::kOver) {
      at_once = current_;
    } else {
      Status waits = ctx.Check();
      if (waits.ok()) waits = WaitLocked({nullptr, ctx, then});
      if (waits.ok()) return;
      at_once = std::move(waits);
    }
  }
  then(std::move(at_once));
}

void S3CredentialCache::Renew(S3CredentialsPtr refused, const Then& then) {
  Result<S3CredentialsPtr> at_once = S3CredentialsPtr();
  {
    MutexLock lock(&mu_);
    bool renewed_already = current_ && refused && *current_ != *refused;
    if (renewed_already) {
      at_once = current_;
    } else {
      Status waits = WaitLocked({std::move(refused), Context(), then});
      if (waits.ok()) return;
      at_once = std::move(waits);
    }
  }
  then(std::move(at_once));
}

void S3CredentialCache::Run() {
  while (true) {
    {
      MutexLock lock(&mu_);
      while (!wanted_ && !stop_) changed_.Wait(&mu_);
      if (stop_ && waiters_.empty()) return;
    }
    FetchOnce();
  }
}

// Ends what has waited too long for a fetch that goes on.
void S3CredentialCache::Watch() {
  std::vector<Waiter> overdue;
  while (TakeOverdue(&overdue)) {
    for (Waiter& waiter : overdue) waiter.then(waiter.ctx.Check());
    overdue.clear();
  }
}

// Waits for some; false when the cache ends.
bool S3CredentialCache::TakeOverdue(std::vector<Waiter>* overdue) {
  MutexLock lock(&mu_);
  while (!stop_) {
    auto over = std::stable_partition(waiters_.begin(), waiters_.end(),
                                      [](const Waiter& waiter) { return waiter.ctx.Check().ok(); });
    std::move(over, waiters_.end(), std::back_inserter(*overdue));
    waiters_.erase(over, waiters_.end());
    if (!overdue->empty()) return true;
    if (waiters_.empty())
      changed_.Wait(&mu_);
    else
      changed_.WaitFor(&mu_, kPoll);
  }
  return false;
}

// Fetches, and tells all who wait.
void S3CredentialCache::FetchOnce() {
  Context ctx;
  ctx.deadline = Context::Clock::now() + kFetchTimeout;
  ctx.cancelled = &cancelled_;
  Result<S3Credentials> fetched =
      ctx.Check().ok() ? fetch_(ctx) : Result<S3Credentials>(ctx.Check());
  if (fetched.ok()) RememberSecretsOf(*fetched);
  std::vector<Waiter> waiters;
  Result<S3CredentialsPtr> result = S3CredentialsPtr();
  {
    MutexLock lock(&mu_);
    if (fetched.ok()) {
      current_ = std::make_shared<const S3Credentials>(*std::move(fetched));
      result = current_;
    } else {
      result = std::move(fetched).status().Prefix("no credentials from " + description_);
      try_again_ns_ = now_ns_() + kTryAgainNs;
    }
    wanted_ = false;
    waiters.swap(waiters_);
    changed_.NotifyAll();
  }
  for (Waiter& waiter : waiters) {
    bool others = result.ok() && (!waiter.refused || *result.value() != *waiter.refused);
    if (result.ok() && !others)
      waiter.then(Error(Code::kPermissionDenied, "{} has no other credentials", description_));
    else
      waiter.then(result.ok() ? Result<S3CredentialsPtr>(result.value())
                              : Result<S3CredentialsPtr>(Status(result.status())));
  }
}

}  // namespace headrace::object
