#include "headrace/agent/history.h"

#include <algorithm>

namespace headrace::agent {

namespace {

float Seconds(uint64_t ns) { return static_cast<float>(static_cast<double>(ns) * 1e-9); }

}  // namespace

void HistoryPoint::Add(const HistoryPoint& other) {
  end_s = std::max(end_s, other.end_s);
  seconds += other.seconds;
  batches += other.batches;
  samples += other.samples;
  input_wait_s += other.input_wait_s;
  compute_s += other.compute_s;
  save_stall_s += other.save_stall_s;
  cpu_s += other.cpu_s;
  thread_s += other.thread_s;
  origin_bytes += other.origin_bytes;
  cache_bytes += other.cache_bytes;
  saved_bytes += other.saved_bytes;
  for (size_t i = 0; i < kNumStages; ++i) busy_s[i] += other.busy_s[i];
}

HistoryPoint PointOf(const ProcessSnapshot& between, double end_s) {
  auto value = [&between](Metric metric, std::string_view label = "") {
    return static_cast<float>(between.Value(metric, label));
  };
  HistoryPoint point;
  point.end_s = end_s;
  point.seconds = Seconds(between.window_ns);
  point.batches = static_cast<float>(between.batches);
  point.samples = value(Metric::kLoaderSamples);
  point.input_wait_s = Seconds(between.input_wait_ns);
  point.compute_s = Seconds(between.StepNs());
  point.save_stall_s = Seconds(between.between_batches_ns - between.StepNs());
  point.cpu_s = value(Metric::kProcessCpuSeconds);
  // Where there is a cache, what it did not have came from the origin; else all that stores gave.
  point.origin_bytes = between.Has(Metric::kCacheMisses) ? value(Metric::kCacheOriginBytes)
                                                         : value(Metric::kStoreReadBytes);
  point.cache_bytes =
      value(Metric::kCacheReadBytes, "memory") + value(Metric::kCacheReadBytes, "disk");
  point.saved_bytes = value(Metric::kCheckpointWrittenBytes);
  if (const PoolSnapshot* workers = between.FindPool("loader"))
    point.thread_s = Seconds(workers->thread_ns);
  for (size_t i = 0; i < kNumStages; ++i)
    if (const StageSnapshot* stage = between.FindStage("loader", StageName(static_cast<Stage>(i))))
      point.busy_s[i] = Seconds(stage->busy_ns);
  return point;
}

void History::Add(const HistoryPoint& point) {
  fine_.push_back(point);
  if (fine_.size() > options_.fine_points) {
    fine_.pop_front();
    dropped_ = true;
  }
  open_.Add(point);
  if (open_.seconds < static_cast<float>(options_.coarse_s)) return;
  coarse_.push_back(open_);
  open_ = HistoryPoint();
  if (coarse_.size() > options_.coarse_points) coarse_.pop_front();
}

std::vector<HistoryPoint> History::Since(double from_s) const {
  // Missing a tenth at the beginning is better than seeing all of it coarse.
  constexpr double kSlack = 0.1;
  const bool reaches = !dropped_ || fine_.empty() ||
                       fine_.front().end_s - fine_.front().seconds <=
                           from_s + kSlack * std::max(0.0, fine_.back().end_s - from_s);
  const std::deque<HistoryPoint>& points = reaches ? fine_ : coarse_;
  std::vector<HistoryPoint> found;
  for (const HistoryPoint& point : points)
    if (point.end_s > from_s) found.push_back(point);
  if (!reaches && open_.seconds > 0 && open_.end_s > from_s) found.push_back(open_);
  return found;
}

std::vector<HistoryPoint> Gather(const std::vector<HistoryPoint>& points, double from_s,
                                 double to_s, size_t count) {
  std::vector<HistoryPoint> gathered(count);
  const double length = (to_s - from_s) / static_cast<double>(count);
  if (!(length > 0)) return gathered;
  for (const HistoryPoint& point : points) {
    const double at = (point.end_s - point.seconds / 2 - from_s) / length;
    if (at < 0 || at >= static_cast<double>(count)) continue;
    gathered[static_cast<size_t>(at)].Add(point);
  }
  for (size_t i = 0; i < count; ++i)
    gathered[i].end_s = from_s + length * static_cast<double>(i + 1);
  return gathered;
}

}  // namespace headrace::agent
