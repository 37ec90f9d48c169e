// The reader's side of BlockCache: cutting a read into blocks and serving those from where they
// are.
#include "headrace/cache/block_cache.h"

#include <algorithm>
#include <cstring>

#include "headrace/base/stage_timer.h"
#include "headrace/cache/block_flight.h"

namespace headrace::cache {

namespace {

// Where there is memory alone, what lies ready for the next fetches is small against it, and a
// block's buffer has just its size, since all of it is counted.
BufferPool MakeBuffers(const BlockCacheOptions& options) {
  constexpr uint64_t kIdleBytes = 64 << 20, kShareOfMemory = 4;
  const uint64_t idle = std::min(kIdleBytes, options.max_fetch_bytes);
  if (!options.node.directory.empty()) return BufferPool(idle);
  return BufferPool(std::min(idle, options.memory_bytes / kShareOfMemory), BufferPool::Fit::kExact);
}

}  // namespace

BlockCache::BlockCache(BlockCacheOptions options)
    : options_(std::move(options)),
      buffers_(MakeBuffers(options_)),
      memory_(options_.memory_bytes),
      ahead_(options_.max_ahead_bytes) {}

Result<std::unique_ptr<BlockCache>> BlockCache::Create(BlockCacheOptions options) {
  if (!options.fs) options.fs = PosixFileSystem();
  std::unique_ptr<BlockCache> cache(new BlockCache(std::move(options)));
  const BlockCacheOptions& chosen = cache->options_;
  if (!chosen.node.directory.empty()) {
    NodeCacheOptions node = chosen.node;
    node.post = [c = cache.get()](std::function<void()> task) {
      c->Post(WorkQueue::Urgency::kNow, std::move(task));
    };
    HR_ASSIGN_OR_RETURN(cache->node_, DiskTier::Open(chosen.fs, node, Context()));
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

bool BlockCache::WaitUntilIdle(std::chrono::nanoseconds timeout) {
  const auto end = Context::Clock::now() + timeout;
  MutexLock lock(&mu_);
  while (under_way_ != 0) {
    const auto left = end - Context::Clock::now();
    if (left <= left.zero()) return false;
    (void)idle_cv_.WaitFor(&mu_, left);
  }
  return true;
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
  if (ReadAhead(object, offset, out, ctx, done)) return;
  ReadBlocks(std::move(object), offset, out, ctx, std::move(done));
}

// Serves what WillRead was told of. False, with `done` untouched, where that does not have it.
bool BlockCache::ReadAhead(const std::shared_ptr<const CachedObject>& object, uint64_t offset,
                           MutableBytes out, const Context& ctx, ReadDone& done) {
  if (ahead_.bytes() == 0 || out.empty()) return false;
  auto shared_done = std::make_shared<ReadDone>(std::move(done));
  RangesAhead::ReadDone finish = [this, object, offset, out, ctx, shared_done](Status status) {
    // On another thread: this one may hold the origin's, or be the caller's.
    Post(WorkQueue::Urgency::kNow,
         [this, object, offset, out, ctx, shared_done, status = std::move(status)]() mutable {
           if (status.code() == Code::kNotFound)
             ReadBlocks(object, offset, out, ctx, std::move(*shared_done));
           else
             (*shared_done)(std::move(status));
         });
    End();
  };
  Begin();  // until it is finished
  auto found = ahead_.Read(object->id, offset, out, ctx, finish);
  if (found == RangesAhead::Found::kNone) {
    done = std::move(*shared_done);
    End();
    return false;
  }
  if (found == RangesAhead::Found::kComing) {
    MutexLock lock(&mu_);  // so that the watcher is not between looking and waiting
    watch_cv_.NotifyAll();
  }
  return true;
}

bool BlockCache::IsHere(const CachedObject& object, uint64_t offset, uint64_t length) {
  for (uint64_t number = offset / object.block_bytes;
       number <= (offset + length - 1) / object.block_bytes; ++number) {
    BlockId id = object.Block(number);
    if (memory_.Find(id) || (node_ && node_->Contains(id))) continue;
    MutexLock lock(&mu_);
    if (!flights_.contains(id)) return false;
  }
  return true;
}

void BlockCache::WillRead(std::shared_ptr<const CachedObject> object, uint64_t offset,
                          uint64_t length, Caching caching) {
  uint64_t size = object->version.size_bytes;
  if (offset >= size) return;
  length = std::min(length, size - offset);
  RangesAhead::RangePtr range = ahead_.Begin(object->id, offset, length);
  if (!range) return;
  Post(WorkQueue::Urgency::kNow,
       [this, object = std::move(object), offset, length, range, caching] {
         if (stopping_ || IsHere(*object, offset, length)) return ahead_.End(range, false);
         Context ctx;
         ctx.cancelled = &stopping_;
         ctx.caching = caching;
         ReadBlocks(object, offset, range->bytes(), ctx,
                    [this, range](const Status& status) { ahead_.End(range, status.ok()); });
       });
}

void BlockCache::ReadBlocks(std::shared_ptr<const CachedObject> object, uint64_t offset,
                            MutableBytes out, const Context& ctx, ReadDone done) {
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
      if (status.ok()) continue;
    }
    if (!SettleUnlessMissing(part, std::move(status))) misses.push_back(std::move(part));
  }
  if (!misses.empty()) Join(std::move(misses));
}

// False where the origin has to be asked.
bool BlockCache::SettleUnlessMissing(const Part& part, Status status) {
  if (!status.ok() && status.code() != Code::kCancelled && status.code() != Code::kDeadlineExceeded)
    return false;
  Settle(part, std::move(status));
  return true;
}

bool BlockCache::ServeFromMemory(const Part& part) {
  if (memory_.limit_bytes() == 0) return false;
  auto block = memory_.Find(part.id);
  if (!block) return false;
  Copy(part, block->data);
  CountMemoryHit(part.id, part.out.size());
  Settle(part, OkStatus());
  return true;
}

void BlockCache::CountMemoryHit(const BlockId& id, uint64_t bytes) {
  NoteRead(id);
  if (node_) node_->Touch(id);
  counts_.memory_hits += 1;
  counts_.memory_bytes += bytes;
}

// Ranges that were brought for readers (WillRead) are theirs to take: those go by Read.
bool BlockCache::ReadFromMemory(const CachedObject& object, uint64_t offset, MutableBytes out) {
  constexpr size_t kMostBlocks = 4;  // larger reads are worth the way over other threads
  if (memory_.limit_bytes() == 0 || ahead_.bytes() != 0 || out.empty()) return false;
  const uint64_t first = offset / object.block_bytes;
  const uint64_t blocks = (offset + out.size() - 1) / object.block_bytes - first + 1;
  if (blocks > kMostBlocks) return false;
  std::array<std::shared_ptr<const BlockBytes>, kMostBlocks> found;
  for (uint64_t i = 0; i < blocks; ++i) {
    found[i] = memory_.Find(object.Block(first + i));
    if (!found[i]) return false;
  }
  for (uint64_t i = 0; i < blocks; ++i) {
    const uint64_t begin = offset - (first + i) * object.block_bytes;
    const Bytes piece = found[i]->data.subspan(begin).first(
        std::min<uint64_t>(out.size(), found[i]->data.size() - begin));
    std::memcpy(out.data(), piece.data(), piece.size());
    CountMemoryHit(found[i]->id, piece.size());
    out = out.subspan(piece.size());
    offset += piece.size();
  }
  return true;
}

// OK when the disk has the block: the part is settled then, or will be.
Status BlockCache::ServeFromDisk(const Part& part) {
  if (!node_) return Status(Code::kNotFound, "no cache on disk");
  return node_->StartRead(part.id, part.offset, part.out, part.request->ctx,
                          [this, part](Status status) {
                            if (status.ok()) {
                              NoteRead(part.id);
                              counts_.disk_hits += 1;
                              counts_.disk_bytes += part.out.size();
                            }
                            if (!SettleUnlessMissing(part, std::move(status))) Join({part});
                          });
}

void BlockCache::Copy(const Part& part, Bytes block) const {
  std::memcpy(part.out.data(), block.data() + part.offset, part.out.size());
}

void BlockCache::NoteRead(const BlockId& id) {
  if (num_unread_.load(std::memory_order_relaxed) == 0) return;
  MutexLock lock(&mu_);
  num_unread_ -= unread_.erase(id);
}

// True when the part's block fits on the disk beside the `booked` bytes, and nothing has to go for
// it.
bool BlockCache::HasRoomFor(const Part& part, uint64_t booked) {
  if (part.request->ctx.caching == Caching::kPass) return false;
  return node_ && node_->HasRoom(part.id, booked);
}

uint64_t BlockCache::BookedBytes() {
  MutexLock lock(&mu_);
  return booked_bytes_;
}

// Where the parts of a read go that memory and disk do not have.
struct BlockCache::Missed {
  std::vector<FlightPtr> fresh;  // begun for them
  std::vector<Part> stream;      // to be read without the cache
  std::vector<std::pair<Part, std::shared_ptr<const BlockBytes>>> ready;
};

// Lets the part wait for the fetch of its block, which is begun if it is not under way. False, with
// nothing done, when the room that was seen for it may be another block's by now.
bool BlockCache::JoinOne(Part& part, Missed* missed) {
  uint64_t booked = BookedBytes();
  bool has_room = HasRoomFor(part, booked);
  Caching caching = part.request->ctx.caching;
  MutexLock lock(&mu_);
  auto found = flights_.find(part.id);
  FlightPtr flight = found == flights_.end() ? nullptr : found->second;
  if (!flight) {
    auto expected = expected_.find(part.id);
    // What is expected has its room in memory already.
    if (!node_)
      has_room = expected != expected_.end() ||
                 held_bytes_ + BufferPool::CapacityFor(part.id.length) <= memory_.limit_bytes();
    bool may_displace = expected == expected_.end()
                            ? caching == Caching::kKeep
                            : expected->second.displace == Displace::kFarther;
    if (caching == Caching::kPass || !(has_room || may_displace)) {
      missed->stream.push_back(std::move(part));
      return true;
    }
    if (node_ && !may_displace && booked_bytes_ > booked) return false;
    flight = BeginFlight(part.request->object, part.id);
    if (caching == Caching::kKeepIfRoom) flight->displace = Displace::kNothing;
    if (expected != expected_.end()) {
      flight->use = expected->second.use;
      flight->displace = expected->second.displace;
      flight->needed_until = expected->second.last_use;
    }
    missed->fresh.push_back(flight);
  }
  flight->was_read = true;
  if (flight->by_prefetch) num_unread_ -= unread_.erase(part.id);
  if (flight->bytes)
    missed->ready.emplace_back(std::move(part), flight->bytes);
  else
    flight->parts.push_back(std::move(part));
  return true;
}

void BlockCache::Join(std::vector<Part> misses) {
  Missed missed;
  for (Part& part : misses)
    while (!JoinOne(part, &missed)) {
    }
  watch_cv_.NotifyAll();
  for (auto& [part, block] : missed.ready) {
    Copy(part, block->data);
    counts_.memory_hits += 1;
    counts_.memory_bytes += part.out.size();
    Settle(part, OkStatus());
  }
  Launch(std::move(missed.fresh));
  if (!missed.stream.empty()) Stream(std::move(missed.stream));
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
    for (size_t i = 0; i < wanted.size(); ++i) PrefetchOne(wanted[i], {shared_done, i}, &fresh);
    watch_cv_.NotifyAll();
    Launch(std::move(fresh));
  });
}

