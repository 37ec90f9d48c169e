#include "headrace/object/retrying_store.h"

#include <algorithm>
#include <map>
#include <utility>

#include "headrace/base/crc32c.h"
#include "headrace/base/keyed_random.h"
#include "headrace/base/mutex.h"
#include "headrace/base/text.h"
#include "headrace/env/process.h"
#include "headrace/object/object_key.h"
#include "headrace/object/pause.h"
#include "headrace/object/per_process.h"
#include "headrace/object/retry_timer.h"

namespace headrace::object {

namespace {

using TimePoint = Context::Clock::time_point;
using Nanoseconds = std::chrono::nanoseconds;

// Draws that differ between threads, processes and machines; nothing but a waiting time hangs on
// them.
double DrawForPause() {
  static std::atomic<uint64_t> count{0};
  auto now = static_cast<uint64_t>(Context::Clock::now().time_since_epoch().count());
  return KeyedRandom(HashKey(now, ForkGeneration(), count.fetch_add(1))).NextDouble();
}

// When to try again, and when to give up.
class RetryPolicy {
 public:
  explicit RetryPolicy(const RetryOptions& options) : options_(options) {
    if (!options_.now) options_.now = [] { return Context::Clock::now(); };
    if (!options_.random) options_.random = DrawForPause;
    if (!options_.pause) options_.pause = PauseFor;
  }

  const RetryOptions& options() const { return options_; }
  TimePoint Now() const { return options_.now(); }

  // The time to wait before the try after `tries`; or the status that ends the call, made of
  // `failure`.
  Result<Nanoseconds> Next(const Status& failure, uint32_t tries, TimePoint start,
                           const Context& ctx) const {
    if (failure.code() != Code::kUnavailable) return failure;
    HR_RETURN_IF_ERROR(ctx.Check());
    Nanoseconds pause = DrawPause(tries);
    const TimePoint now = Now();
    const Nanoseconds left = options_.budget - (now - start);
    const auto asked = failure.retry_after();
    // What is drawn comes on top, so that those who failed together do not come back together.
    if (asked) pause = std::min(*asked + pause, left);
    const TimePoint next = now + pause;
    if (ctx.deadline != TimePoint::max() && next >= ctx.deadline)
      return Error(Code::kDeadlineExceeded, "the deadline passes before the next try; {}",
                   Tried(failure, tries, start));
    if (asked ? left <= Nanoseconds(0) : pause >= left)
      return Status(Code::kUnavailable, Tried(failure, tries, start)).At(failure.location());
    if (options_.num_retries) options_.num_retries->fetch_add(1, std::memory_order_relaxed);
    if (options_.back_off_ns)
      options_.back_off_ns->fetch_add(static_cast<uint64_t>(std::max<int64_t>(pause.count(), 0)),
                                      std::memory_order_relaxed);
    return pause;
  }

 private:
  // Of up to the first pause after the first try, and twice as long after each other one.
  Nanoseconds DrawPause(uint32_t tries) const {
    auto longest = static_cast<double>(options_.longest_pause.count());
    double most = static_cast<double>(options_.first_pause.count());
    for (uint32_t i = 1; i < tries && most < longest; ++i) most *= 2;
    return Nanoseconds(static_cast<int64_t>(options_.random() * std::min(most, longest)));
  }
  std::string Tried(const Status& failure, uint32_t tries, TimePoint start) const {
    return fmt::format("{} (tried {} times in {})", failure.message(), tries,
                       FormatDuration(Now() - start));
  }

