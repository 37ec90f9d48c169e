#include "headrace/cache/caching_store.h"

#include <fmt/core.h>

#include <atomic>
#include <iterator>
#include <unordered_map>
#include <utility>

#include "headrace/base/stage_timer.h"
#include "headrace/base/text.h"
#include "headrace/object/task_pool.h"

namespace headrace::cache {

using object::GetRequest;
using object::ObjectInfo;
using object::ObjectStore;

namespace {

bool IsOfTheCaller(Code code) {
  return code == Code::kCancelled || code == Code::kDeadlineExceeded;
}

uint64_t NowMs() { return NowNanos() / 1'000'000; }

}  // namespace

// What the store knows of its objects, and the reads that wait to learn it. Held by all who may
// come back to it, so it outlives the store where need be.
class CachingStore::Heads : public std::enable_shared_from_this<Heads> {
 public:
  struct Read {
    GetRequest get;
    GetDone done;
    Context ctx;
    bool asked_anew = false;  // the Head was made for this read
    int replaced = 0;         // how often the object was found to be another one
  };

  Heads(std::shared_ptr<ObjectStore> origin, ProcessCache* cache,
        const CachingStoreOptions& options)
      : origin_(std::move(origin)), cache_(cache), options_(options) {}

  // The object if it is known and not too old.
  std::shared_ptr<const CachedObject> Known(const std::string& key) {
    MutexLock lock(&mu_);
    return KnownLocked(key);
  }

  std::shared_ptr<const CachedObject> Learn(const std::string& key, const ObjectInfo& info);
  void Forget(const std::string& key) {
    MutexLock lock(&mu_);
    known_.erase(key);
  }

  void Start(Read read);

 private:
  struct Entry {
    std::shared_ptr<const CachedObject> object;
    uint64_t learned_ms = 0;
  };

  std::shared_ptr<const CachedObject> KnownLocked(const std::string& key) HR_REQUIRES(mu_) {
    auto found = known_.find(key);
    if (found == known_.end()) return nullptr;
    if (options_.head_ttl_ms == UINT64_MAX ||
        NowMs() - found->second.learned_ms < options_.head_ttl_ms)
      return found->second.object;
    known_.erase(found);
    return nullptr;
  }
  void StartKnown(Read read, const std::shared_ptr<const CachedObject>& object);
  void Finish(Read read, const std::shared_ptr<const CachedObject>& object, Status status);
  void Ask(const std::string& key, const Context& ctx);
  void Answer(Read read, Result<ObjectInfo> result);
  // Runs the task on a thread of the store; here when the store is being closed.
  void Post(std::function<void()> task);

  const std::shared_ptr<ObjectStore> origin_;
  // Not owned: a read that ends holds this on a thread of the cache, which must not be the last to
  // hold the cache. Used only while the store is there.
  ProcessCache* const cache_;
  const CachingStoreOptions options_;
  Mutex mu_;  // order: none is taken under it; no I/O
  std::unordered_map<std::string, Entry> known_ HR_GUARDED_BY(mu_);
  std::unordered_map<std::string, std::vector<Read>> asking_ HR_GUARDED_BY(mu_);
  std::atomic<object::TaskPool*> pool_{nullptr};  // not owned; null once the store is being closed

  friend struct HeadsHolder;
};

// The threads belong to the store and not to Heads, which may be let go last by one of them.
struct CachingStore::HeadsHolder {
  HeadsHolder(std::shared_ptr<Heads> h, uint32_t threads)
      : pool("hr-cache-head", threads), heads(std::move(h)) {
    heads->pool_ = &pool;
  }
  ~HeadsHolder() { heads->pool_ = nullptr; }

