// The fetching side of BlockCache: claims, joined requests to the origin, and what becomes of them.
#include <algorithm>
#include <cstring>
#include <functional>
#include <iterator>
#include <utility>

#include "headrace/base/stage_timer.h"
#include "headrace/base/text.h"
#include "headrace/cache/block_cache.h"
#include "headrace/cache/block_flight.h"

namespace headrace::cache {
namespace {

// The answer must be of the version that was asked for: stores without if_match are checked here.
Status CheckVersion(const CachedObject& object, const Result<object::ObjectInfo>& answer) {
  HR_RETURN_IF_ERROR(answer.status());
  bool same_etag = answer->etag.empty() || answer->etag == object.version.etag;
  bool same_size = answer->size_bytes == 0 || answer->size_bytes == object.version.size_bytes;
  if (same_etag && same_size) return OkStatus();
  return Error(Code::kFailedPrecondition,
               "{}: '{}' was replaced while it was read (etag {}, expected {}): open it again",
               object.version.store, EscapeText(object.version.key), EscapeText(answer->etag),
               EscapeText(object.version.etag));
}

object::GetRequest MakeGet(const CachedObject& object, uint64_t offset, MutableBytes out) {
  object::GetRequest get;
  get.key = object.version.key;
  get.offset = offset;
  get.out = out;
  if (object.origin->abilities().get_if_match) get.if_match = object.version.etag;
  return get;
}

template <typename Run>
MutableBytes BufferOf(const Run& run, int which) {
  return {run.buffers[which]->data, run.length};
}

}  // namespace

void BlockCache::Launch(std::vector<FlightPtr> flights) {
  std::vector<Part> stream;
  std::erase_if(flights, [&](const FlightPtr& flight) { return !ClaimFlight(flight, &stream); });
  if (!flights.empty()) FetchTogether(std::move(flights));
  if (!stream.empty()) Stream(std::move(stream));
}

// Returns true when the flight is ours to fetch; else it is taken care of, but for parts that are
// to be streamed.
bool BlockCache::ClaimFlight(const FlightPtr& flight, std::vector<Part>* stream) {
  if (!node_) return ClaimInMemory(flight, stream);
  auto claim = node_->ClaimBlock(flight->id);
  if (claim.ok()) {
    flight->claim = *std::move(claim);
    return true;
  }
  if (claim.status().code() == Code::kAlreadyExists) {
    std::vector<Part> parts = Remove(flight);
    if (flight->use.plan != kNoPlan || !flight->prefetching.empty())
      node_->SetUse(flight->id, flight->use);
    TellPrefetchers(flight, Fetched::kWasHere, OkStatus());
    ServeAgain(std::move(parts));
  } else if (claim.status().code() == Code::kFailedPrecondition) {
    MutexLock lock(&mu_);
    if (flight->waiting_since_ms == 0) {
      counts_.waits += 1;
      flight->waiting_since_ms = NowNanos() / 1'000'000;
    }
    waiting_.push_back(flight);
    watch_cv_.NotifyAll();
  } else {
    EndFlight(flight, stream);
  }
  return false;
}

// As ClaimFlight. A flight that ended between the look into memory and the begin of this one has
// left its block there; and what was released meanwhile is not fetched any more.
bool BlockCache::ClaimInMemory(const FlightPtr& flight, std::vector<Part>* stream) {
  if (memory_.limit_bytes() < flight->id.length) {
    EndFlight(flight, stream);
    return false;
  }
  const bool is_here = memory_.Find(flight->id) != nullptr;
  if (!is_here) {
    MutexLock lock(&mu_);
    if (flight->needed_until || !flight->parts.empty()) return true;
  }
  std::vector<Part> parts = Remove(flight);
  TellPrefetchers(flight, is_here ? Fetched::kWasHere : Fetched::kRefused, OkStatus());
  ServeAgain(std::move(parts));
  return false;
}

// Makes one request of blocks that follow each other, up to the largest size.
void BlockCache::FetchTogether(std::vector<FlightPtr> flights) {
  std::sort(flights.begin(), flights.end(),
            [](const FlightPtr& a, const FlightPtr& b) { return a->id < b->id; });
  RunPtr run;
  for (FlightPtr& flight : flights) {
    const BlockId& id = flight->id;
    bool fits = run && run->flights.back()->object == flight->object &&
                run->flights.back()->id.number + 1 == id.number &&
                run->length + id.length <= options_.max_request_bytes;
    if (!fits) {
      if (run) SubmitOrQueue(std::move(run));
      run = std::make_shared<Run>();
      run->offset = id.number * flight->object->block_bytes;
    }
    run->length += id.length;
    run->flights.push_back(std::move(flight));
  }
  if (run) SubmitOrQueue(std::move(run));
}

void BlockCache::SubmitOrQueue(RunPtr run) {
  {
    MutexLock lock(&mu_);
    if (fetch_bytes_ > 0 && fetch_bytes_ + run->length > options_.max_fetch_bytes) {
      queued_.push_back(std::move(run));
      return;
    }
    fetch_bytes_ += run->length;
    running_.push_back(run);
  }
  SubmitRun(run, false);
}

void BlockCache::SubmitRun(const RunPtr& run, bool hedge) {
  std::shared_ptr<const BufferPool::Buffer> buffer = buffers_.Take(run->length);
  if (!buffer && hedge) return;
  Begin();
  if (!buffer) {
    RunDone(
        run, hedge,
        Error(Code::kResourceExhausted, "no memory for {} of a block", FormatSize(run->length)));
    return End();
  }
  {
    MutexLock lock(&mu_);
    run->buffers[hedge] = std::move(buffer);
    run->open += 1;
    if (!hedge) run->submitted_ns = NowNanos();
    if (stopping_) run->cancelled[hedge] = true;
  }
  const CachedObject& object = *run->flights.front()->object;
  std::vector<object::GetRequest> gets;
  gets.push_back(MakeGet(object, run->offset, BufferOf(*run, hedge)));
  std::vector<object::ObjectStore::GetDone> dones;
  // Away from the origin's thread, which must not wait, and must not be the last to hold the
  // origin.
  dones.emplace_back([this, run = RunPtr(run), hedge](Result<object::ObjectInfo> result) mutable {
    Post(WorkQueue::Urgency::kNow, [this, run = std::move(run), hedge, result = std::move(result)] {
      RunDone(run, hedge, result);
    });
    End();
  });
  Context ctx;
  ctx.cancelled = &run->cancelled[hedge];
  object.origin->SubmitGets(std::move(gets), std::move(dones), ctx);
}

void BlockCache::RunDone(const RunPtr& run, bool hedge, const Result<object::ObjectInfo>& result) {
  Status status = CheckVersion(*run->flights.front()->object, result);
  counts_.origin_requests += 1;
  if (result.ok()) counts_.origin_bytes += run->length;
  if (result.ok() && hedge) counts_.hedge_bytes += run->length;
  {
    MutexLock lock(&mu_);
    if (run->open > 0) run->open -= 1;
    if (run->decided || (!status.ok() && run->open > 0)) return;  // the other one counts
    run->decided = true;
    run->winner = hedge;
    run->cancelled[!hedge] = true;
    if (status.ok() && !hedge) latency_.Add((NowNanos() - run->submitted_ns) / 1000);
  }
  if (status.ok()) return Deliver(run);
  for (const FlightPtr& flight : run->flights) FailFlight(flight, status);
  EndRun(run);
}

// First the readers, then the disk.
void BlockCache::Deliver(const RunPtr& run) {
  for (const FlightPtr& flight : run->flights) DeliverFlight(run, flight);
  if (!node_) {
    for (const FlightPtr& flight : run->flights) AdmitFlight(flight);
    return EndRun(run);
  }
  Post(WorkQueue::Urgency::kLater, [this, run] {
    for (const FlightPtr& flight : run->flights) AdmitFlight(flight);
    EndRun(run);
  });
}

void BlockCache::DeliverFlight(const RunPtr& run, const FlightPtr& flight) {
  uint64_t begin = flight->id.number * flight->object->block_bytes - run->offset;
  Bytes data = BufferOf(*run, run->winner).subspan(begin, flight->id.length);
  const auto& buffer = run->buffers[run->winner];
  auto block = std::make_shared<const BlockBytes>(
      BlockBytes{flight->id, data, buffer, std::max<uint64_t>(buffer->capacity, 1)});
  std::vector<Part> parts;
  std::optional<uint64_t> needed_until;
  {
    MutexLock lock(&mu_);
    flight->bytes = block;
    parts.swap(flight->parts);
    needed_until = flight->needed_until;
    if (flight->by_prefetch) NotePrefetched(flight);
  }
  counts_.misses += parts.size();
  for (const Part& part : parts) {
    Copy(part, data);
    Settle(part, OkStatus());
  }
  // Who reads it next finds it there.
  if (!parts.empty() || needed_until) KeepInMemory(flight, std::move(block), needed_until);
}

// A plan may change its mind meanwhile, until the flight has ended: after that it finds the block.
// What came for the last plan when that was gone is not left behind.
void BlockCache::KeepInMemory(const FlightPtr& flight, std::shared_ptr<const BlockBytes> block,
                              std::optional<uint64_t> needed_until) {
  const bool was_needed = needed_until.has_value();
  memory_.Insert(std::move(block), needed_until);
  while (true) {
    std::optional<uint64_t> latest;
    bool is_over = false;
    {
      MutexLock lock(&mu_);
      latest = flight->needed_until;
      is_over = !node_ && lent_bytes_ == 0;
    }
    if (latest == needed_until) {
      if (was_needed && !latest && is_over) memory_.Remove(flight->id);
      return;
    }
    needed_until = latest;
    if (latest)
      memory_.Need(flight->id, *latest);
    else
      memory_.Release(flight->id);
  }
}

void BlockCache::NotePrefetched(const FlightPtr& flight) {
  const BlockId& id = flight->id;
  counts_.prefetched_bytes += id.length;
  if (flight->was_read) return;
  // Before others can see it on the disk: whoever reads it takes it off.
  if (node_ || flight->needed_until)
    num_unread_ += unread_.emplace(id, id.length).second ? 1 : 0;
  else
    counts_.unused_bytes += id.length;  // memory does not keep it
}

void BlockCache::AdmitFlight(const FlightPtr& flight) {
  if (!node_) {
    (void)Remove(flight);
    return TellPrefetchers(flight, Fetched::kFetched, OkStatus());
  }
  Status admitted = Status(Code::kUnavailable, "the block is not claimed");
  ExpectedUse use, latest;
  {
    MutexLock lock(&mu_);
    use = flight->use;
  }
  if (flight->claim)
    admitted = flight->claim->Admit(flight->object->version, flight->object->block_bytes,
                                    flight->bytes->data, use, flight->displace);
  flight->claim.reset();
  (void)Remove(flight);
  {
    MutexLock lock(&mu_);
    latest = flight->use;
  }
  if (admitted.ok() && (latest.plan != use.plan || latest.at != use.at))
    node_->SetUse(flight->id, latest);
  TellPrefetchers(flight, admitted.ok() ? Fetched::kFetched : Fetched::kRefused, OkStatus());
}

void BlockCache::EndRun(const RunPtr& run) {
  std::vector<RunPtr> next;
  {
    MutexLock lock(&mu_);
    std::erase(running_, run);
    fetch_bytes_ -= run->length;
    while (!queued_.empty() && (fetch_bytes_ == 0 || fetch_bytes_ + queued_.front()->length <=
                                                         options_.max_fetch_bytes)) {
      fetch_bytes_ += queued_.front()->length;
      running_.push_back(queued_.front());
      next.push_back(std::move(queued_.front()));
      queued_.erase(queued_.begin());
    }
  }
  for (const RunPtr& one : next) SubmitRun(one, false);
}

std::vector<BlockCache::Part> BlockCache::Remove(const FlightPtr& flight) {
  MutexLock lock(&mu_);
  Erase(flight);
  flight_cv_.NotifyAll();
  return std::exchange(flight->parts, {});
}

void BlockCache::Erase(const FlightPtr& flight) {
  auto found = flights_.find(flight->id);
  if (found == flights_.end() || found->second != flight) return;
  flights_.erase(found);
  LetGo(flight->id);
  booked_bytes_ -= BlockCost(flight->id.length);
}

void BlockCache::FailFlight(const FlightPtr& flight, const Status& status) {
  flight->claim.reset();
  std::vector<Part> parts = Remove(flight);
  counts_.misses += parts.size();
  for (const Part& part : parts) Settle(part, status);
  TellPrefetchers(flight, Fetched::kFailed, status);
}

// Only after Remove: nobody can join then.
void BlockCache::TellPrefetchers(const FlightPtr& flight, Fetched how, const Status& status) {
  std::vector<Prefetching> prefetching;
  {
    MutexLock lock(&mu_);
    prefetching.swap(flight->prefetching);
  }
  for (const Prefetching& one : prefetching) (*one.done)(one.place, how, status);
}

// The cache takes nothing: its readers read without it.
void BlockCache::EndFlight(const FlightPtr& flight, std::vector<Part>* stream) {
  std::vector<Part> parts = Remove(flight);
  TellPrefetchers(flight, Fetched::kRefused, OkStatus());
  std::move(parts.begin(), parts.end(), std::back_inserter(*stream));
}

// Reads from the origin exactly what is asked for, straight to where it is wanted. Neighbours of
// one request are read together.
void BlockCache::Stream(std::vector<Part> parts) {
  counts_.misses += parts.size();
  // By where they go: so the parts of a request follow each other.
  std::sort(parts.begin(), parts.end(),
            [](const Part& a, const Part& b) { return std::less<>()(a.out.data(), b.out.data()); });
  std::vector<Part> together;
  auto flush = [&] {
    if (!together.empty()) StreamTogether(std::exchange(together, {}));
  };
  for (Part& part : parts) {
    bool follows = !together.empty() && together.back().request == part.request &&
                   together.back().out.data() + together.back().out.size() == part.out.data();
    if (!follows) flush();
    together.push_back(std::move(part));
  }
  flush();
}

void BlockCache::StreamTogether(std::vector<Part> parts) {
  Begin();
  const std::shared_ptr<Request> request = parts.front().request;
  const CachedObject& object = *request->object;
  size_t bytes = 0;
  for (const Part& part : parts) bytes += part.out.size();
  std::vector<object::GetRequest> gets;
  gets.push_back(MakeGet(object, parts.front().object_offset(),
                         MutableBytes(parts.front().out.data(), bytes)));
  std::vector<object::ObjectStore::GetDone> dones;
  // As above.
  dones.emplace_back(
      [this, bytes, parts = std::move(parts)](Result<object::ObjectInfo> result) mutable {
        Post(WorkQueue::Urgency::kNow,
             [this, bytes, parts = std::move(parts), result = std::move(result)] {
               Streamed(parts, bytes, result);
             });
        End();
      });
  object.origin->SubmitGets(std::move(gets), std::move(dones), request->ctx);
}

void BlockCache::Streamed(const std::vector<Part>& parts, uint64_t bytes,
                          const Result<object::ObjectInfo>& result) {
  counts_.origin_requests += 1;
  if (result.ok()) {
    counts_.origin_bytes += bytes;
    counts_.streamed_bytes += bytes;
  }
  Status status = CheckVersion(*parts.front().request->object, result);
  for (const Part& part : parts) Settle(part, status);
}

}  // namespace headrace::cache
