#include "headrace/object/object_store.h"

#include <optional>
#include <utility>

#include "headrace/base/mutex.h"

namespace headrace::object {

namespace {

// The answer of one request, for the thread that waits for it.
class Answer {
 public:
  void Set(Result<ObjectInfo> result) {
    MutexLock lock(&mu_);
    result_.emplace(std::move(result));
    set_.NotifyOne();  // under the lock: the waiter owns this, and may end as soon as it is free
  }
  Result<ObjectInfo> Wait() {
    MutexLock lock(&mu_);
    while (!result_) set_.Wait(&mu_);
    return *std::move(result_);
  }

 private:
  Mutex mu_;
  CondVar set_;
  std::optional<Result<ObjectInfo>> result_ HR_GUARDED_BY(mu_);
};

}  // namespace

Result<ObjectInfo> ObjectStore::Get(GetRequest request, const Context& ctx) {
  Answer answer;
  std::vector<GetRequest> requests;
  requests.push_back(std::move(request));
  std::vector<GetDone> dones;
  dones.emplace_back([&answer](Result<ObjectInfo> result) { answer.Set(std::move(result)); });
  SubmitGets(std::move(requests), std::move(dones), ctx);
  return answer.Wait();
}

}  // namespace headrace::object