  object::TaskPool pool;  // runs what is queued before it ends
  const std::shared_ptr<Heads> heads;
};

std::shared_ptr<const CachedObject> CachingStore::Heads::Learn(const std::string& key,
                                                               const ObjectInfo& info) {
  auto object = std::make_shared<CachedObject>();
  object->origin = origin_;
  object->info = info;
  object->info.key = key;
  object->version = {options_.identity, key, info.etag, info.size_bytes};
  object->block_bytes = options_.block_bytes;
  object->id = IdentifyObject(object->version, options_.block_bytes);
  MutexLock lock(&mu_);
  // Any eighth goes: to know an object again costs one Head.
  if (known_.size() >= options_.max_heads)
    known_.erase(known_.begin(),
                 std::next(known_.begin(), static_cast<ptrdiff_t>(known_.size() / 8 + 1)));
  known_[key] = {object, NowMs()};
  return object;
}

void CachingStore::Heads::Post(std::function<void()> task) {
  object::TaskPool* pool = pool_;
  if (!pool) return task();
  pool->Run(std::move(task));
}

void CachingStore::Heads::Answer(Read read, Result<ObjectInfo> result) {
  auto shared = std::make_shared<std::pair<GetDone, Result<ObjectInfo>>>(std::move(read.done),
                                                                         std::move(result));
  Post([shared] { shared->first(std::move(shared->second)); });
}

void CachingStore::Heads::Start(Read read) {
  std::string key = read.get.key;
  std::shared_ptr<const CachedObject> object;
  bool first = false;
  Context ctx = read.ctx;
  {
    MutexLock lock(&mu_);
    object = KnownLocked(key);
    if (!object) {
      std::vector<Read>& waiting = asking_[key];
      first = waiting.empty();
      read.asked_anew = true;
      waiting.push_back(std::move(read));
    }
  }
  // NOLINTNEXTLINE(bugprone-use-after-move): it was moved only where there is no object
  if (object) return StartKnown(std::move(read), object);
  if (!first) return;
  Post([self = shared_from_this(), key, ctx] { self->Ask(key, ctx); });
}

// One Head for all who wait. `ctx` is that of the first; the others ask again when only its time is
// up.
void CachingStore::Heads::Ask(const std::string& key, const Context& ctx) {
  Result<ObjectInfo> info = origin_->Head(key, ctx);
  std::shared_ptr<const CachedObject> object;
  if (info.ok()) object = Learn(key, *info);
  std::vector<Read> waiting;
  {
    MutexLock lock(&mu_);
    waiting = std::move(asking_[key]);
    asking_.erase(key);
  }
  for (Read& read : waiting) {
    if (object) {
      StartKnown(std::move(read), object);
    } else if (IsOfTheCaller(info.status().code()) && read.ctx.Check().ok()) {
      Start(std::move(read));
    } else {
      read.done(info.status());
    }
  }
}

void CachingStore::Heads::StartKnown(Read read, const std::shared_ptr<const CachedObject>& object) {
  const GetRequest& get = read.get;
  const ObjectVersion& version = object->version;
  BlockCache* cache = cache_->Get();
  if (!get.if_match.empty() && get.if_match != version.etag) {
    if (!read.asked_anew) {
      Forget(get.key);
      return Start(std::move(read));
    }
    Status replaced =
        Error(Code::kFailedPrecondition, "{}: '{}' has etag {}, expected {}", origin_->name(),
              EscapeText(get.key), EscapeText(version.etag), EscapeText(get.if_match));
    return Answer(std::move(read), replaced);
  }
  if (get.out.empty()) return Answer(std::move(read), object->info);
  if (get.offset > version.size_bytes || get.out.size() > version.size_bytes - get.offset) {
    Status outside =
        Error(Code::kOutOfRange, "{}: '{}' has {} bytes, asked for {} from byte {} on",
              origin_->name(), EscapeText(get.key), version.size_bytes, get.out.size(), get.offset);
    return Answer(std::move(read), outside);
  }
  if (!cache || version.etag.empty()) {
    std::vector<GetRequest> gets;
    std::vector<GetDone> dones;
    gets.push_back(std::move(read.get));
    dones.push_back(std::move(read.done));
    return origin_->SubmitGets(std::move(gets), std::move(dones), read.ctx);
  }
  MutableBytes out = get.out;
  uint64_t offset = get.offset;
  Context ctx = read.ctx;
  cache->Read(object, offset, out, ctx,
              [self = shared_from_this(), object, read = std::move(read)](Status status) mutable {
                self->Finish(std::move(read), object, std::move(status));
              });
}

// Where any version will do, the read begins anew with the one that is there now.
void CachingStore::Heads::Finish(Read read, const std::shared_ptr<const CachedObject>& object,
                                 Status status) {
  constexpr int kMaxTries = 32;  // an object may be replaced faster than it is read, for a while
  if (status.ok()) return read.done(object->info);
  bool replaced = status.code() == Code::kFailedPrecondition;
  if (replaced || status.code() == Code::kNotFound) Forget(object->version.key);
  if (!replaced || !read.get.if_match.empty() || ++read.replaced > kMaxTries)
    return read.done(std::move(status));
  read.asked_anew = false;
  Start(std::move(read));
}

// Makes a new object visible to those who remember the old one.
class CachingStore::ForgettingUpload final : public object::Upload {
 public:
  ForgettingUpload(std::unique_ptr<object::Upload> base, std::shared_ptr<Heads> heads,
                   std::string key)
      : base_(std::move(base)), heads_(std::move(heads)), key_(std::move(key)) {}
  Status PutPart(uint32_t number, Bytes data, const Context& ctx) override {
    return base_->PutPart(number, data, ctx);
  }
  Result<std::string> Complete(uint32_t num_parts, const Context& ctx) override {
    auto etag = base_->Complete(num_parts, ctx);
    heads_->Forget(key_);
    return etag;
  }
  Status Abort(const Context& ctx) override { return base_->Abort(ctx); }

