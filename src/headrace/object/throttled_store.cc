#include "headrace/object/throttled_store.h"

#include <algorithm>
#include <utility>

#include "headrace/object/pause.h"
#include "headrace/object/per_process.h"
#include "headrace/object/retry_timer.h"

namespace headrace::object {

namespace {

using TimePoint = Context::Clock::time_point;

// Waits for the turn of `bytes`.
Status WaitForTurn(ByteRate* rate, uint64_t bytes, const Context& ctx) {
  const TimePoint now = Context::Clock::now();
  Status waited = PauseFor(rate->Take(bytes, now) - now, ctx);
  if (!waited.ok()) rate->GiveBack(bytes);
  return waited;
}

class ThrottledUpload final : public Upload {
 public:
  ThrottledUpload(std::unique_ptr<Upload> upload, std::shared_ptr<ByteRate> rate)
      : upload_(std::move(upload)), rate_(std::move(rate)) {}
  Status PutPart(uint32_t number, Bytes data, const Context& ctx) override {
    HR_RETURN_IF_ERROR(WaitForTurn(rate_.get(), data.size(), ctx));
    return upload_->PutPart(number, data, ctx);
  }
  Result<std::string> Complete(uint32_t num_parts, const Context& ctx) override {
    return upload_->Complete(num_parts, ctx);
  }
  Status Abort(const Context& ctx) override { return upload_->Abort(ctx); }

 private:
  const std::unique_ptr<Upload> upload_;
  const std::shared_ptr<ByteRate> rate_;
};

class ThrottledStore final : public ObjectStore {
 public:
  ThrottledStore(std::shared_ptr<ObjectStore> store, std::shared_ptr<ByteRate> rate)
      : store_(std::move(store)),
        rate_(std::move(rate)),
        timer_([] { return std::make_unique<RetryTimer>(); }) {}
  ~ThrottledStore() override { timer_.Get().End(); }

  const std::string& name() const override { return store_->name(); }
  const Abilities& abilities() const override { return store_->abilities(); }

  Result<ObjectInfo> Head(const std::string& key, const Context& ctx) override {
    return store_->Head(key, ctx);
  }

  void SubmitGets(std::vector<GetRequest> requests, std::vector<GetDone> dones,
                  const Context& ctx) override {
    const TimePoint now = Context::Clock::now();
    std::vector<GetRequest> ready;
    std::vector<GetDone> ready_dones;
    for (size_t i = 0; i < requests.size(); ++i) {
      const TimePoint turn = rate_->Take(requests[i].out.size(), now);
      if (turn <= now) {
        ready.push_back(std::move(requests[i]));
        ready_dones.push_back(std::move(dones[i]));
      } else {
        WaitUntil(turn,
                  std::make_shared<Read>(Read{std::move(requests[i]), std::move(dones[i]), ctx}));
      }
    }
    if (!ready.empty()) store_->SubmitGets(std::move(ready), std::move(ready_dones), ctx);
  }
  void WillGet(const ObjectInfo& object, uint64_t offset, uint64_t length,
               const Context& ctx) override {
    store_->WillGet(object, offset, length, ctx);
  }
  void Distrust(const ObjectInfo& object, uint64_t offset, uint64_t bytes) override {
    store_->Distrust(object, offset, bytes);
  }

  Result<std::string> Put(const std::string& key, Bytes data, const PutOptions& options,
                          const Context& ctx) override {
    HR_RETURN_IF_ERROR(WaitForTurn(rate_.get(), data.size(), ctx));
    return store_->Put(key, data, options, ctx);
  }
  Status Delete(const std::string& key, const Context& ctx) override {
    return store_->Delete(key, ctx);
  }
  Result<ListPage> List(const ListRequest& request, const Context& ctx) override {
    return store_->List(request, ctx);
  }
  Result<std::unique_ptr<Upload>> StartUpload(const std::string& key, const Context& ctx) override {
    HR_ASSIGN_OR_RETURN(auto upload, store_->StartUpload(key, ctx));
    return std::make_unique<ThrottledUpload>(std::move(upload), rate_);
  }
  Result<std::vector<PendingUpload>> ListUploads(const std::string& prefix,
                                                 const Context& ctx) override {
    return store_->ListUploads(prefix, ctx);
  }
  Status AbortUpload(const PendingUpload& upload, const Context& ctx) override {
    return store_->AbortUpload(upload, ctx);
  }

 private:
  struct Read {
    GetRequest request;
    GetDone done;
    Context ctx;
  };

  // Looks at the context now and then, so that a cancelled read does not wait for its turn.
  void WaitUntil(TimePoint turn, const std::shared_ptr<Read>& read) {
    constexpr std::chrono::milliseconds kSlice(50);
    TimePoint next = std::min(turn, read->ctx.deadline);
    if (read->ctx.cancelled) next = std::min(next, Context::Clock::now() + kSlice);
    timer_.Get().RunAt(next, [this, turn, read](bool ended) {
      Status wanted = ended ? Status(Code::kCancelled, "the store was closed") : read->ctx.Check();
      if (!wanted.ok()) {
        rate_->GiveBack(read->request.out.size());
        return read->done(std::move(wanted));
      }
      if (Context::Clock::now() < turn) return WaitUntil(turn, read);
      store_->SubmitGets({read->request}, {read->done}, read->ctx);
    });
  }

  const std::shared_ptr<ObjectStore> store_;
  const std::shared_ptr<ByteRate> rate_;
  PerProcess<RetryTimer> timer_;
};

}  // namespace

std::shared_ptr<ObjectStore> MakeThrottledStore(std::shared_ptr<ObjectStore> store,
                                                std::shared_ptr<ByteRate> rate) {
  return std::make_shared<ThrottledStore>(std::move(store), std::move(rate));
}

}  // namespace headrace::object