  RetryOptions options_;
};

Status StatusOf(const Status& status) { return status; }
template <typename T>
Status StatusOf(const Result<T>& result) {
  return result.status();
}

// Calls `run` until it does not fail with kUnavailable. `tries` counts the calls.
template <typename Run>
auto Retry(const RetryPolicy& policy, const Context& ctx, const Run& run, uint32_t* tries)
    -> decltype(run()) {
  const TimePoint start = policy.Now();
  for (*tries = 1;; ++*tries) {
    auto result = run();
    if (StatusOf(result).code() != Code::kUnavailable) return result;
    Result<Nanoseconds> pause = policy.Next(StatusOf(result), *tries, start, ctx);
    if (!pause.ok()) return std::move(pause).status();
    HR_RETURN_IF_ERROR(policy.options().pause(*pause, ctx));
  }
}
template <typename Run>
auto Retry(const RetryPolicy& policy, const Context& ctx, const Run& run) -> decltype(run()) {
  uint32_t tries = 0;
  return Retry(policy, ctx, run, &tries);
}

// The checksum of a whole object, read in parts of one version.
Result<uint32_t> ChecksumOf(ObjectStore* store, const ObjectInfo& info, const RetryPolicy& policy,
                            const Context& ctx) {
  constexpr uint64_t kPartBytes = 4 << 20;
  AlignedBuffer buffer;
  if (!buffer.Reserve(std::min(kPartBytes, info.size_bytes)))
    return Status(Code::kResourceExhausted, "no memory for reading an object back");
  uint32_t crc = 0;
  for (uint64_t offset = 0; offset < info.size_bytes; offset += kPartBytes) {
    MutableBytes part(buffer.data(), std::min(kPartBytes, info.size_bytes - offset));
    Result<ObjectInfo> got = Retry(policy, ctx, [&] {
      return store->Get({.key = info.key,
                         .offset = offset,
                         .out = part,
                         .if_match = store->abilities().get_if_match ? info.etag : ""},
                        ctx);
    });
    if (!got.ok()) return std::move(got).status();
    crc = Crc32c(part, crc);
  }
  return crc;
}

// Is the object just these bytes? Then its etag; else `refusal`.
Result<std::string> SettleByContent(ObjectStore* store, const std::string& key, uint64_t bytes,
                                    uint32_t crc32c, Status refusal, const RetryPolicy& policy,
                                    const Context& ctx) {
  Result<ObjectInfo> info = Retry(policy, ctx, [&] { return store->Head(key, ctx); });
  if (!info.ok() && info.status().code() != Code::kNotFound) return std::move(info).status();
  if (!info.ok() || info->size_bytes != bytes) return refusal;
  Result<uint32_t> crc = ChecksumOf(store, *info, policy, ctx);
  if (crc.ok())
    return *crc == crc32c ? Result<std::string>(info->etag) : Result<std::string>(refusal);
  Code code = crc.status().code();
  // Replaced or removed while it was read: whatever it was, it is not ours now.
  if (code == Code::kFailedPrecondition || code == Code::kNotFound || code == Code::kOutOfRange)
    return refusal;
  return std::move(crc).status();
}

// Is the object the one that was written with this mark? Then its etag; else `refusal`.
Result<std::string> SettleByMark(ObjectStore* store, const std::string& key,
                                 const std::string& mark, Status refusal, const RetryPolicy& policy,
                                 const Context& ctx) {
  Result<ObjectInfo> info = Retry(policy, ctx, [&] { return store->Head(key, ctx); });
  if (!info.ok() && info.status().code() != Code::kNotFound) return std::move(info).status();
  if (!info.ok() || info->mark != mark) return refusal;
  return std::move(info->etag);
}

class RetryingUpload final : public Upload {
 public:
  RetryingUpload(std::shared_ptr<ObjectStore> store, std::unique_ptr<Upload> upload,
                 std::string key, const RetryPolicy& policy)
      : store_(std::move(store)),
        upload_(std::move(upload)),
        key_(std::move(key)),
        policy_(policy) {}

  Status PutPart(uint32_t number, Bytes data, const Context& ctx) override {
    Status put = Retry(policy_, ctx, [&] { return upload_->PutPart(number, data, ctx); });
    if (!put.ok()) return put;
    MutexLock lock(&mu_);
    parts_[number] = {data.size(), Crc32c(data)};
    return put;
  }

