#include "headrace/loader/loader_snapshot.h"

namespace headrace::loader {

namespace {

// The cache's own counters are of the process, not of the loader: who watches the process adds them
// once (agent/process_watch.h). Memory alone is no cache of the node: nothing of it stays.
void AddPlan(const CacheStats& cache, ProcessSnapshot* snapshot) {
  if (!cache.has_cache || cache.in_memory) return;
  snapshot->AddMetric(Metric::kCacheEpochBytes, static_cast<double>(cache.epoch_bytes));
  if (cache.expected_origin_bytes)
    snapshot->AddMetric(Metric::kCacheEpochMissingBytes,
                        static_cast<double>(*cache.expected_origin_bytes));
  // Another loader of the process has the same cache.
  if (cache.limit_bytes > 0 && !snapshot->Has(Metric::kCacheLimitBytes)) {
    snapshot->AddMetric(Metric::kCacheLimitBytes, static_cast<double>(cache.limit_bytes));
    snapshot->AddMetric(Metric::kCacheShareBytes, static_cast<double>(cache.share_bytes));
  }
  snapshot->AddMetric(Metric::kCachePrefetchRequestLimit,
                      static_cast<double>(cache.prefetch.request_limit));
  snapshot->AddMetric(Metric::kCachePrefetchOverloads,
                      static_cast<double>(cache.prefetch.overloads));
}

}  // namespace

void AddToSnapshot(const Loader& loader, ProcessSnapshot* snapshot) {
  const LoaderStats stats = loader.stats();
  const LoaderOptions& options = loader.options();
  snapshot->rank = options.rank;
  snapshot->world_size = options.world_size;
  snapshot->dataset = loader.dataset_path();
  snapshot->AddPool(stats.workers, stats.worker_stages);
  snapshot->AddPool(stats.loop, stats.loop_stages);
  snapshot->input_wait_ns += stats.wait_ns;
  snapshot->between_batches_ns += stats.step_ns;
  snapshot->batches += stats.delivered_batches;
  auto add = [&](Metric metric, uint64_t value) {
    snapshot->AddMetric(metric, static_cast<double>(value));
  };
  add(Metric::kLoaderSamples, stats.delivered_samples);
  add(Metric::kLoaderBadSamples, stats.bad_samples);
  add(Metric::kLoaderMemoryBytes, stats.memory_bytes);
  add(Metric::kLoaderMemoryLimitBytes, options.memory_bytes);
  add(Metric::kLoaderReadyBatches, stats.ready_batches);
  snapshot->AddMetric(Metric::kLoaderFirstBatchSeconds,
                      static_cast<double>(stats.first_batch_ns) * 1e-9);
  for (size_t i = 0; i < stats.decodes.size(); ++i)
    if (stats.decodes[i] != 0)
      snapshot->AddMetric(Metric::kLoaderDecodes, static_cast<double>(stats.decodes[i]),
                          codec::SeekRefusalName(static_cast<codec::SeekRefusal>(i)));
  AddPlan(stats.cache, snapshot);
  snapshot->settings = loader.settings();
}

}  // namespace headrace::loader
