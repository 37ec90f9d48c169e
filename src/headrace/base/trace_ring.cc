#include "headrace/base/trace_ring.h"

#include <algorithm>
#include <new>
#include <utility>

#include "headrace/base/stage_timer.h"

namespace headrace {

namespace {

// Made once and never destroyed: a thread may be writing its last event at any time.
std::atomic<TraceRing*> the_ring{nullptr};
std::atomic<uint64_t> kept_until_ns{0};  // counts as a window while it is not 0
std::atomic<uint32_t> last_lane{0};

Result<TraceRing*> MakeRing() {
  TraceRing* ring = the_ring.load(std::memory_order_acquire);
  if (ring != nullptr) return ring;
  try {
    auto* made = new TraceRing();
    if (the_ring.compare_exchange_strong(ring, made, std::memory_order_acq_rel)) return made;
    delete made;  // another thread was faster
    return ring;
  } catch (const std::bad_alloc&) {
    return Error(Code::kResourceExhausted, "no memory for a trace");
  }
}

// Nobody has renewed what KeepTraceOn gave.
void EndIfOver(uint64_t now) {
  uint64_t until = kept_until_ns.load(std::memory_order_relaxed);
  if (until != 0 && now > until && kept_until_ns.compare_exchange_strong(until, 0))
    trace_internal::windows.fetch_sub(1);
}

uint64_t Packed(const TraceEvent& event) {
  return static_cast<uint64_t>(event.kind) | uint64_t{event.detail} << 8 |
         static_cast<uint64_t>(event.pool) << 16 | uint64_t{event.lane} << 32;
}

}  // namespace

TraceRing::TraceRing(size_t capacity) : slots_(capacity), mask_(capacity - 1) {}

// The fields are atomic, so that a reader who comes in between reads old or new ones, and sees by
// the state that it must not take them. Stored with release and loaded with acquire, a new field
// brings the new state with it.
void TraceRing::Write(const TraceEvent& event) {
  const uint64_t number = next_.fetch_add(1, std::memory_order_relaxed);
  Slot& slot = slots_[number & mask_];
  const uint64_t writing = 2 * number + 1;
  uint64_t state = slot.state.load(std::memory_order_relaxed);
  // Held up for a whole round of the ring, or another thread is: this event is lost.
  if (state % 2 == 1 || state > writing ||
      !slot.state.compare_exchange_strong(state, writing, std::memory_order_acquire))
    return;
  std::array<uint64_t, kWords> words{Packed(event), event.id, event.amount};
  std::copy(event.times.begin(), event.times.end(), words.begin() + 3);
  for (size_t i = 0; i < kWords; ++i) slot.words[i].store(words[i], std::memory_order_release);
  slot.state.store(writing + 1, std::memory_order_release);
}

TraceRing::Found TraceRing::Copy(uint64_t number, TraceEvent* event) const {
  const Slot& slot = slots_[number & mask_];
  const uint64_t there = 2 * number + 2;
  const uint64_t state = slot.state.load(std::memory_order_acquire);
  if (state != there) return state < there ? Found::kUnfinished : Found::kGone;
  std::array<uint64_t, kWords> words;
  for (size_t i = 0; i < kWords; ++i) words[i] = slot.words[i].load(std::memory_order_acquire);
  if (slot.state.load(std::memory_order_relaxed) != there) return Found::kGone;
  event->kind = static_cast<TraceKind>(words[0] & 0xff);
  event->detail = static_cast<uint8_t>(words[0] >> 8);
  event->pool = static_cast<TracePool>(words[0] >> 16 & 0xff);
  event->lane = static_cast<uint32_t>(words[0] >> 32);
  event->id = words[1];
  event->amount = words[2];
  std::copy(words.begin() + 3, words.end(), event->times.begin());
  return Found::kWhole;
}

TraceChunk TraceRing::Read(uint64_t from, size_t limit, bool settled) const {
  TraceChunk chunk;
  const uint64_t end = next(), capacity = slots_.size();
  uint64_t at = std::min(from, end);
  if (end - at > capacity) {
    chunk.lost = end - at - capacity;
    at = end - capacity;
  }
  for (; at < end && chunk.events.size() < limit; ++at) {
    TraceEvent event;
    const Found found = Copy(at, &event);
    // One that never comes (see Write) holds a reader up for half a round.
    if (found == Found::kUnfinished && !settled && end - at < capacity / 2) break;
    if (found == Found::kWhole)
      chunk.events.push_back(event);
    else
      ++chunk.lost;
  }
  chunk.next = at;
  return chunk;
}

void Trace(const TraceEvent& event) {
  if (!TraceIsOn()) return;
  TraceRing* ring = the_ring.load(std::memory_order_acquire);
  if (ring == nullptr) return;
  ring->Write(event);
  EndIfOver(event.times[3]);
}

void TraceInterval(TraceKind kind, uint8_t detail, uint64_t ns, uint64_t amount, uint64_t id) {
  if (!TraceIsOn()) return;
  const uint64_t now = NowNanos();
  TraceEvent event;
  event.kind = kind;
  event.detail = detail;
  event.id = id;
  event.amount = amount;
  event.times = {now - std::min(now, ns), 0, 0, now};
  Trace(event);
}

uint32_t NextTraceLane() { return last_lane.fetch_add(1, std::memory_order_relaxed) + 1; }

Result<TraceWindow> TraceWindow::Open() {
  HR_ASSIGN_OR_RETURN(TraceRing * ring, MakeRing());
  TraceWindow window(ring->next(), NowNanos());
  trace_internal::windows.fetch_add(1);
  return window;
}

TraceWindow::TraceWindow(TraceWindow&& other) noexcept
    : open_(std::exchange(other.open_, false)), first_(other.first_), begin_ns_(other.begin_ns_) {}

TraceWindow::~TraceWindow() {
  if (open_) trace_internal::windows.fetch_sub(1);
}

TraceChunk TraceWindow::Close() {
  if (std::exchange(open_, false)) trace_internal::windows.fetch_sub(1);
  return the_ring.load(std::memory_order_acquire)->Read(first_, SIZE_MAX, /*settled=*/true);
}

Result<uint64_t> KeepTraceOn(std::chrono::nanoseconds length) {
  HR_ASSIGN_OR_RETURN(TraceRing * ring, MakeRing());
  const uint64_t first = ring->next();
  const uint64_t wanted = NowNanos() + static_cast<uint64_t>(std::max<int64_t>(length.count(), 0));
  uint64_t until = kept_until_ns.load();
  while (until < wanted && !kept_until_ns.compare_exchange_weak(until, wanted)) {
  }
  if (until == 0) trace_internal::windows.fetch_add(1);
  return first;
}

TraceChunk ReadTrace(uint64_t from, size_t limit) {
  const TraceRing* ring = the_ring.load(std::memory_order_acquire);
  return ring == nullptr ? TraceChunk() : ring->Read(from, limit, /*settled=*/false);
}

}  // namespace headrace
