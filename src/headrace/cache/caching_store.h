// An object store read through the node's cache. Reads of objects that have an etag go block by
// block through a BlockCache; everything else goes to the origin. An object is what Head said of it
// first, until it is found to be another one: then a read with if_match is kFailedPrecondition, and
// any other gets the new object. The bytes of two versions are never mixed in one read.
//
// With `planned_alone` blocks are read of what a plan holds and of nothing else: all other reads go
// to the origin as if this were not there.
//
// Thread-safe. Works in a forked child, with a cache of the child's own, where the origin does.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "headrace/base/mutex.h"
#include "headrace/cache/block_cache.h"
#include "headrace/object/object_store.h"
#include "headrace/object/per_process.h"

namespace headrace::cache {

// The cache of a process, shared by its stores; a forked child makes its own. Thread-safe.
class ProcessCache {
 public:
  // Makes the cache; but one without a directory is made when it is first asked for. Failures are
  // those of BlockCache::Create.
  static Result<std::shared_ptr<ProcessCache>> Create(const BlockCacheOptions& options);
  // Null where it could not be made when it was first asked for.
  BlockCache* Get();
  // Null too while nobody has asked this process for it.
  BlockCache* made() { return per_process_.Get().ready; }
  // Those of all ProcessCaches with a directory that this process has made, or has inherited and
  // used.
  static std::vector<std::shared_ptr<BlockCache>> AllOfProcess();

 private:
  struct Holder {
    Mutex mu;  // order: before the locks of the cache that is being made; held with I/O
    bool tried HR_GUARDED_BY(mu) = false;
    std::shared_ptr<BlockCache> cache HR_GUARDED_BY(mu);
    std::atomic<BlockCache*> ready{nullptr};  // of `cache`
  };
  explicit ProcessCache(const BlockCacheOptions& options)
      : options_(options), per_process_([] { return std::make_unique<Holder>(); }) {}
  Status Make(Holder* holder) HR_REQUIRES(holder->mu);

  const BlockCacheOptions options_;
  object::PerProcess<Holder> per_process_;
};

struct CachingStoreOptions {
  // Tells stores apart whose buckets have the same name: "s3://bucket at endpoint". Without
  // secrets. Empty: the origin's name.
  std::string identity = {};
  uint32_t block_bytes = kDefaultBlockBytes;
  // How long Head, and reads without if_match, believe what is known; 0: they ask the origin each
  // time. Without a limit, a new version is seen after the old one is found to be gone. A read with
  // if_match says itself which version it wants.
  uint64_t head_ttl_ms = UINT64_MAX;
  uint32_t head_threads = 4;   // ask for objects that are read without a Head before
  size_t max_heads = 1 << 17;  // remembered at once
  // Only reads with kKeepIfRoom, and those of what a plan expects, go through the cache: for one of
  // memory alone, which keeps nothing for those who read here and there.
  bool planned_alone = false;
};

class CachingStore final : public object::ObjectStore {
 public:
  // kInvalidArgument for a block size that CheckBlockBytes refuses.
  static Result<std::unique_ptr<CachingStore>> Create(std::shared_ptr<object::ObjectStore> origin,
                                                      std::shared_ptr<ProcessCache> cache,
                                                      CachingStoreOptions options);
  ~CachingStore() override;

  // The object as the cache knows it, however long, for BlockCache::Prefetch. Failures as Head;
  // kUnimplemented when it has no etag, so that it cannot be cached.
  Result<std::shared_ptr<const CachedObject>> Find(const std::string& key, const Context& ctx);
  // As ProcessCache::Get.
  BlockCache* cache() const { return cache_->Get(); }
  bool planned_alone() const { return options_.planned_alone; }

  const std::string& name() const override { return origin_->name(); }
  const object::Abilities& abilities() const override { return origin_->abilities(); }
  void WillGet(const object::ObjectInfo& info, uint64_t offset, uint64_t length,
               const Context& ctx) override;
  Result<object::ObjectInfo> Head(const std::string& key, const Context& ctx) override;
  void SubmitGets(std::vector<object::GetRequest> requests, std::vector<GetDone> dones,
                  const Context& ctx) override;
  bool TryGet(const object::GetRequest& request, const Context& ctx) override;
  void Distrust(const object::ObjectInfo& object, uint64_t offset, uint64_t bytes) override;
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
  class Heads;
  class ForgettingUpload;
  struct HeadsHolder;

  CachingStore(std::shared_ptr<object::ObjectStore> origin, std::shared_ptr<ProcessCache> cache,
               CachingStoreOptions options);
  std::shared_ptr<Heads> heads();
  bool IsPlanned(const object::GetRequest& request, const Context& ctx);
  void SubmitPast(std::vector<object::GetRequest> requests, std::vector<GetDone> dones,
                  const Context& ctx);

  const std::shared_ptr<object::ObjectStore> origin_;
  const std::shared_ptr<ProcessCache> cache_;
  const CachingStoreOptions options_;
  object::PerProcess<HeadsHolder> heads_;  // last: ends first, while the cache is there
};

}  // namespace headrace::cache
