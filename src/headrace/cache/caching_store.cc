#include "headrace/cache/caching_store.h"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <unordered_map>
#include <utility>
#include <vector>

#include "headrace/base/stage_timer.h"
#include "headrace/base/text.h"
#include "headrace/object/task_pool.h"

namespace headrace::cache {

using object::GetRequest;
using object::ObjectInfo;
using object::ObjectStore;

namespace {

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

  // The object if it is known, and since not too long.
  std::shared_ptr<const CachedObject> Fresh(const std::string& key) {
    MutexLock lock(&mu_);
    auto found = known_.find(key);
    return found != known_.end() && IsFresh(found->second) ? found->second.object : nullptr;
  }
  // The object if it is known.
  std::shared_ptr<const CachedObject> Latest(const std::string& key) {
    MutexLock lock(&mu_);
    auto found = known_.find(key);
    return found != known_.end() ? found->second.object : nullptr;
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

  bool IsFresh(const Entry& entry) const {
    return options_.head_ttl_ms == UINT64_MAX || NowMs() - entry.learned_ms < options_.head_ttl_ms;
  }
  // What a read of the version `etag` can go by. One without etag goes to the origin in any case.
  std::shared_ptr<const CachedObject> KnownFor(const std::string& key, const std::string& etag)
      HR_REQUIRES(mu_) {
    auto found = known_.find(key);
    if (found == known_.end()) return nullptr;
    const Entry& entry = found->second;
    return entry.object->version.etag == etag || IsFresh(entry) ? entry.object : nullptr;
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
    object = KnownFor(key, read.get.if_match);
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

// One Head for all who wait. `ctx` is that of the first; those who have more time than it ask again
// when only its time is up. The first one does not: a store may say so before the time is up, where
// it knows that its next try would come too late.
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
  for (size_t i = 0; i < waiting.size(); ++i) {
    Read& read = waiting[i];
    const bool has_more =
        info.status().code() == Code::kCancelled ||
        (info.status().code() == Code::kDeadlineExceeded && read.ctx.deadline > ctx.deadline);
    if (object) {
      StartKnown(std::move(read), object);
    } else if (i > 0 && has_more && read.ctx.Check().ok()) {
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
    Status replaced = Error(
        Code::kFailedPrecondition, "{}: '{}' was replaced: it has etag {}, expected {}",
        origin_->name(), EscapeText(get.key), EscapeText(version.etag), EscapeText(get.if_match));
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

namespace {

// The caches of one process, so that a forked child knows of those that it has made itself.
class LiveCaches {
 public:
  void Add(const std::shared_ptr<BlockCache>& cache) HR_EXCLUDES(mu_) {
    MutexLock lock(&mu_);
    std::erase_if(caches_, [](const auto& one) { return one.expired(); });
    caches_.push_back(cache);
  }
  std::vector<std::shared_ptr<BlockCache>> Get() HR_EXCLUDES(mu_) {
    std::vector<std::shared_ptr<BlockCache>> caches;
    MutexLock lock(&mu_);
    for (const auto& one : caches_)
      if (auto cache = one.lock()) caches.push_back(std::move(cache));
    return caches;
  }

 private:
  Mutex mu_;  // leaf
  std::vector<std::weak_ptr<BlockCache>> caches_ HR_GUARDED_BY(mu_);
};
LiveCaches& AllLive() {
  static auto* live =
      new object::PerProcess<LiveCaches>([] { return std::make_unique<LiveCaches>(); });
  return live->Get();
}

}  // namespace

std::vector<std::shared_ptr<BlockCache>> ProcessCache::AllOfProcess() { return AllLive().Get(); }

Result<std::shared_ptr<ProcessCache>> ProcessCache::Create(const BlockCacheOptions& options) {
  std::shared_ptr<ProcessCache> cache(new ProcessCache(options));
  if (options.node.directory.empty()) return cache;
  Holder& holder = cache->per_process_.Get();
  MutexLock lock(&holder.mu);
  HR_RETURN_IF_ERROR(cache->Make(&holder));
  return cache;
}

Status ProcessCache::Make(Holder* holder) {
  holder->tried = true;
  HR_ASSIGN_OR_RETURN(holder->cache, BlockCache::Create(options_));
  if (holder->cache->node()) AllLive().Add(holder->cache);
  holder->ready = holder->cache.get();
  return OkStatus();
}

BlockCache* ProcessCache::Get() {
  Holder& holder = per_process_.Get();
  if (BlockCache* ready = holder.ready) return ready;
  MutexLock lock(&holder.mu);
  if (!holder.tried) (void)Make(&holder);
  return holder.ready;
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
  if (auto known = heads()->Fresh(key)) return known->info;
  HR_ASSIGN_OR_RETURN(ObjectInfo info, origin_->Head(key, ctx));
  return heads()->Learn(key, info)->info;
}

Result<std::shared_ptr<const CachedObject>> CachingStore::Find(const std::string& key,
                                                               const Context& ctx) {
  auto object = heads()->Latest(key);
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
  if (!options_.planned_alone) {
    for (size_t i = 0; i < requests.size(); ++i)
      known->Start({std::move(requests[i]), std::move(dones[i]), ctx});
    return;
  }
  Context planned = ctx;
  planned.caching = Caching::kKeepIfRoom;
  std::vector<GetRequest> past;
  std::vector<GetDone> past_dones;
  for (size_t i = 0; i < requests.size(); ++i) {
    if (IsPlanned(requests[i], ctx)) {
      known->Start({std::move(requests[i]), std::move(dones[i]), planned});
    } else {
      past.push_back(std::move(requests[i]));
      past_dones.push_back(std::move(dones[i]));
    }
  }
  if (!past.empty()) SubmitPast(std::move(past), std::move(past_dones), ctx);
}

// What goes past the cache by SubmitGets does so here too.
bool CachingStore::TryGet(const GetRequest& request, const Context& ctx) {
  if (request.if_match.empty() || request.out.empty()) return false;
  BlockCache* cache = cache_->made();
  if (!cache || (options_.planned_alone && !IsPlanned(request, ctx))) return false;
  auto object = heads()->Latest(request.key);
  if (!object || object->version.etag != request.if_match) return false;
  const uint64_t bytes = request.out.size(), size = object->version.size_bytes;
  return bytes <= size && request.offset <= size - bytes &&
         cache->ReadFromMemory(*object, request.offset, request.out);
}

// Whoever reads with kKeepIfRoom follows a plan. Others find what a plan holds, too.
bool CachingStore::IsPlanned(const GetRequest& request, const Context& ctx) {
  if (request.if_match.empty() || request.out.empty() || ctx.caching == Caching::kPass)
    return false;
  if (ctx.caching == Caching::kKeepIfRoom) return cache_->Get() != nullptr;
  BlockCache* cache = cache_->made();
  if (!cache) return false;
  auto object = heads()->Latest(request.key);
  const uint64_t bytes = request.out.size();
  if (!object || object->version.etag != request.if_match) return false;
  const uint64_t size = object->version.size_bytes;
  return bytes <= size && request.offset <= size - bytes &&
         cache->Holds(*object, request.offset, bytes);
}

// As if there were no cache. Those who follow a plan want to know what came without it.
void CachingStore::SubmitPast(std::vector<GetRequest> requests, std::vector<GetDone> dones,
                              const Context& ctx) {
  BlockCache* cache = ctx.caching == Caching::kKeep ? nullptr : cache_->made();
  for (size_t i = 0; cache && i < requests.size(); ++i) {
    const uint64_t bytes = requests[i].out.size();
    if (bytes == 0) continue;
    const uint64_t first = requests[i].offset / options_.block_bytes;
    const uint64_t last = (requests[i].offset + bytes - 1) / options_.block_bytes;
    dones[i] = cache->CountPast(last - first + 1, bytes, std::move(dones[i]));
  }
  origin_->SubmitGets(std::move(requests), std::move(dones), ctx);
}

void CachingStore::Distrust(const ObjectInfo& object, uint64_t offset, uint64_t bytes) {
  BlockCache* cache = cache_->made();
  if (!cache || object.etag.empty() || offset >= object.size_bytes || bytes == 0) return;
  const ObjectId id = IdentifyObject(
      {options_.identity, object.key, object.etag, object.size_bytes}, options_.block_bytes);
  const uint64_t last = offset + std::min(bytes, object.size_bytes - offset) - 1;
  for (uint64_t number = offset / options_.block_bytes; number <= last / options_.block_bytes;
       ++number)
    cache->Forget(BlockOf(id, object.size_bytes, options_.block_bytes, number));
}

void CachingStore::WillGet(const ObjectInfo& info, uint64_t offset, uint64_t length,
                           const Context& ctx) {
  if (options_.planned_alone) return;
  auto object = heads()->Latest(info.key);
  BlockCache* cache = cache_->Get();
  if (object && cache && !info.etag.empty() && object->version.etag == info.etag)
    cache->WillRead(std::move(object), offset, length, ctx.caching);
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
