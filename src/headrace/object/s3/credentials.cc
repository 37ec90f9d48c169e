#include "headrace/object/s3/credentials.h"

#include <algorithm>
#include <chrono>
#include <utility>

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

}  // namespace

S3CredentialCache::S3CredentialCache(std::string description, Fetch fetch,
                                     std::function<int64_t()> now_ns)
    : description_(std::move(description)), fetch_(std::move(fetch)), now_ns_(std::move(now_ns)) {}

S3CredentialCache::~S3CredentialCache() {
  Stop();
  std::unique_ptr<Thread> thread;
  {
    MutexLock lock(&mu_);
    thread = std::move(thread_);
  }
}

void S3CredentialCache::Stop() {
  cancelled_.store(true);
  MutexLock lock(&mu_);
  stop_ = true;
  changed_.NotifyAll();
}

void S3CredentialCache::Set(S3Credentials credentials) {
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

Result<S3CredentialsPtr> S3CredentialCache::Get(const Context& ctx) {
  MutexLock lock(&mu_);
  Age age = AgeOf(current_);
  if (age == Age::kGood) return current_;
  if (age == Age::kSoonOver) {
    if (now_ns_() >= try_again_ns_) (void)WantFetchLocked();  // without it the old ones do
    return current_;
  }
  HR_RETURN_IF_ERROR(WantFetchLocked());
  uint64_t before = num_fetches_;
  while (num_fetches_ == before && !stop_) {
    HR_RETURN_IF_ERROR(ctx.Check());
    changed_.WaitFor(&mu_, kPoll);
  }
  if (stop_) return Error(Code::kCancelled, "the store was closed");
  if (!failure_.ok()) return failure_;
  return current_;
}

void S3CredentialCache::Renew(S3CredentialsPtr refused, Then then) {
  Result<S3CredentialsPtr> at_once = S3CredentialsPtr();
  {
    MutexLock lock(&mu_);
    bool renewed_already = current_ && refused && *current_ != *refused;
    Status wanted = renewed_already ? OkStatus() : WantFetchLocked();
    if (renewed_already) {
      at_once = current_;
    } else if (wanted.ok()) {
      waiters_.push_back({std::move(refused), std::move(then)});
      return;
    } else {
      at_once = std::move(wanted);
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

// Fetches, and tells all who wait.
void S3CredentialCache::FetchOnce() {
  Context ctx;
  ctx.deadline = Context::Clock::now() + kFetchTimeout;
  ctx.cancelled = &cancelled_;
  Result<S3Credentials> fetched =
      ctx.Check().ok() ? fetch_(ctx) : Result<S3Credentials>(ctx.Check());
  std::vector<Waiter> waiters;
  Result<S3CredentialsPtr> result = S3CredentialsPtr();
  {
    MutexLock lock(&mu_);
    if (fetched.ok()) {
      current_ = std::make_shared<const S3Credentials>(*std::move(fetched));
      failure_ = OkStatus();
      result = current_;
    } else {
      failure_ = std::move(fetched).status().Prefix("no credentials from " + description_);
      try_again_ns_ = now_ns_() + kTryAgainNs;
      result = failure_;
    }
    ++num_fetches_;
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