  Result<std::string> Complete(uint32_t num_parts, const Context& ctx) override {
    uint32_t tries = 0;
    auto etag = Retry(policy_, ctx, [&] { return upload_->Complete(num_parts, ctx); }, &tries);
    Code code = etag.status().code();
    bool gone = code == Code::kFailedPrecondition || code == Code::kNotFound;
    if (!gone || tries == 1) return etag;
    Part whole;
    {
      MutexLock lock(&mu_);
      for (uint32_t number = 1; number <= num_parts; ++number) {
        auto part = parts_.find(number);
        if (part == parts_.end()) return etag;
        whole.crc32c = JoinCrc32c(whole.crc32c, part->second.crc32c, part->second.bytes);
        whole.bytes += part->second.bytes;
      }
    }
    return SettleByContent(store_.get(), key_, whole.bytes, whole.crc32c, etag.status(), policy_,
                           ctx);
  }

  Status Abort(const Context& ctx) override {
    return Retry(policy_, ctx, [&] { return upload_->Abort(ctx); });
  }

 private:
  struct Part {
    uint64_t bytes = 0;
    uint32_t crc32c = 0;
  };
  const std::shared_ptr<ObjectStore> store_;
  const std::unique_ptr<Upload> upload_;
  const std::string key_;
  const RetryPolicy policy_;
  Mutex mu_;
  std::map<uint32_t, Part> parts_ HR_GUARDED_BY(mu_);  // that were sent
};

class RetryingStore final : public ObjectStore {
 public:
  RetryingStore(std::shared_ptr<ObjectStore> store, const RetryOptions& options)
      : store_(std::move(store)),
        policy_(options),
        reads_([] { return std::make_unique<Reads>(); }) {}
  ~RetryingStore() override { reads_.Get().End(); }

  const std::string& name() const override { return store_->name(); }
  const Abilities& abilities() const override { return store_->abilities(); }

  Result<ObjectInfo> Head(const std::string& key, const Context& ctx) override {
    return Retry(policy_, ctx, [&] { return store_->Head(key, ctx); });
  }

  void SubmitGets(std::vector<GetRequest> requests, std::vector<GetDone> dones,
                  const Context& ctx) override {
    Reads& reads = reads_.Get();
    reads.Begin(requests.size());
    const TimePoint start = policy_.Now();
    std::vector<GetDone> wrapped;
    for (size_t i = 0; i < requests.size(); ++i) {
      auto read = std::make_shared<Read>(Read{requests[i], std::move(dones[i]), ctx, start});
      wrapped.push_back(
          [this, read](Result<ObjectInfo> result) { Answer(read, std::move(result)); });
    }
    store_->SubmitGets(std::move(requests), std::move(wrapped), ctx);
  }

  Result<std::string> Put(const std::string& key, Bytes data, const PutOptions& options,
                          const Context& ctx) override {
    PutOptions marked = options;
    const bool has_condition = options.if_absent || !options.if_match.empty();
    const bool by_mark = has_condition && abilities().put_mark;
    if (by_mark && marked.mark.empty()) marked.mark = RandomToken();
    uint32_t tries = 0;
    auto etag = Retry(policy_, ctx, [&] { return store_->Put(key, data, marked, ctx); }, &tries);
    Code code = etag.status().code();
    bool by_condition = (options.if_absent && code == Code::kAlreadyExists) ||
                        (!options.if_match.empty() && code == Code::kFailedPrecondition);
    if (!by_condition || tries == 1) return etag;
    if (by_mark) return SettleByMark(store_.get(), key, marked.mark, etag.status(), policy_, ctx);
    return SettleByContent(store_.get(), key, data.size(), Crc32c(data), etag.status(), policy_,
                           ctx);
  }

  Status Delete(const std::string& key, const Context& ctx) override {
    return Retry(policy_, ctx, [&] { return store_->Delete(key, ctx); });
  }

