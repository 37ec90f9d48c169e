// A trace of what this process does, event by event, for a window of time. Off, and then each
// border between two stages costs one load, until somebody opens a window.
//
// Events go into one ring, which is made when the first window opens, and stays. Who writes takes
// no lock, waits for nobody and allocates nothing; who reads too late finds the oldest events
// overwritten, and is told how many. Thread-safe, and after a fork as before it.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "headrace/base/status.h"

namespace headrace {

enum class TraceKind : uint8_t {
  kBusy,       // a lane worked in a stage
  kWait,       // a lane was held up in a stage
  kRequest,    // a request to an object store; the stage that it is of
  kBatch,      // planned, admitted, loaded, delivered
  kPython,     // transforms in Python
  kSaveStall,  // a save held up the training loop
  kSave,       // handed in, begun, written, published
  kSaveLevel,  // from the call until somebody learned that it had reached a level
};
inline constexpr size_t kNumTraceKinds = 8;

// What a lane's thread is one of.
enum class TracePool : uint8_t { kOther, kLoader, kConsumer };
inline constexpr size_t kNumTracePools = 3;

inline constexpr uint64_t kNoTraceId = UINT64_MAX;

struct TraceEvent {
  TraceKind kind{};
  uint8_t detail = 0;  // the Stage; of kSaveLevel the level, from 0 for memory to 3 for remote
  TracePool pool{};
  uint32_t lane = 0;         // of kBusy and kWait: whose work. Events of a lane do not overlap
  uint64_t id = kNoTraceId;  // TraceBatchId of what was worked on; the step of a save
  uint64_t amount = 0;       // bytes; of kBatch samples
  // By NowNanos: begin, two borders between its parts (0: none, or not known), end.
  std::array<uint64_t, 4> times{};
};

constexpr uint64_t TraceBatchId(uint64_t epoch, uint64_t index) { return epoch << 32 | index; }

// What a reader found.
struct TraceChunk {
  std::vector<TraceEvent> events;
  uint64_t next = 0;  // where to go on
  uint64_t lost = 0;  // overwritten before they were read
};

class TraceRing {
 public:
  static constexpr size_t kCapacity = size_t{1} << 17;  // of 64 bytes
  // A power of two.
  explicit TraceRing(size_t capacity = kCapacity);

  // Any thread.
  void Write(const TraceEvent& event);
  // The number of the next event.
  uint64_t next() const { return next_.load(std::memory_order_acquire); }
  // The events from number `from` on, at most `limit` of them. Stops before one that is being
  // written; when `settled`, such an event is lost, since nobody writes any more.
  TraceChunk Read(uint64_t from, size_t limit, bool settled) const;

 private:
  static constexpr size_t kWords = 7;
  // One cache line. state: 2n + 1 while event n is written, 2n + 2 when it is there.
  struct alignas(64) Slot {
    std::atomic<uint64_t> state{0};
    std::array<std::atomic<uint64_t>, kWords> words{};
  };
  enum class Found { kWhole, kUnfinished, kGone };
  Found Copy(uint64_t number, TraceEvent* event) const;

  std::vector<Slot> slots_;
  const uint64_t mask_;
  std::atomic<uint64_t> next_{0};
};

namespace trace_internal {
inline std::atomic<uint32_t> windows{0};
}  // namespace trace_internal

inline bool TraceIsOn() { return trace_internal::windows.load(std::memory_order_relaxed) != 0; }

// Keeps the event if the trace is on.
void Trace(const TraceEvent& event);
// Work that runs beside other work: requests, saves.
void TraceInterval(TraceKind kind, uint8_t detail, uint64_t ns, uint64_t amount,
                   uint64_t id = kNoTraceId);
// A number that no other lane of this process has.
uint32_t NextTraceLane();

// The trace is on while one of these is there.
class TraceWindow {
 public:
  // kResourceExhausted: no memory for the ring.
  static Result<TraceWindow> Open();
  ~TraceWindow();
  TraceWindow(TraceWindow&& other) noexcept;
  TraceWindow(const TraceWindow&) = delete;
  TraceWindow& operator=(const TraceWindow&) = delete;

  uint64_t begin_ns() const { return begin_ns_; }
  // Closes it, and returns what happened in it, as far as the ring still has it.
  TraceChunk Close();

 private:
  TraceWindow(uint64_t first, uint64_t begin_ns) : first_(first), begin_ns_(begin_ns) {}
  bool open_ = true;
  uint64_t first_, begin_ns_;
};

// Keeps the trace on until `length` from now, or longer where more was asked for: for those who ask
// from outside and may die meanwhile. Returns the number of the next event. kResourceExhausted.
Result<uint64_t> KeepTraceOn(std::chrono::nanoseconds length);
// What TraceRing::Read finds in this process's ring; nothing where no trace was ever on.
TraceChunk ReadTrace(uint64_t from, size_t limit);

}  // namespace headrace
