#include "headrace/doctor/snapshot_window.h"

#include <algorithm>
#include <cmath>

namespace headrace::doctor {
namespace {

double Seconds(uint64_t ns) { return static_cast<double>(ns) * 1e-9; }

// Whatever a record says, no count is beyond what a number can hold.
uint64_t Count(double value) {
  constexpr double kMost = 1e18;
  return value > 0 ? static_cast<uint64_t>(std::min(value, kMost)) : 0;
}

StageTotals TotalsOf(const ProcessSnapshot& snapshot, std::string_view pool, Stage stage) {
  StageTotals totals;
  const StageSnapshot* found = snapshot.FindStage(pool, StageName(stage));
  if (found == nullptr) return totals;
  totals.busy_ns = found->busy_ns;
  totals.wait_ns = found->wait_ns;
  totals.bytes = found->bytes;
  totals.count = found->count;
  totals.histogram = found->durations;
  totals.waits = found->waits;
  return totals;
}

// Moves the slowest reads, the share `share` of them, to `slow`.
void MoveSlowest(double share, StageTotals* reads, StageTotals* slow) {
  const uint64_t total = reads->histogram.Total();
  uint64_t wanted = Count(std::round(share * static_cast<double>(total)));
  double all_s = 0, moved_s = 0;
  // The middle of a bucket on its log scale; only the ratio of the sums is used.
  auto middle = [](size_t bucket) { return std::exp2(static_cast<double>(bucket) + 0.5); };
  for (size_t i = 0; i < LogHistogram::kBuckets; ++i)
    all_s += static_cast<double>(reads->histogram[i]) * middle(i);
  for (size_t i = LogHistogram::kBuckets; i-- > 0 && wanted > 0;) {
    const uint64_t moved = std::min(wanted, reads->histogram[i]);
    reads->histogram.counts[i] -= moved;
    slow->histogram.counts[i] += moved;
    slow->count += moved;
    moved_s += static_cast<double>(moved) * middle(i);
    wanted -= moved;
  }
  if (all_s <= 0) return;
  const uint64_t ns = Count(static_cast<double>(reads->busy_ns) * (moved_s / all_s));
  const uint64_t bytes = Count(static_cast<double>(reads->bytes) * share);
  slow->busy_ns += std::min(ns, reads->busy_ns);
  slow->bytes += std::min(bytes, reads->bytes);
  reads->busy_ns -= std::min(ns, reads->busy_ns);
  reads->bytes -= std::min(bytes, reads->bytes);
  reads->count -= std::min(reads->count, slow->count);
}

void SplitReads(const ProcessSnapshot& between, Window* window) {
  const double cached = between.Value(Metric::kCacheReadBytes, "memory") +
                        between.Value(Metric::kCacheReadBytes, "disk");
  const bool has_cache = between.Has(Metric::kCacheMisses);
  const double origin =
      has_cache ? between.Value(Metric::kCacheOriginBytes) : between.Value(Metric::kStoreReadBytes);
  window->origin_bytes = Count(origin);
  window->cache_hit_bytes = Count(cached);
  StageTotals& reads = window->stages[static_cast<size_t>(Stage::kRead)];
  StageTotals& fetches = window->stages[static_cast<size_t>(Stage::kFetch)];
  if (origin > 0) {
    const double all = has_cache ? origin + cached : static_cast<double>(reads.bytes);
    MoveSlowest(all > 0 ? std::min(1.0, origin / all) : 1, &reads, &fetches);
  }
  if (has_cache) std::swap(reads, window->stages[static_cast<size_t>(Stage::kCache)]);
}

}  // namespace

Window WindowOf(const ProcessSnapshot& between, double start_s) {
  Window window;
  window.start_s = start_s;
  window.seconds = Seconds(between.window_ns);
  const PoolSnapshot* pool = between.FindPool("loader");
  if (pool != nullptr) window.threads = static_cast<uint32_t>(pool->threads);
  window.samples = Count(between.Value(Metric::kLoaderSamples));
  window.batches = between.batches;
  double computing_s = 0;
  for (size_t i = 0; i < kNumStages; ++i) {
    const auto stage = static_cast<Stage>(i);
    if (stage == Stage::kQueue || stage == Stage::kStep || stage == Stage::kCopy) continue;
    window.stages[i] = TotalsOf(between, "loader", stage);
    const bool computes = stage == Stage::kChecksum || stage == Stage::kDecode ||
                          stage == Stage::kTransform || stage == Stage::kCollate;
    if (computes) computing_s += Seconds(window.stages[i].busy_ns);
  }
  SplitReads(between, &window);
  window.input_wait_s = Seconds(between.input_wait_ns);
  window.save_stall_s = Seconds(between.save_stall_ns);
  window.python_s = Seconds(TotalsOf(between, "python", Stage::kTransform).busy_ns);
  window.step_s = std::max(0.0, Seconds(between.StepNs()) - window.python_s);
  // A save that ended tells its time then, also of the windows before.
  const StageTotals saves = TotalsOf(between, "checkpoint", Stage::kCopy);
  if (saves.count > 0 || window.save_stall_s > 0)
    window.saving_s =
        std::min(window.seconds, std::max(Seconds(saves.busy_ns), window.save_stall_s));
  window.cpu_s = between.Value(Metric::kProcessCpuSeconds);
  if (between.Has(Metric::kProcessRunDelaySeconds))
    window.run_delay_s = between.Value(Metric::kProcessRunDelaySeconds);
  else if (window.cpu_s > 0)
    window.run_delay_s = std::max(0.0, computing_s - window.cpu_s);
  window.throttled_s = between.Value(Metric::kCgroupThrottledSeconds);
  for (const char* kind : {"get", "head", "list"})
    window.requests += Count(between.Value(Metric::kStoreRequests, kind));
  window.refused_requests = Count(between.Value(Metric::kStoreThrottled));
  // Several requests of a read wait beside each other, and some are no worker's.
  window.back_off_s =
      std::min(between.Value(Metric::kStoreBackOffSeconds), window.busy_s(Stage::kFetch));
  window.knows_device = between.Has(Metric::kProcessDeviceReadBytes);
  window.device_bytes = Count(between.Value(Metric::kProcessDeviceReadBytes));
  window.wall_clock_ns = between.end_unix_ns;
  for (const SourceSnapshot& one : between.sources)
    window.sources.push_back({one.name, one.reads, one.bytes, Seconds(one.busy_ns)});
  return window;
}

void AddJobFacts(const ProcessSnapshot& between, JobFacts* job) {
  job->world_size =
      static_cast<uint32_t>(std::clamp<uint64_t>(between.world_size, 1, uint64_t{1} << 24));
  job->has_cache = job->has_cache || between.Has(Metric::kCacheMisses);
  // A rank knows what it reads itself. The others with which it shares the cache read as much each.
  const double limit = between.Value(Metric::kCacheLimitBytes);
  const double share = between.Value(Metric::kCacheShareBytes);
  const double epoch = between.Value(Metric::kCacheEpochBytes);
  if (limit > 0) job->cache_limit_bytes = Count(limit);
  if (epoch > 0) job->epoch_bytes = Count(share > 0 ? epoch * (limit / share) : epoch);
  const uint64_t requests = Count(between.Value(Metric::kCachePrefetchRequestLimit));
  if (requests > 0)
    job->request_limit = static_cast<uint32_t>(std::min<uint64_t>(requests, 1 << 20));
  const MetricInfo& decodes = InfoOf(Metric::kLoaderDecodes);
  for (std::string_view path : decodes.label_values) {
    const uint64_t count = Count(between.Value(Metric::kLoaderDecodes, path));
    job->images += count;
    if (path != "seek_points") job->images_without_seek_points += count;
    if (path == "progressive") job->progressive_images += count;
  }
}

}  // namespace headrace::doctor
