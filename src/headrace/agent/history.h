// What a process did over time, in bounded memory: fine points of the last hour or so, and coarse
// ones for longer. Plain values and pure logic on the caller's clock; one owner at a time.
#pragma once

#include <array>
#include <cstddef>
#include <deque>
#include <vector>

#include "headrace/base/process_snapshot.h"
#include "headrace/base/stage_timer.h"

namespace headrace::agent {

// What was done in a stretch of time. In single precision, since thousands are kept; shares of what
// the loop and its workers did need no more.
struct HistoryPoint {
  double end_s = 0;   // by the owner's clock
  float seconds = 0;  // length; 0: nothing is known of the stretch
  float batches = 0, samples = 0;
  float input_wait_s = 0, compute_s = 0, save_stall_s = 0;  // of the training loop
  float cpu_s = 0;
  float thread_s = 0;  // of the loader's workers
  float origin_bytes = 0, cache_bytes = 0, saved_bytes = 0;
  std::array<float, kNumStages> busy_s{};  // of the loader's workers in each stage

  // Adds what another stretch has; the later end stays.
  void Add(const HistoryPoint& other);
  // Time of the loop that is accounted for; the shares are of it.
  float loop_s() const { return input_wait_s + compute_s + save_stall_s; }
};

// The point that a difference of two snapshots stands for.
HistoryPoint PointOf(const ProcessSnapshot& between, double end_s);

class History {
 public:
  struct Options {
    size_t fine_points = 1800;  // an hour of looks each 2 s
    double coarse_s = 60;       // length of a coarse point, at least
    size_t coarse_points = 1440;
  };
  explicit History(const Options& options) : options_(options) {}

  // Points come in order of their ends.
  void Add(const HistoryPoint& point);
  // Points that end after `from_s`, oldest first: the fine ones where they reach back that far (but
  // for a tenth), else the coarse ones.
  std::vector<HistoryPoint> Since(double from_s) const;
  size_t size() const { return fine_.size() + coarse_.size(); }

 private:
  const Options options_;
  std::deque<HistoryPoint> fine_, coarse_;
  bool dropped_ = false;  // fine points have been given up
  HistoryPoint open_;     // a coarse point that is being gathered
};

// Gathers points into `count` stretches of equal length from `from_s` to `to_s`, by their middles;
// the ends are those of the stretches. A stretch without a point has a length of 0.
std::vector<HistoryPoint> Gather(const std::vector<HistoryPoint>& points, double from_s,
                                 double to_s, size_t count);

}  // namespace headrace::agent
