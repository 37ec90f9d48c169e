// Busy time, wait time, bytes and counts of the stages of a batch, with a log-scale histogram.
// Each thread owns a StageRecorder and writes it without locks; anyone may read it at any time (the
// figures of a reader may be some nanoseconds apart from each other, never torn).
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <string_view>

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

// Totals of one stage. Times in nanoseconds. histogram[i] counts durations in [2^i, 2^(i+1)) ns.
struct StageTotals {
  uint64_t busy_ns = 0;
  uint64_t wait_ns = 0;
  uint64_t bytes = 0;
  uint64_t count = 0;
  std::array<uint64_t, 40> histogram{};
  void Add(const StageTotals& other);
  // Returns the duration in ns below which the fraction `q` (0 to 1) of the events lies: the upper
  // edge of the bucket; 0 without events. The last bucket also holds what is longer.
  uint64_t Percentile(double q) const;
};
using StageReport = std::array<StageTotals, kNumStages>;

class StageRecorder {
 public:
  // Adds one event. Only the owning thread calls this.
  void Busy(Stage stage, uint64_t ns, uint64_t bytes = 0);
  void Wait(Stage stage, uint64_t ns);
  // Adds this recorder's figures to `report`. Any thread.
  void AddTo(StageReport* report) const;

 private:
  struct Cell {
    std::atomic<uint64_t> busy_ns{0}, wait_ns{0}, bytes{0}, count{0};
    std::array<std::atomic<uint64_t>, 40> histogram{};
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
  explicit StageClock(StageRecorder* recorder) : recorder_(recorder) { Restart(); }
  void Restart() { last_ = recorder_ ? NowNanos() : 0; }
  // Books the time since the last border to `stage`. No effect without a recorder.
  void Lap(Stage stage, uint64_t bytes = 0) {
    if (!recorder_) return;
    uint64_t now = NowNanos();
    recorder_->Busy(stage, now - last_, bytes);
    last_ = now;
  }

 private:
  StageRecorder* recorder_;  // not owned; may be null
  uint64_t last_;
};

}  // namespace headrace
