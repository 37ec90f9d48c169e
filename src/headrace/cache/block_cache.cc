// The reader's side of BlockCache: cutting a read into blocks and serving those from where they
// are.
#include "headrace/cache/block_cache.h"

#include <algorithm>
#include <cstring>

#include "headrace/base/stage_timer.h"
#include "headrace/cache/block_flight.h"

namespace headrace::cache {

BlockCache::BlockCache(BlockCacheOptions options)
    : options_(std::move(options)), memory_(options_.memory_bytes) {}

Result<std::unique_ptr<BlockCache>> BlockCache::Create(BlockCacheOptions options) {
  if (!options.fs) options.fs = PosixFileSystem();
  std::unique_ptr<BlockCache> cache(new BlockCache(std::move(options)));
  const BlockCacheOptions& chosen = cache->options_;
  if (!chosen.node.directory.empty()) {
    HR_ASSIGN_OR_RETURN(cache->node_, NodeCache::Open(chosen.fs, chosen.node, Context()));
  }
  HR_ASSIGN_OR_RETURN(cache->work_, WorkQueue::Start("hr-cache", chosen.threads));
  HR_ASSIGN_OR_RETURN(cache->watcher_,
                      Thread::Start("hr-cache-watch", [c = cache.get()] { c->Watch(); }));
  return cache;
}

BlockCache::~BlockCache() {
  stopping_ = true;
  {
    MutexLock lock(&mu_);
    for (const RunPtr& run : running_)
      for (std::atomic<bool>& cancelled : run->cancelled) cancelled = true;
  }
  watch_cv_.NotifyAll();
  {
    MutexLock lock(&mu_);
    while (under_way_ != 0) idle_cv_.Wait(&mu_);
    watch_ends_ = true;
  }
  watch_cv_.NotifyAll();
  watcher_.reset();
  work_.reset();
}

void BlockCache::Begin(uint64_t calls) {
  MutexLock lock(&mu_);
  under_way_ += calls;
}

void BlockCache::End() {
  MutexLock lock(&mu_);
  // Under the lock: the destructor may run on as soon as it is released.
  if (--under_way_ == 0) idle_cv_.NotifyAll();
}

void BlockCache::Post(WorkQueue::Urgency urgency, std::function<void()> task) {
  Begin();
  work_->Submit(urgency, [this, task = std::move(task)]() mutable {
    task();
    task = nullptr;  // what it holds goes before this may
    End();
  });
}

void BlockCache::Read(std::shared_ptr<const CachedObject> object, uint64_t offset, MutableBytes out,
                      const Context& ctx, ReadDone done) {
  Begin();  // until the last part is settled
  auto request = std::make_shared<Request>();
  request->ctx = ctx;
  request->done = std::move(done);
  uint32_t block_bytes = object->block_bytes;
  std::vector<Part> parts;
  while (!out.empty()) {
    Part part{request,
              object->Block(offset / block_bytes),
              static_cast<uint32_t>(offset % block_bytes),
              {},
              0};
    part.out = out.first(std::min<size_t>(out.size(), part.id.length - part.offset));
    offset += part.out.size();
    out = out.subspan(part.out.size());
    parts.push_back(std::move(part));
  }
  if (parts.empty()) {
    request->pending = 1;
    return Post(WorkQueue::Urgency::kNow,
                [this, request] { Settle(Part{request, {}, 0, {}, 0}, OkStatus()); });
  }
  request->object = std::move(object);
  request->pending = parts.size();
  // Several threads share a long read; each gets neighbours, which are fetched together.
  size_t together = std::max<size_t>(options_.max_request_bytes / block_bytes, 1);
  for (size_t begin = 0; begin < parts.size(); begin += together) {
    size_t end = std::min(begin + together, parts.size());
    std::vector<Part> some(std::make_move_iterator(parts.begin() + static_cast<ptrdiff_t>(begin)),
                           std::make_move_iterator(parts.begin() + static_cast<ptrdiff_t>(end)));
    Post(WorkQueue::Urgency::kNow,
         [this, some = std::move(some)]() mutable { Serve(std::move(some)); });
  }
}

void BlockCache::Settle(const Part& part, Status status) {
  Request& request = *part.request;
  if (!status.ok()) {
    MutexLock lock(&request.mu);
    if (request.status.ok()) request.status = std::move(status);
  }
  if (request.pending.fetch_sub(1) != 1) return;
  Status result;
  {
    MutexLock lock(&request.mu);
    result = std::move(request.status);
  }
  ReadDone done = std::move(request.done);
  done(std::move(result));
  done = nullptr;
  End();
}

void BlockCache::Serve(std::vector<Part> parts) {
  std::vector<Part> misses;
  for (Part& part : parts) {
    Status status = part.request->ctx.Check();
    if (status.ok()) {
      if (ServeFromMemory(part)) continue;
      status = ServeFromDisk(part);
    }
    switch (status.code()) {
      case Code::kOk:
      case Code::kCancelled:
      case Code::kDeadlineExceeded:
        Settle(part, std::move(status));
        break;
      default:
        misses.push_back(std::move(part));
    }
  }
  if (!misses.empty()) Join(std::move(misses));
}

bool BlockCache::ServeFromMemory(const Part& part) {
  if (memory_.limit_bytes() == 0) return false;
  auto block = memory_.Find(part.id);
  if (!block) return false;
  NoteRead(part.id);
  Copy(part, block->data);
  if (node_) node_->Touch(part.id);
  counts_.memory_hits += 1;
  counts_.memory_bytes += part.out.size();
  Settle(part, OkStatus());
  return true;
}

Status BlockCache::ServeFromDisk(const Part& part) {
  if (!node_) return Status(Code::kNotFound, "no cache on disk");
  HR_RETURN_IF_ERROR(node_->Read(part.id, part.offset, part.out, part.request->ctx));
  NoteRead(part.id);
  counts_.disk_hits += 1;
  counts_.disk_bytes += part.out.size();
  return OkStatus();
}

void BlockCache::Copy(const Part& part, Bytes block) const {
  std::memcpy(part.out.data(), block.data() + part.offset, part.out.size());
}

void BlockCache::NoteRead(const BlockId& id) {
  if (num_unread_.load(std::memory_order_relaxed) == 0) return;
  MutexLock lock(&mu_);
  num_unread_ -= unread_.erase(id);
}

// Lets the parts wait for the fetch of their block, and begins those that are not under way.
void BlockCache::Join(std::vector<Part> misses) {
  std::vector<FlightPtr> fresh;
  std::vector<std::pair<Part, std::shared_ptr<const BlockBytes>>> ready;
  {
    MutexLock lock(&mu_);
    for (Part& part : misses) {
      FlightPtr& flight = flights_[part.id];
      if (!flight) {
        flight = std::make_shared<Flight>();
        flight->object = part.request->object;
        flight->id = part.id;
        fresh.push_back(flight);
      }
      flight->was_read = true;
      if (flight->by_prefetch) num_unread_ -= unread_.erase(part.id);
      if (flight->bytes) {
        ready.emplace_back(std::move(part), flight->bytes);
      } else {
        if (part.tries == 0) counts_.misses += 1;
        flight->parts.push_back(std::move(part));
      }
    }
  }
  watch_cv_.NotifyAll();
  for (auto& [part, block] : ready) {
    Copy(part, block->data);
    counts_.memory_hits += 1;
    counts_.memory_bytes += part.out.size();
    Settle(part, OkStatus());
  }
  Launch(std::move(fresh));
}

// The block was about to be here: look again. A cache that loses it each time is not waited for.
void BlockCache::ServeAgain(std::vector<Part> parts) {
  constexpr int kMaxTries = 3;
  std::vector<Part> again, stream;
  for (Part& part : parts) (++part.tries > kMaxTries ? stream : again).push_back(std::move(part));
  if (!stream.empty()) Stream(std::move(stream));
  if (!again.empty())
    Post(WorkQueue::Urgency::kNow,
         [this, again = std::move(again)]() mutable { Serve(std::move(again)); });
}

void BlockCache::Prefetch(std::vector<Wanted> wanted, FetchDone done) {
  auto shared_done = std::make_shared<const FetchDone>(std::move(done));
  Post(WorkQueue::Urgency::kNow, [this, wanted = std::move(wanted), shared_done] {
    std::vector<FlightPtr> fresh;
    for (size_t i = 0; i < wanted.size(); ++i) {
      BlockId id = wanted[i].object->Block(wanted[i].number);
      if (!node_ || !node_->healthy()) {
        (*shared_done)(i, Fetched::kRefused, OkStatus());
      } else if (node_->Contains(id)) {
        node_->SetUse(id, wanted[i].use);
        (*shared_done)(i, Fetched::kWasHere, OkStatus());
      } else {
        MutexLock lock(&mu_);
        FlightPtr& flight = flights_[id];
        if (!flight) {
          flight = std::make_shared<Flight>();
          flight->object = wanted[i].object;
          flight->id = id;
          flight->by_prefetch = true;
          fresh.push_back(flight);
        }
        flight->use = wanted[i].use;
        flight->prefetching.push_back({shared_done, i});
      }
    }
    watch_cv_.NotifyAll();
    Launch(std::move(fresh));
  });
}

void BlockCache::Release(const BlockId& id, const ExpectedUse& next) {
  if (num_unread_.load(std::memory_order_relaxed) != 0) {
    MutexLock lock(&mu_);
    if (unread_.erase(id) != 0) {
      num_unread_ -= 1;
      counts_.unused_bytes += id.length;
    }
  }
  SetUse(id, next);
}

void BlockCache::SetUse(const BlockId& id, const ExpectedUse& use) {
  if (node_ && node_->Contains(id)) node_->SetUse(id, use);
}

CacheCounters BlockCache::counters() const {
  CacheCounters now;
  now.memory_hits = counts_.memory_hits;
  now.disk_hits = counts_.disk_hits;
  now.misses = counts_.misses;
  now.memory_bytes = counts_.memory_bytes;
  now.disk_bytes = counts_.disk_bytes;
  now.origin_bytes = counts_.origin_bytes;
  now.origin_requests = counts_.origin_requests;
  now.streamed_bytes = counts_.streamed_bytes;
  now.waits = counts_.waits;
  now.hedges = counts_.hedges;
  now.hedge_bytes = counts_.hedge_bytes;
  now.prefetched_bytes = counts_.prefetched_bytes;
  now.unused_bytes = counts_.unused_bytes;
  if (node_) now.node = node_->counters();
  return now;
}

}  // namespace headrace::cache