  Result<ListPage> List(const ListRequest& request, const Context& ctx) override {
    return Retry(policy_, ctx, [&] { return store_->List(request, ctx); });
  }

  Result<std::unique_ptr<Upload>> StartUpload(const std::string& key, const Context& ctx) override {
    auto upload = Retry(policy_, ctx, [&] { return store_->StartUpload(key, ctx); });
    if (!upload.ok()) return upload;
    return std::make_unique<RetryingUpload>(store_, *std::move(upload), key, policy_);
  }

  Result<std::vector<PendingUpload>> ListUploads(const std::string& prefix,
                                                 const Context& ctx) override {
    return Retry(policy_, ctx, [&] { return store_->ListUploads(prefix, ctx); });
  }

  Status AbortUpload(const PendingUpload& upload, const Context& ctx) override {
    return Retry(policy_, ctx, [&] { return store_->AbortUpload(upload, ctx); });
  }

 private:
  struct Read {
    GetRequest request;
    GetDone done;
    Context ctx;
    TimePoint start;
    uint32_t tries = 1;
  };

  // The reads of one process that are not answered yet.
  class Reads {
   public:
    void Begin(size_t count) {
      MutexLock lock(&mu_);
      running_ += count;
    }
    void Done() {
      MutexLock lock(&mu_);
      if (--running_ == 0) none_.NotifyAll();
    }
    void RunAt(TimePoint time, RetryTimer::Task task) { timer_.RunAt(time, std::move(task)); }
    // Ends what waits, and waits for what runs.
    void End() {
      timer_.End();
      MutexLock lock(&mu_);
      while (running_ > 0) none_.Wait(&mu_);
    }

   private:
    RetryTimer timer_;
    Mutex mu_;
    CondVar none_;
    size_t running_ HR_GUARDED_BY(mu_) = 0;
  };

  void Answer(const std::shared_ptr<Read>& read, Result<ObjectInfo> result) {
    if (result.ok() || result.status().code() != Code::kUnavailable)
      return Finish(*read, std::move(result));
    Result<Nanoseconds> pause = policy_.Next(result.status(), read->tries, read->start, read->ctx);
    if (!pause.ok()) return Finish(*read, std::move(pause).status());
    if (policy_.options().run_after)
      policy_.options().run_after(*pause, [this, read] { TryAgain(read); });
    else
      WaitUntil(Context::Clock::now() + *pause, read);
  }

  // Looks at the context now and then, so that a cancelled read does not wait for its time.
  void WaitUntil(TimePoint time, const std::shared_ptr<Read>& read) {
    constexpr std::chrono::milliseconds kSlice(50);
    const TimePoint now = Context::Clock::now();
    const TimePoint next = read->ctx.cancelled ? std::min(time, now + kSlice) : time;
    reads_.Get().RunAt(next, [this, time, next, read](bool ended) {
      if (ended) return Finish(*read, Status(Code::kCancelled, "the store was closed"));
      Status wanted = read->ctx.Check();
      if (!wanted.ok()) return Finish(*read, std::move(wanted));
      if (next < time) return WaitUntil(time, read);
      TryAgain(read);
    });
  }

  void TryAgain(const std::shared_ptr<Read>& read) {
    ++read->tries;
    store_->SubmitGets({read->request},
                       {[this, read](Result<ObjectInfo> next) { Answer(read, std::move(next)); }},
                       read->ctx);
  }

  void Finish(Read& read, Result<ObjectInfo> result) {
    read.done(std::move(result));
    reads_.Get().Done();
  }

  const std::shared_ptr<ObjectStore> store_;
  const RetryPolicy policy_;
  PerProcess<Reads> reads_;
};

}  // namespace

std::shared_ptr<ObjectStore> MakeRetryingStore(std::shared_ptr<ObjectStore> store,
                                               const RetryOptions& options) {
  return std::make_shared<RetryingStore>(std::move(store), options);
}

}  // namespace headrace::object
