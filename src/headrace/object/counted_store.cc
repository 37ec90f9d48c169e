#include "headrace/object/counted_store.h"

#include <chrono>
#include <utility>

namespace headrace::object {

namespace {

void Add(std::atomic<uint64_t>* counter, uint64_t n) {
  counter->fetch_add(n, std::memory_order_relaxed);
}

// One call, from its start to its answer.
class Call {
 public:
  Call(StoreCounters* counters, std::atomic<uint64_t>* kind) : counters_(counters), kind_(kind) {
    Add(kind, 1);
  }
  // `bytes` went to or fro if it succeeded.
  void End(const Status& status, uint64_t bytes = 0) const {
    auto spent = Context::Clock::now() - start_;
    const auto ns =
        static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(spent).count());
    Add(&counters_->busy_ns, ns);
    if (!status.ok()) Add(&counters_->failures, 1);
    if (status.throttled()) Add(&counters_->throttled, 1);
    const Stage stage = kind_ == &counters_->gets     ? Stage::kFetch
                        : kind_ == &counters_->writes ? Stage::kCopy
                                                      : Stage::kMeta;
    counters_->stages.Busy(stage, ns, status.ok() ? bytes : 0);
    TraceInterval(TraceKind::kRequest, static_cast<uint8_t>(stage), ns, status.ok() ? bytes : 0);
  }
  template <typename T>
  void End(const Result<T>& result, uint64_t bytes = 0) const {
    End(result.status(), bytes);
  }

 private:
  StoreCounters* counters_;
  const std::atomic<uint64_t>* kind_;
  Context::Clock::time_point start_ = Context::Clock::now();
};

class CountedUpload final : public Upload {
 public:
  CountedUpload(std::unique_ptr<Upload> upload, std::shared_ptr<StoreCounters> counters)
      : upload_(std::move(upload)), counters_(std::move(counters)) {}

  Status PutPart(uint32_t number, Bytes data, const Context& ctx) override {
    Call call(counters_.get(), &counters_->writes);
    Status put = upload_->PutPart(number, data, ctx);
    call.End(put, data.size());
    if (put.ok()) Add(&counters_->bytes_written, data.size());
    return put;
  }
  Result<std::string> Complete(uint32_t num_parts, const Context& ctx) override {
    Call call(counters_.get(), &counters_->writes);
    auto etag = upload_->Complete(num_parts, ctx);
    call.End(etag);
    return etag;
  }
  Status Abort(const Context& ctx) override {
    Call call(counters_.get(), &counters_->writes);
    Status aborted = upload_->Abort(ctx);
    call.End(aborted);
    return aborted;
  }

 private:
  const std::unique_ptr<Upload> upload_;
  const std::shared_ptr<StoreCounters> counters_;
};

class CountedStore final : public ObjectStore {
 public:
  CountedStore(std::shared_ptr<ObjectStore> store, std::shared_ptr<StoreCounters> counters)
      : store_(std::move(store)), counters_(std::move(counters)) {}

  const std::string& name() const override { return store_->name(); }
  const Abilities& abilities() const override { return store_->abilities(); }

  Result<ObjectInfo> Head(const std::string& key, const Context& ctx) override {
    return Count(&counters_->heads, [&] { return store_->Head(key, ctx); });
  }

  void SubmitGets(std::vector<GetRequest> requests, std::vector<GetDone> dones,
                  const Context& ctx) override {
    for (size_t i = 0; i < requests.size(); ++i) {
      const uint64_t bytes = requests[i].out.size();
      Call call(counters_.get(), bytes > 0 ? &counters_->gets : &counters_->heads);
      dones[i] = [counters = counters_, call, bytes,
                  done = std::move(dones[i])](Result<ObjectInfo> result) {
        call.End(result, bytes);
        if (result.ok()) Add(&counters->bytes_read, bytes);
        done(std::move(result));
      };
    }
    store_->SubmitGets(std::move(requests), std::move(dones), ctx);
  }

  Result<std::string> Put(const std::string& key, Bytes data, const PutOptions& options,
                          const Context& ctx) override {
    auto etag = Count(
        &counters_->writes, [&] { return store_->Put(key, data, options, ctx); }, data.size());
    if (etag.ok()) Add(&counters_->bytes_written, data.size());
    return etag;
  }
  Status Delete(const std::string& key, const Context& ctx) override {
    return Count(&counters_->writes, [&] { return store_->Delete(key, ctx); });
  }
  Result<ListPage> List(const ListRequest& request, const Context& ctx) override {
    return Count(&counters_->lists, [&] { return store_->List(request, ctx); });
  }
  Result<std::unique_ptr<Upload>> StartUpload(const std::string& key, const Context& ctx) override {
    auto upload = Count(&counters_->writes, [&] { return store_->StartUpload(key, ctx); });
    if (!upload.ok()) return upload;
    return std::make_unique<CountedUpload>(*std::move(upload), counters_);
  }
  Result<std::vector<PendingUpload>> ListUploads(const std::string& prefix,
                                                 const Context& ctx) override {
    return Count(&counters_->lists, [&] { return store_->ListUploads(prefix, ctx); });
  }
  Status AbortUpload(const PendingUpload& upload, const Context& ctx) override {
    return Count(&counters_->writes, [&] { return store_->AbortUpload(upload, ctx); });
  }

 private:
  template <typename Run>
  auto Count(std::atomic<uint64_t>* kind, const Run& run, uint64_t bytes = 0) -> decltype(run()) {
    Call call(counters_.get(), kind);
    auto result = run();
    call.End(result, bytes);
    return result;
  }

  const std::shared_ptr<ObjectStore> store_;
  const std::shared_ptr<StoreCounters> counters_;
};

}  // namespace

std::shared_ptr<ObjectStore> MakeCountedStore(std::shared_ptr<ObjectStore> store,
                                              std::shared_ptr<StoreCounters> counters) {
  return std::make_shared<CountedStore>(std::move(store), std::move(counters));
}

}  // namespace headrace::object
