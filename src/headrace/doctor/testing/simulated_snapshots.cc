#include "headrace/doctor/testing/simulated_snapshots.h"

#include <algorithm>

#include "headrace/base/metrics.h"

namespace headrace::doctor::testing {
namespace {

constexpr int64_t kBeginUnixNs = 1'700'000'000'000'000'000;

uint64_t Ns(double seconds) { return seconds > 0 ? static_cast<uint64_t>(seconds * 1e9) : 0; }

void AddMetrics(const Window& window, bool has_cache, ProcessSnapshot* snapshot) {
  snapshot->AddMetric(Metric::kLoaderSamples, static_cast<double>(window.samples));
  snapshot->AddMetric(Metric::kProcessCpuSeconds, window.cpu_s);
  snapshot->AddMetric(Metric::kStoreRequests, static_cast<double>(window.requests), "get");
  snapshot->AddMetric(Metric::kStoreThrottled, static_cast<double>(window.refused_requests));
  snapshot->AddMetric(Metric::kStoreBackOffSeconds, window.back_off_s);
  snapshot->AddMetric(Metric::kProcessDeviceReadBytes, static_cast<double>(window.device_bytes));
  const auto origin = static_cast<double>(window.origin_bytes);
  if (!has_cache) {
    snapshot->AddMetric(Metric::kStoreReadBytes, origin);
    return;
  }
  snapshot->AddMetric(Metric::kCacheMisses, 1);
  snapshot->AddMetric(Metric::kCacheOriginBytes, origin);
  snapshot->AddMetric(Metric::kCacheReadBytes, static_cast<double>(window.cache_hit_bytes), "disk");
}

void AddSources(const Window& window, ProcessSnapshot* snapshot) {
  for (const SourceTotals& source : window.sources) {
    auto same = std::find_if(snapshot->sources.begin(), snapshot->sources.end(),
                             [&](const SourceSnapshot& one) { return one.name == source.name; });
    if (same == snapshot->sources.end())
      same = snapshot->sources.insert(same, SourceSnapshot{source.name, 0, 0, 0});
    same->reads += source.reads;
    same->bytes += source.bytes;
    same->busy_ns += Ns(source.seconds);
  }
}

void AddWindow(const Window& window, bool has_cache, ProcessSnapshot* snapshot) {
  StageReport report = window.stages;
  // A loader's workers cannot tell where the bytes of a read came from.
  StageTotals& reads = report[static_cast<size_t>(Stage::kRead)];
  for (Stage stage : {Stage::kFetch, Stage::kCache}) {
    reads.Add(report[static_cast<size_t>(stage)]);
    report[static_cast<size_t>(stage)] = {};
  }
  snapshot->AddPool({"loader", 0, Ns(window.seconds * window.threads)}, report);
  for (PoolSnapshot& pool : snapshot->pools) pool.threads = window.threads;
  StageReport of_python{};
  StageTotals& python = of_python[static_cast<size_t>(Stage::kTransform)];
  python.busy_ns = Ns(window.python_s);
  python.count = window.python_s > 0 ? window.batches : 0;
  snapshot->AddPool({"python", 0, 0}, of_python);
  snapshot->input_wait_ns += Ns(window.input_wait_s);
  snapshot->between_batches_ns += Ns(window.step_s + window.python_s + window.save_stall_s);
  snapshot->save_stall_ns += Ns(window.save_stall_s);
  snapshot->batches += window.batches;
  AddSources(window, snapshot);
  AddMetrics(window, has_cache, snapshot);
}

}  // namespace

std::vector<ProcessSnapshot> SnapshotsOf(const RankRun& rank) {
  ProcessSnapshot now;
  now.job = "simulated";
  now.rank = rank.rank;
  now.world_size = rank.job.world_size;
  now.host = rank.node;
  now.begin_unix_ns = now.end_unix_ns = kBeginUnixNs;
  now.AddMetric(Metric::kProcessCpus, rank.machine.cpus);
  std::vector<ProcessSnapshot> all{now};
  for (const Window& window : rank.windows) {
    AddWindow(window, rank.job.has_cache, &now);
    now.window_ns += Ns(window.seconds);
    now.end_unix_ns = window.wall_clock_ns;
    all.push_back(now);
  }
  return all;
}

}  // namespace headrace::doctor::testing
