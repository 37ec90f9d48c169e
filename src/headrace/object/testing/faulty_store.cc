#include "headrace/object/testing/faulty_store.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "headrace/base/mutex.h"

namespace headrace::object {

class FaultyStore::Faults {
 public:
  // What is to become of one call.
  struct Fate {
    Status failure;  // returned instead of doing it
    Status loss;     // returned after doing it
  };

  // Counts the call, runs what is to be run before it, and tells what becomes of it.
  Fate Pass(StoreOperation operation) {
    Fate fate;
    std::vector<std::function<void()>> actions;
    {
      MutexLock lock(&mu_);
      uint64_t call = ++counts_[static_cast<size_t>(operation)];
      for (const Rule& rule : rules_) {
        if (rule.operation != operation || call < rule.first || call > rule.last) continue;
        if (rule.action) actions.push_back(rule.action);
        if (!rule.failure.ok()) fate.failure = rule.failure;
        if (!rule.loss.ok()) fate.loss = rule.loss;
      }
    }
    for (const auto& action : actions) action();
    return fate;
  }

  void Add(StoreOperation operation, uint64_t nth, uint64_t times, Status failure, Status loss,
           std::function<void()> action) {
    constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max();
    MutexLock lock(&mu_);
    uint64_t first = counts_[static_cast<size_t>(operation)] + std::max<uint64_t>(nth, 1);
    uint64_t last = times > kMost - first ? kMost : first + std::max<uint64_t>(times, 1) - 1;
    rules_.push_back(
        {operation, first, last, std::move(failure), std::move(loss), std::move(action)});
  }
  void AddFlip(std::string suffix, uint64_t offset) {
    MutexLock lock(&mu_);
    flips_.emplace_back(std::move(suffix), offset);
  }
  void Damage(const std::string& key, uint64_t offset, MutableBytes bytes) {
    MutexLock lock(&mu_);
    for (const auto& [suffix, at] : flips_)
      if (key.ends_with(suffix) && at >= offset && at - offset < bytes.size())
        bytes[at - offset] ^= std::byte{1};
  }
  void Clear() {
    MutexLock lock(&mu_);
    rules_.clear();
    flips_.clear();
    counts_ = {};
  }
  uint64_t count(StoreOperation operation) {
    MutexLock lock(&mu_);
    return counts_[static_cast<size_t>(operation)];
  }

  // Does `run` unless it is to fail; loses its answer where it is to be lost.
  template <typename Run>
  auto Do(StoreOperation operation, const Run& run) -> decltype(run()) {
    Fate fate = Pass(operation);
    if (!fate.failure.ok()) return std::move(fate.failure);
    auto result = run();
    if (!fate.loss.ok()) return std::move(fate.loss);
    return result;
  }

 private:
  struct Rule {
    StoreOperation operation;
    uint64_t first, last;  // calls, counted from 1
    Status failure, loss;
    std::function<void()> action;
  };

  Mutex mu_;  // order: none is taken under it
  std::vector<Rule> rules_ HR_GUARDED_BY(mu_);
  std::vector<std::pair<std::string, uint64_t>> flips_ HR_GUARDED_BY(mu_);
  std::array<uint64_t, kNumStoreOperations> counts_ HR_GUARDED_BY(mu_){};
};

class FaultyStore::FaultyUpload final : public Upload {
 public:
  FaultyUpload(std::shared_ptr<Faults> faults, std::unique_ptr<Upload> base)
      : faults_(std::move(faults)), base_(std::move(base)) {}
  Status PutPart(uint32_t number, Bytes data, const Context& ctx) override {
    return faults_->Do(StoreOperation::kPutPart, [&] { return base_->PutPart(number, data, ctx); });
  }
  Result<std::string> Complete(uint32_t num_parts, const Context& ctx) override {
    return faults_->Do(StoreOperation::kComplete, [&] { return base_->Complete(num_parts, ctx); });
  }
  Status Abort(const Context& ctx) override {
    return faults_->Do(StoreOperation::kAbort, [&] { return base_->Abort(ctx); });
  }