 private:
  const std::unique_ptr<object::Upload> base_;
  const std::shared_ptr<Heads> heads_;
  const std::string key_;
};

Result<std::shared_ptr<ProcessCache>> ProcessCache::Create(const BlockCacheOptions& options) {
  HR_ASSIGN_OR_RETURN(auto created, BlockCache::Create(options));
  // For the first call, which is here; later ones are in children.
  auto first = std::make_shared<std::unique_ptr<BlockCache>>(std::move(created));
  std::shared_ptr<ProcessCache> cache(new ProcessCache([options, first, parent = ForkGeneration()] {
    auto holder = std::make_unique<Holder>();
    if (ForkGeneration() == parent) {
      holder->cache = std::move(*first);
    } else if (auto made = BlockCache::Create(options); made.ok()) {
      holder->cache = *std::move(made);
    }
    return holder;
  }));
  (void)cache->Get();
  return cache;
}

Result<std::unique_ptr<CachingStore>> CachingStore::Create(std::shared_ptr<ObjectStore> origin,
                                                           std::shared_ptr<ProcessCache> cache,
                                                           CachingStoreOptions options) {
  HR_RETURN_IF_ERROR(CheckBlockBytes(options.block_bytes));
  if (options.identity.empty()) options.identity = origin->name();
  return std::unique_ptr<CachingStore>(
      new CachingStore(std::move(origin), std::move(cache), std::move(options)));
}

CachingStore::CachingStore(std::shared_ptr<ObjectStore> origin, std::shared_ptr<ProcessCache> cache,
                           CachingStoreOptions options)
    : origin_(std::move(origin)),
      cache_(std::move(cache)),
      options_(std::move(options)),
      heads_([this] {
        auto heads = std::make_shared<Heads>(origin_, cache_.get(), options_);
        return std::make_unique<HeadsHolder>(std::move(heads), options_.head_threads);
      }) {}
CachingStore::~CachingStore() = default;

std::shared_ptr<CachingStore::Heads> CachingStore::heads() { return heads_.Get().heads; }

Result<ObjectInfo> CachingStore::Head(const std::string& key, const Context& ctx) {
  if (auto known = heads()->Known(key)) return known->info;
  HR_ASSIGN_OR_RETURN(ObjectInfo info, origin_->Head(key, ctx));
  return heads()->Learn(key, info)->info;
}

Result<std::shared_ptr<const CachedObject>> CachingStore::Find(const std::string& key,
                                                               const Context& ctx) {
  auto object = heads()->Known(key);
  if (!object) {
    HR_ASSIGN_OR_RETURN(ObjectInfo info, origin_->Head(key, ctx));
    object = heads()->Learn(key, info);
  }
  if (!object->version.etag.empty()) return object;
  return Error(Code::kUnimplemented, "{}: '{}' has no etag: it cannot be cached", origin_->name(),
               EscapeText(key));
}

void CachingStore::SubmitGets(std::vector<GetRequest> requests, std::vector<GetDone> dones,
                              const Context& ctx) {
  std::shared_ptr<Heads> known = heads();
  for (size_t i = 0; i < requests.size(); ++i)
    known->Start({std::move(requests[i]), std::move(dones[i]), ctx});
}

Result<std::string> CachingStore::Put(const std::string& key, Bytes data,
                                      const object::PutOptions& options, const Context& ctx) {
  auto etag = origin_->Put(key, data, options, ctx);
  heads()->Forget(key);
  return etag;
}

Status CachingStore::Delete(const std::string& key, const Context& ctx) {
  Status status = origin_->Delete(key, ctx);
  heads()->Forget(key);
  return status;
}

Result<object::ListPage> CachingStore::List(const object::ListRequest& request,
                                            const Context& ctx) {
  return origin_->List(request, ctx);
}

Result<std::unique_ptr<object::Upload>> CachingStore::StartUpload(const std::string& key,
                                                                  const Context& ctx) {
  HR_ASSIGN_OR_RETURN(auto upload, origin_->StartUpload(key, ctx));
  return std::make_unique<ForgettingUpload>(std::move(upload), heads(), key);
}

Result<std::vector<object::PendingUpload>> CachingStore::ListUploads(const std::string& prefix,
                                                                     const Context& ctx) {
  return origin_->ListUploads(prefix, ctx);
}

Status CachingStore::AbortUpload(const object::PendingUpload& upload, const Context& ctx) {
  return origin_->AbortUpload(upload, ctx);
}

}  // namespace headrace::cache