void BlockCache::PrefetchOne(const Wanted& one, const Prefetching& teller,
                             std::vector<FlightPtr>* fresh) {
  if (!node_) return PrefetchToMemory(one, teller, fresh);
  BlockId id = one.object->Block(one.number);
  auto tell = [&](Fetched how) { (*teller.done)(teller.place, how, OkStatus()); };
  if (!node_->healthy()) return tell(Fetched::kRefused);
  if (node_->Contains(id)) {
    node_->SetUse(id, one.use);
    return tell(Fetched::kWasHere);
  }
  for (uint64_t booked = BookedBytes();;) {
    bool has_room = node_->MakeRoomFor(id, booked, one.use, one.displace);
    MutexLock lock(&mu_);
    auto found = flights_.find(id);
    FlightPtr flight = found == flights_.end() ? nullptr : found->second;
    if (!flight && !has_room) break;
    if (!flight && booked_bytes_ > booked) {  // the room that was seen may be another block's
      booked = booked_bytes_;
      continue;
    }
    if (!flight) {
      flight = BeginFlight(one.object, id);
      flight->by_prefetch = true;
      flight->displace = one.displace;
      fresh->push_back(flight);
    }
    flight->use = one.use;
    flight->needed_until = one.last_use;
    flight->prefetching.push_back(teller);
    return;
  }
  tell(Fetched::kRefused);
}