 private:
  const std::shared_ptr<Faults> faults_;
  const std::unique_ptr<Upload> base_;
};

FaultyStore::FaultyStore(std::shared_ptr<ObjectStore> base)
    : faults_(std::make_shared<Faults>()), base_(std::move(base)) {}
FaultyStore::~FaultyStore() = default;

void FaultyStore::FailNth(StoreOperation operation, uint64_t nth, Status status, uint64_t times) {
  faults_->Add(operation, nth, times, std::move(status), OkStatus(), nullptr);
}
void FaultyStore::LoseNth(StoreOperation operation, uint64_t nth, Status status) {
  faults_->Add(operation, nth, 1, OkStatus(), std::move(status), nullptr);
}
void FaultyStore::RunBeforeNth(StoreOperation operation, uint64_t nth,
                               std::function<void()> action) {
  faults_->Add(operation, nth, 1, OkStatus(), OkStatus(), std::move(action));
}
void FaultyStore::FlipBit(std::string suffix, uint64_t offset) {
  faults_->AddFlip(std::move(suffix), offset);
}
void FaultyStore::Heal() { faults_->Clear(); }
uint64_t FaultyStore::count(StoreOperation operation) const { return faults_->count(operation); }

const std::string& FaultyStore::name() const { return base_->name(); }
const Abilities& FaultyStore::abilities() const { return base_->abilities(); }

Result<ObjectInfo> FaultyStore::Head(const std::string& key, const Context& ctx) {
  return faults_->Do(StoreOperation::kHead, [&] { return base_->Head(key, ctx); });
}

void FaultyStore::SubmitGets(std::vector<GetRequest> requests, std::vector<GetDone> dones,
                             const Context& ctx) {
  std::vector<GetRequest> passed;
  std::vector<GetDone> passed_dones;
  for (size_t i = 0; i < requests.size(); ++i) {
    Status failure = faults_->Pass(StoreOperation::kGet).failure;
    if (!failure.ok()) {
      dones[i](std::move(failure));
      continue;
    }
    passed_dones.push_back([faults = faults_, request = requests[i],
                            done = std::move(dones[i])](Result<ObjectInfo> result) {
      if (result.ok()) faults->Damage(request.key, request.offset, request.out);
      done(std::move(result));
    });
    passed.push_back(std::move(requests[i]));
  }
  base_->SubmitGets(std::move(passed), std::move(passed_dones), ctx);
}

Result<std::string> FaultyStore::Put(const std::string& key, Bytes data, const PutOptions& options,
                                     const Context& ctx) {
  return faults_->Do(StoreOperation::kPut, [&] { return base_->Put(key, data, options, ctx); });
}

Status FaultyStore::Delete(const std::string& key, const Context& ctx) {
  return faults_->Do(StoreOperation::kDelete, [&] { return base_->Delete(key, ctx); });
}

Result<ListPage> FaultyStore::List(const ListRequest& request, const Context& ctx) {
  return faults_->Do(StoreOperation::kList, [&] { return base_->List(request, ctx); });
}

Result<std::unique_ptr<Upload>> FaultyStore::StartUpload(const std::string& key,
                                                         const Context& ctx) {
  auto upload =
      faults_->Do(StoreOperation::kStartUpload, [&] { return base_->StartUpload(key, ctx); });
  if (!upload.ok()) return upload;
  return std::make_unique<FaultyUpload>(faults_, *std::move(upload));
}

Result<std::vector<PendingUpload>> FaultyStore::ListUploads(const std::string& prefix,
                                                            const Context& ctx) {
  return faults_->Do(StoreOperation::kListUploads, [&] { return base_->ListUploads(prefix, ctx); });
}

Status FaultyStore::AbortUpload(const PendingUpload& upload, const Context& ctx) {
  return faults_->Do(StoreOperation::kAbortUpload, [&] { return base_->AbortUpload(upload, ctx); });
}

}  // namespace headrace::object
