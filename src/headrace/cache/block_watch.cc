// What BlockCache looks after from time to time: blocks that another process fetches, readers whose
// time is up, and requests that are late.
#include <algorithm>

#include "headrace/base/stage_timer.h"
#include "headrace/cache/block_cache.h"
#include "headrace/cache/block_flight.h"

namespace headrace::cache {

void BlockCache::Watch() {
  // More time between where more is waited for: asking costs about as much for each block.
  constexpr auto kAskEvery = std::chrono::microseconds(2000);
  constexpr auto kAskEveryForEach = std::chrono::microseconds(250);
  constexpr auto kLookEvery = std::chrono::milliseconds(20);
  auto next_ask = Context::Clock::now();
  while (true) {
    {
      MutexLock lock(&mu_);
      if (!watch_ends_ && !waiting_.empty()) {
        auto wait = next_ask - Context::Clock::now();
        if (wait.count() > 0) watch_cv_.WaitFor(&mu_, wait);
      } else if (!watch_ends_ && (!flights_.empty() || ahead_.num_waiters() > 0)) {
        watch_cv_.WaitFor(&mu_, kLookEvery);
      } else {
        while (!watch_ends_ && flights_.empty() && waiting_.empty() && ahead_.num_waiters() == 0)
          watch_cv_.Wait(&mu_);
      }
      if (watch_ends_) return;
    }
    if (Context::Clock::now() >= next_ask) {
      size_t waiting = AskAgain();
      next_ask = Context::Clock::now() + kAskEvery + waiting * kAskEveryForEach;
    }
    EndExpired();
    HedgeLate();
  }
}

// Blocks that another process was fetching: they are here, or free because it has died, or still
// being fetched. Returns for how many was asked.
size_t BlockCache::AskAgain() {
  std::vector<FlightPtr> waiting;
  {
    MutexLock lock(&mu_);
    waiting.swap(waiting_);
  }
  if (waiting.empty()) return 0;
  uint64_t now_ms = NowNanos() / 1'000'000;
  std::vector<FlightPtr> ours;
  std::vector<Part> stream;
  for (const FlightPtr& flight : waiting) {
    bool wanted;
    uint64_t since;
    {
      MutexLock lock(&mu_);
      wanted = !flight->parts.empty() || !flight->prefetching.empty();
      since = flight->waiting_since_ms;
      if (!wanted) Erase(flight);
    }
    if (!wanted) continue;
    if (stopping_) {
      FailFlight(flight, Status(Code::kCancelled, "the cache is being closed"));
    } else if (now_ms - since > options_.patience_ms) {
      EndFlight(flight, &stream);
    } else if (ClaimFlight(flight, &stream)) {
      ours.push_back(flight);
    }
  }
  if (!ours.empty()) FetchTogether(std::move(ours));
  if (!stream.empty()) Stream(std::move(stream));
  return waiting.size();
}

// The fetch goes on without them: others may want the block.
void BlockCache::EndExpired() {
  std::vector<std::pair<Part, Status>> expired;
  {
    MutexLock lock(&mu_);
    for (auto& [id, flight] : flights_) {
      std::erase_if(flight->parts, [&](Part& part) {
        Status status = part.request->ctx.Check();
        if (status.ok()) return false;
        expired.emplace_back(std::move(part), std::move(status));
        return true;
      });
    }
  }
  counts_.misses += expired.size();
  for (auto& [part, status] : expired) Settle(part, std::move(status));
  ahead_.EndExpired();
}

// Asks a second time where readers wait for longer than nearly all answers took.
void BlockCache::HedgeLate() {
  if (!options_.hedge || stopping_) return;
  std::vector<RunPtr> late;
  {
    MutexLock lock(&mu_);
    std::optional<uint64_t> usual_us = latency_.Get();
    if (!usual_us) return;
    uint64_t now = NowNanos();
    for (const RunPtr& run : running_) {
      bool waited_for = std::any_of(run->flights.begin(), run->flights.end(),
                                    [](const FlightPtr& f) { return !f->parts.empty(); });
      bool is_late = run->open > 0 && now - run->submitted_ns > *usual_us * 1000;
      if (run->decided || run->hedged || !waited_for || !is_late) continue;
      run->hedged = true;
      late.push_back(run);
      counts_.hedges += 1;
    }
  }
  for (const RunPtr& run : late) SubmitRun(run, true);
}

}  // namespace headrace::cache