// What is not expected, or not any more, has no room of its own.
void BlockCache::PrefetchToMemory(const Wanted& one, const Prefetching& teller,
                                  std::vector<FlightPtr>* fresh) {
  const BlockId id = one.object->Block(one.number);
  Fetched how = Fetched::kWasHere;
  if (!memory_.Find(id)) {
    MutexLock lock(&mu_);
    auto expected = expected_.find(id);
    if (expected != expected_.end()) {
      auto found = flights_.find(id);
      FlightPtr flight = found == flights_.end() ? nullptr : found->second;
      if (!flight) {
        flight = BeginFlight(one.object, id);
        flight->by_prefetch = true;
        fresh->push_back(flight);
      }
      flight->needed_until = expected->second.last_use;
      flight->prefetching.push_back(teller);
      return;
    }
    how = Fetched::kRefused;
  }
  (*teller.done)(teller.place, how, OkStatus());
}

BlockCache::FlightPtr BlockCache::BeginFlight(const std::shared_ptr<const CachedObject>& object,
                                              const BlockId& id) {
  auto flight = std::make_shared<Flight>();
  flight->object = object;
  flight->id = id;
  Hold(id);
  flights_[id] = flight;
  booked_bytes_ += BlockCost(id.length);
  return flight;
}

object::ObjectStore::GetDone BlockCache::CountPast(uint64_t blocks, uint64_t bytes,
                                                   object::ObjectStore::GetDone done) {
  Begin();
  return [this, blocks, bytes, done = std::move(done)](Result<object::ObjectInfo> result) mutable {
    counts_.misses += blocks;
    counts_.origin_requests += 1;
    if (result.ok()) {
      counts_.origin_bytes += bytes;
      counts_.streamed_bytes += bytes;
    }
    done(std::move(result));
    done = nullptr;
    End();
  };
}

void BlockCache::Forget(const BlockId& id) {
  {
    MutexLock lock(&mu_);
    // What is on its way to the disk would come back.
    for (auto flight = flights_.find(id); flight != flights_.end() && flight->second->bytes;
         flight = flights_.find(id))
      flight_cv_.Wait(&mu_);
  }
  memory_.Remove(id);
  if (node_) node_->Drop(id);
}

CacheCounters BlockCache::counters() const {
  CacheCounters now = counts_;
  if (node_) now.node = node_->counters();
  return now;
}

CacheCounters& CacheCounters::operator+=(const CacheCounters& other) {
  memory_hits += other.memory_hits;
  disk_hits += other.disk_hits;
  misses += other.misses;
  memory_bytes += other.memory_bytes;
  disk_bytes += other.disk_bytes;
  origin_bytes += other.origin_bytes;
  origin_requests += other.origin_requests;
  streamed_bytes += other.streamed_bytes;
  waits += other.waits;
  hedges += other.hedges;
  hedge_bytes += other.hedge_bytes;
  prefetched_bytes += other.prefetched_bytes;
  unused_bytes += other.unused_bytes;
  node += other.node;
  return *this;
}

}  // namespace headrace::cache
