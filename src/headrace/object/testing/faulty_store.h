// A store around another one that fails when a test says so. With nothing set it behaves as the
// other one does. For tests only. Thread-safe.
//
//   FaultyStore store(MakeMemoryStore());
//   store.FailNth(StoreOperation::kGet, 3, Error(Code::kUnavailable, "503"));
//   store.LoseNth(StoreOperation::kPut, 1, Error(Code::kUnavailable, "cut"));  // done all the same
//   store.FlipBit(".tar", 512);
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "headrace/object/object_store.h"

namespace headrace::object {

enum class StoreOperation : uint8_t {
  kHead,
  kGet,  // each request of SubmitGets
  kPut,
  kDelete,
  kList,
  kStartUpload,
  kListUploads,
  kAbortUpload,
  kPutPart,
  kComplete,
  kAbort,
};
inline constexpr size_t kNumStoreOperations = 11;

class FaultyStore final : public ObjectStore {
 public:
  explicit FaultyStore(std::shared_ptr<ObjectStore> base);
  ~FaultyStore() override;

  // Lets the `nth` call of `operation` from now on (1 = the next), and the `times` - 1 after it,
  // return `status` without being done. A Get is answered on the caller's thread then.
  void FailNth(StoreOperation operation, uint64_t nth, Status status, uint64_t times = 1);
  // Lets the `nth` call be done, and return `status`: its answer was lost. Not for kGet.
  void LoseNth(StoreOperation operation, uint64_t nth, Status status);
  // Runs `action` right before the `nth` call is done.
  void RunBeforeNth(StoreOperation operation, uint64_t nth, std::function<void()> action);
  // Flips the lowest bit of byte `offset` in whatever is read from keys that end in `suffix`.
  void FlipBit(std::string suffix, uint64_t offset);
  // Takes all of this back, and forgets the counts.
  void Heal();
  // How often `operation` was asked for, failures included.
  uint64_t count(StoreOperation operation) const;

  const std::string& name() const override;
  const Abilities& abilities() const override;
  Result<ObjectInfo> Head(const std::string& key, const Context& ctx) override;
  void SubmitGets(std::vector<GetRequest> requests, std::vector<GetDone> dones,
                  const Context& ctx) override;
  Result<std::string> Put(const std::string& key, Bytes data, const PutOptions& options,
                          const Context& ctx) override;
  Status Delete(const std::string& key, const Context& ctx) override;
  Result<ListPage> List(const ListRequest& request, const Context& ctx) override;
  Result<std::unique_ptr<Upload>> StartUpload(const std::string& key, const Context& ctx) override;
  Result<std::vector<PendingUpload>> ListUploads(const std::string& prefix,
                                                 const Context& ctx) override;
  Status AbortUpload(const PendingUpload& upload, const Context& ctx) override;

 private:
  class Faults;
  class FaultyUpload;

  const std::shared_ptr<Faults> faults_;  // shared with uploads and reads that run
  const std::shared_ptr<ObjectStore> base_;
};

}  // namespace headrace::object
