// Busy time, wait time, bytes and counts of the stages of a batch, with a log-scale histogram.
// Each thread owns a StageRecorder and writes it without locks; anyone may read it at any time (the
// figures of a reader may be some nanoseconds apart from each other, never torn). While a trace is
// on (trace_ring.h), each event goes into it, too.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <string_view>

#include "headrace/base/log_histogram.h"
#include "headrace/base/trace_ring.h"

namespace headrace {

// The stages of a batch, in the order in which a sample passes them.
enum class Stage : uint8_t {
  kPlan,
  kMeta,
  kFetch,
  kCache,
  kRead,
  kChecksum,
  kDecode,
  kTransform,
  kCollate,
  kQueue,
  kCopy,
  kStep,
};
inline constexpr size_t kNumStages = 12;
std::string_view StageName(Stage stage);

// Totals of one stage. Times in nanoseconds.
struct StageTotals {
  uint64_t busy_ns = 0;
  uint64_t wait_ns = 0;
  uint64_t bytes = 0;
  uint64_t count = 0;
  LogHistogram histogram;  // busy time of each event
  LogHistogram waits;      // each wait
  void Add(const StageTotals& other);
  uint64_t Percentile(double q) const { return histogram.Percentile(q); }
};
using StageReport = std::array<StageTotals, kNumStages>;

// Times that are booked here must not overlap: then busy and wait of all stages are never more than
// the time the thread lived, and what is left over is idle (ProcessSnapshot).
class StageRecorder {
 public:
  explicit StageRecorder(TracePool pool = TracePool::kOther) : pool_(pool) {}

  // Adds one event, which ended at `end_ns` by NowNanos, 0: now. Only a trace asks when. Only the
  // owning thread calls this.
  void Busy(Stage stage, uint64_t ns, uint64_t bytes = 0, uint64_t end_ns = 0);
  void Wait(Stage stage, uint64_t ns, uint64_t end_ns = 0);
  // What the thread works on from now on, for a trace. Only it calls this.
  void SetItem(uint64_t id) { item_ = id; }
  // The thread begins and ends its work, by the clock of its events; once each. Only it calls this.
  void Begin(uint64_t now) { begun_ns_.store(now, std::memory_order_relaxed); }
  void End(uint64_t now) { ended_ns_.store(now, std::memory_order_release); }
  // Adds this recorder's figures to `report`. Any thread.
  void AddTo(StageReport* report) const;
  // How long the thread has lived at `now`; 0 when it has not begun. Read the figures before the
  // clock: then they are never more than this.
  uint64_t LifeNs(uint64_t now) const;
  bool IsLive() const;

 private:
  struct Cell {
    std::atomic<uint64_t> busy_ns{0}, wait_ns{0}, bytes{0}, count{0};
    std::array<std::atomic<uint64_t>, LogHistogram::kBuckets> histogram{}, waits{};
  };
  void TraceEnd(TraceKind kind, Stage stage, uint64_t ns, uint64_t bytes, uint64_t end_ns);

  std::array<Cell, kNumStages> cells_;
  std::atomic<uint64_t> begun_ns_{0}, ended_ns_{0};  // 0: not yet
  // Of the owning thread alone, for traces.
  const TracePool pool_;
  uint32_t lane_ = 0;  // 0: not in a trace yet
  uint64_t item_ = kNoTraceId;
  uint64_t traced_until_ns_ = 0;
};

// The same for events of any number of threads at once: requests that run beside each other.
class SharedStageRecorder {
 public:
  void Busy(Stage stage, uint64_t ns, uint64_t bytes = 0);
  void AddTo(StageReport* report) const;

 private:
  struct Cell {
    std::atomic<uint64_t> busy_ns{0}, bytes{0}, count{0};
    std::array<std::atomic<uint64_t>, LogHistogram::kBuckets> histogram{};
  };
  std::array<Cell, kNumStages> cells_;
};

inline uint64_t NowNanos() {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                   std::chrono::steady_clock::now().time_since_epoch())
                                   .count());
}

// Times the stages that follow each other in one thread with one clock read per border.
class StageClock {
 public:
  using Now = uint64_t (*)();
  explicit StageClock(StageRecorder* recorder, Now now = &NowNanos)
      : recorder_(recorder), now_(now) {
    Restart();
  }
  void Restart() { last_ = recorder_ ? now_() : 0; }
  // Books the time since the last border to `stage`. No effect without a recorder.
  void Lap(Stage stage, uint64_t bytes = 0) {
    if (!recorder_) return;
    uint64_t now = now_();
    recorder_->Busy(stage, now - last_, bytes, now);
    last_ = now;
  }
  // The last border.
  uint64_t last() const { return last_; }

 private:
  StageRecorder* recorder_;  // not owned; may be null
  Now now_;
  uint64_t last_;
};

}  // namespace headrace
