// An object store whose objects are made up as they are read, and which counts what is fetched,
// over all processes forked after it was made. For tests only. Thread-safe.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "headrace/base/mutex.h"
#include "headrace/object/object_store.h"

namespace headrace::cache {

class CountingOrigin final : public object::ObjectStore {
 public:
  static constexpr size_t kMaxUnits = 65536;
  // Fetches are counted for each unit of so many bytes of the first object that is added.
  explicit CountingOrigin(uint64_t unit_bytes = 64 << 10, std::string name = "test://origin");
  ~CountingOrigin() override;

  // An object whose bytes follow from key, version and offset.
  void Add(const std::string& key, uint64_t size_bytes, uint64_t version = 1);
  void Remove(const std::string& key);
  static std::string Content(const std::string& key, uint64_t version, uint64_t offset,
                             uint64_t length);
  // True when `out` is what the object has at `offset`.
  static bool IsContent(const std::string& key, uint64_t version, uint64_t offset, Bytes out);

  // The next `times` reads answer with `status`.
  void FailReads(uint64_t times, Status status);
  // Each read takes so long, on the thread that asks.
  void Delay(std::chrono::milliseconds delay) { delay_ = delay; }
  // Called before each read is answered, on the thread that asks.
  void OnRead(std::function<void()> hook);

  // Over all processes.
  uint64_t bytes() const { return shared_->bytes; }
  uint64_t requests() const { return shared_->requests; }
  uint64_t heads() const { return shared_->heads; }
  // How often the unit was fetched, and the most and least of any unit below `units`.
  uint64_t fetched(uint64_t unit) const { return shared_->units[unit]; }
  uint64_t MostFetched(uint64_t units) const;
  uint64_t LeastFetched(uint64_t units) const;
  void ResetCounts();

  const std::string& name() const override { return name_; }
  const object::Abilities& abilities() const override { return abilities_; }
  Result<object::ObjectInfo> Head(const std::string& key, const Context& ctx) override;
  void SubmitGets(std::vector<object::GetRequest> requests, std::vector<GetDone> dones,
                  const Context& ctx) override;
  Result<std::string> Put(const std::string& key, Bytes data, const object::PutOptions& options,
                          const Context& ctx) override;
  Status Delete(const std::string& key, const Context& ctx) override;
  Result<object::ListPage> List(const object::ListRequest& request, const Context& ctx) override;
  Result<std::unique_ptr<object::Upload>> StartUpload(const std::string& key,
                                                      const Context& ctx) override;
  Result<std::vector<object::PendingUpload>> ListUploads(const std::string& prefix,
                                                         const Context& ctx) override;
  Status AbortUpload(const object::PendingUpload& upload, const Context& ctx) override;

 private:
  struct Object {
    uint64_t size_bytes = 0, version = 1;
  };
  struct Shared {
    std::atomic<uint64_t> bytes{0}, requests{0}, heads{0};
    std::atomic<uint64_t> units[kMaxUnits] = {};
  };
  Result<object::ObjectInfo> Find(const std::string& key) HR_REQUIRES(mu_);
  Result<object::ObjectInfo> Answer(const object::GetRequest& request, const Context& ctx);

  const std::string name_;
  object::Abilities abilities_;
  const uint64_t unit_bytes_;
  Shared* const shared_;  // in memory that children share
  std::atomic<std::chrono::milliseconds> delay_{std::chrono::milliseconds(0)};
  Mutex mu_;  // order: none is taken under it
  std::map<std::string, Object> objects_ HR_GUARDED_BY(mu_);
  std::string counted_key_ HR_GUARDED_BY(mu_);
  uint64_t failures_ HR_GUARDED_BY(mu_) = 0;
  Status failure_ HR_GUARDED_BY(mu_);
  std::function<void()> hook_ HR_GUARDED_BY(mu_);
};

}  // namespace headrace::cache
