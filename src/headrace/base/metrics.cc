#include "headrace/base/metrics.h"

#include <array>

namespace headrace {

namespace {

constexpr std::string_view kTiers[] = {"memory", "disk"};
constexpr std::string_view kRequests[] = {"get", "head", "list", "write"};
constexpr std::string_view kProcessStates[] = {"live", "silent", "ended"};
// "seek_points", or what the codec calls the reason why an image was decoded whole.
constexpr std::string_view kDecodePaths[] = {
    "seek_points", "not_jpeg", "no_record",       "damaged",   "progressive",    "coding",
    "color_space", "sampling", "non_interleaved", "too_large", "record_unknown", "record_foreign"};

using enum MetricKind;
using enum MetricScope;
using M = Metric;

constexpr std::array<MetricInfo, kNumMetrics> kMetrics = {{
    {M::kInfo, kProcess, kGauge, "headrace_process_info", "",
     "Always 1; its labels say which process this is."},
    {M::kWindowSeconds, kProcess, kCounter, "headrace_observed_seconds_total", "seconds",
     "How long this process has been observed."},
    {M::kLoopBatches, kProcess, kCounter, "headrace_loop_batches_total", "batches",
     "Batches given to the training loop."},
    {M::kInputWaitSeconds, kProcess, kCounter, "headrace_input_wait_seconds_total", "seconds",
     "Time for which the training loop waited for batches."},
    {M::kBetweenBatchesSeconds, kProcess, kCounter, "headrace_between_batches_seconds_total",
     "seconds", "Time of the training loop between batches, saves included."},
    {M::kSaveStallSeconds, kProcess, kCounter, "headrace_save_stall_seconds_total", "seconds",
     "Time for which saves of checkpoints held up the training loop."},
    {M::kModelStepFlops, kProcess, kGauge, "headrace_model_step_flops", "operations",
     "Floating-point operations of one step of the model, as the user told them."},
    {M::kModelPeakFlops, kProcess, kGauge, "headrace_model_peak_flops", "operations",
     "Floating-point operations that the accelerator can do in a second, as the user told them."},
    {M::kPoolThreads, kPool, kGauge, "headrace_pool_threads", "threads",
     "Threads of a pool that may work."},
    {M::kPoolThreadSeconds, kPool, kCounter, "headrace_pool_thread_seconds_total", "seconds",
     "Wall time of a pool's threads, summed over them."},
    {M::kStageBusySeconds, kStage, kCounter, "headrace_stage_busy_seconds_total", "seconds",
     "Time a pool worked in a stage, summed over its threads or requests."},
    {M::kStageWaitSeconds, kStage, kCounter, "headrace_stage_wait_seconds_total", "seconds",
     "Time a pool was held up in a stage."},
    {M::kStageIdleSeconds, kStage, kCounter, "headrace_stage_idle_seconds_total", "seconds",
     "Time a pool's threads were elsewhere: busy, waiting and idle add up to their wall time."},
    {M::kStageItems, kStage, kCounter, "headrace_stage_items_total", "items",
     "Samples, batches, requests or saves that passed a stage."},
    {M::kStageBytes, kStage, kCounter, "headrace_stage_bytes_total", "bytes",
     "Bytes that passed a stage."},
    {M::kStageItemSeconds, kStage, kHistogram, "headrace_stage_item_seconds", "seconds",
     "Busy time of one item in a stage."},

    {M::kLoaderSamples, kValue, kCounter, "headrace_loader_samples_total", "samples",
     "Samples in the batches given to the training loop."},
    {M::kLoaderBadSamples, kValue, kCounter, "headrace_loader_bad_samples_total", "samples",
     "Samples that were found bad."},
    {M::kLoaderMemoryBytes, kValue, kGauge, "headrace_loader_memory_bytes", "bytes",
     "Memory of batches that are filled or wait, and of the threads' buffers."},
    {M::kLoaderMemoryLimitBytes, kValue, kGauge, "headrace_loader_memory_limit_bytes", "bytes",
     "What the setting memory_bytes allows of that."},
    {M::kLoaderReadyBatches, kValue, kGauge, "headrace_loader_ready_batches", "batches",
     "Finished batches that wait for the training loop."},
    {M::kLoaderFirstBatchSeconds, kValue, kGauge, "headrace_loader_first_batch_seconds", "seconds",
     "Time from the first iteration to its first batch."},
    {M::kLoaderDecodes, kValue, kCounter, "headrace_loader_decodes_total", "images",
     "Images decoded from seek points, or whole and why.", "path", kDecodePaths},

    {M::kCacheHits, kValue, kCounter, "headrace_cache_hits_total", "blocks",
     "Blocks that a read found in the node's cache.", "tier", kTiers},
    {M::kCacheMisses, kValue, kCounter, "headrace_cache_misses_total", "blocks",
     "Blocks that a read did not find in the node's cache."},
    {M::kCacheReadBytes, kValue, kCounter, "headrace_cache_read_bytes_total", "bytes",
     "Bytes that readers got from the node's cache.", "tier", kTiers},
    {M::kCacheOriginBytes, kValue, kCounter, "headrace_cache_origin_bytes_total", "bytes",
     "Bytes fetched from the origin, whoever wanted them."},
    {M::kCacheOriginRequests, kValue, kCounter, "headrace_cache_origin_requests_total", "requests",
     "Requests with which they were fetched."},
    {M::kCacheStreamedBytes, kValue, kCounter, "headrace_cache_streamed_bytes_total", "bytes",
     "Bytes of these that went to a reader without being kept."},
    {M::kCacheWaits, kValue, kCounter, "headrace_cache_waits_total", "blocks",
     "Blocks that another process of the node was fetching."},
    {M::kCacheHedges, kValue, kCounter, "headrace_cache_hedges_total", "requests",
     "Second requests for answers that were late."},
    {M::kCachePrefetchedBytes, kValue, kCounter, "headrace_cache_prefetched_bytes_total", "bytes",
     "Bytes fetched ahead of a reader."},
    {M::kCacheUnusedBytes, kValue, kCounter, "headrace_cache_unused_bytes_total", "bytes",
     "Bytes fetched ahead and given up before a reader came."},
    {M::kCacheRefusedBlocks, kValue, kCounter, "headrace_cache_refused_blocks_total", "blocks",
     "Blocks that the cache's disk did not take: no room, or it does not work."},
    {M::kCacheDroppedBlocks, kValue, kCounter, "headrace_cache_dropped_blocks_total", "blocks",
     "Blocks that were found damaged and fetched anew."},
    {M::kCacheDegraded, kValue, kCounter, "headrace_cache_degraded_total", "times",
     "How often the cache's disk stopped to work."},
    {M::kCachePrefetchRequestLimit, kValue, kGauge, "headrace_cache_prefetch_request_limit",
     "requests", "Requests that the prefetcher sends at once, as far as the origin bears them."},
    {M::kCachePrefetchOverloads, kValue, kCounter, "headrace_cache_prefetch_overloads_total",
     "times", "How often that number was halved because the origin was overloaded."},
    {M::kCacheEpochBytes, kValue, kGauge, "headrace_cache_epoch_bytes", "bytes",
     "Bytes of the shards that this rank reads in its present epoch."},
    {M::kCacheEpochMissingBytes, kValue, kGauge, "headrace_cache_epoch_missing_bytes", "bytes",
     "Bytes of these that were not in the cache when the epoch began."},
    {M::kCacheLimitBytes, kValue, kGauge, "headrace_cache_limit_bytes", "bytes",
     "Bytes that the node's cache may take on its disks."},
    {M::kCacheShareBytes, kValue, kGauge, "headrace_cache_share_bytes", "bytes",
     "Bytes of these that this rank has for its shards, where ranks of the node share the cache."},

    {M::kStoreRequests, kValue, kCounter, "headrace_store_requests_total", "requests",
     "Requests to object stores, tries again included.", "kind", kRequests},
    {M::kStoreFailures, kValue, kCounter, "headrace_store_failures_total", "requests",
     "Requests to object stores that failed."},
    {M::kStoreRetries, kValue, kCounter, "headrace_store_retries_total", "requests",
     "Requests that were made again after a failure."},
    {M::kStoreThrottled, kValue, kCounter, "headrace_store_throttled_total", "requests",
     "Requests that a store refused because too much was asked of it (429 or 503)."},
    {M::kStoreBackOffSeconds, kValue, kCounter, "headrace_store_back_off_seconds_total", "seconds",
     "Time that failed requests waited before they were made again, summed over them."},
    {M::kStoreReadBytes, kValue, kCounter, "headrace_store_read_bytes_total", "bytes",
     "Bytes read from object stores."},
    {M::kStoreWrittenBytes, kValue, kCounter, "headrace_store_written_bytes_total", "bytes",
     "Bytes written to object stores."},

    {M::kCheckpointSaves, kValue, kCounter, "headrace_checkpoint_saves_total", "saves",
     "Checkpoints that this rank has written and that were published."},
    {M::kCheckpointFailures, kValue, kCounter, "headrace_checkpoint_failures_total", "saves",
     "Saves that ended without being published."},
    {M::kCheckpointWrittenBytes, kValue, kCounter, "headrace_checkpoint_written_bytes_total",
     "bytes", "Bytes of checkpoints that were written, without what was unchanged."},
    {M::kCheckpointPendingSaves, kValue, kGauge, "headrace_checkpoint_pending_saves", "saves",
     "Saves that have not ended."},

    {M::kProcessCpuSeconds, kValue, kCounter, "headrace_process_cpu_seconds_total", "seconds",
     "CPU time of this process, user and system."},
    {M::kProcessResidentBytes, kValue, kGauge, "headrace_process_resident_memory_bytes", "bytes",
     "Memory of this process that is in RAM."},
    {M::kProcessOpenFiles, kValue, kGauge, "headrace_process_open_fds", "descriptors",
     "Open file descriptors."},
    {M::kProcessOpenFilesLimit, kValue, kGauge, "headrace_process_max_fds", "descriptors",
     "How many may be open."},
    {M::kProcessCpus, kValue, kGauge, "headrace_process_cpus", "processors",
     "Processors that this process may run on."},
    {M::kProcessMemoryLimitBytes, kValue, kGauge, "headrace_process_memory_limit_bytes", "bytes",
     "Memory that this process may use, by its machine or control group."},
    {M::kProcessMajorFaults, kValue, kCounter, "headrace_process_major_page_faults_total", "faults",
     "Page faults that waited for a disk."},
    {M::kProcessPreemptions, kValue, kCounter, "headrace_process_preemptions_total", "times",
     "How often a thread of this process had to leave its processor to another one."},
    {M::kProcessRunDelaySeconds, kValue, kCounter, "headrace_process_run_delay_seconds_total",
     "seconds", "Time for which threads of this process could run and waited for a processor."},
    {M::kProcessDeviceReadBytes, kValue, kCounter, "headrace_process_device_read_bytes_total",
     "bytes", "Bytes that were read from disks, and not from the page cache, for this process."},
    {M::kCgroupThrottledSeconds, kValue, kCounter, "headrace_cgroup_throttled_seconds_total",
     "seconds", "Time for which the control group's CPU quota stopped its processes."},

    {M::kNodeProcesses, kNode, kGauge, "headrace_node_processes", "processes",
     "Processes that the agent knows: that answer, that do not, and that have ended.", "state",
     kProcessStates},
    {M::kNodeLooks, kNode, kCounter, "headrace_node_looks_total", "looks",
     "Snapshots of processes that the agent took."},
    {M::kNodeFailedLooks, kNode, kCounter, "headrace_node_failed_looks_total", "looks",
     "How often a process did not answer the agent."},
    {M::kNodeLeftOut, kNode, kGauge, "headrace_node_left_out_processes", "processes",
     "Processes that the agent does not follow, because it follows as many as it may."},
    {M::kNodeBatches, kNode, kCounter, "headrace_node_batches_total", "batches",
     "Batches given to the training loops of a node while its agent watched."},
    {M::kNodeSamples, kNode, kCounter, "headrace_node_samples_total", "samples",
     "Samples in these batches."},
    {M::kNodeInputWaitSeconds, kNode, kCounter, "headrace_node_input_wait_seconds_total", "seconds",
     "Time for which the training loops of a node waited for batches, summed over them."},
    {M::kNodeBetweenBatchesSeconds, kNode, kCounter, "headrace_node_between_batches_seconds_total",
     "seconds", "Time of these loops between batches, saves included."},
    {M::kNodeSaveStallSeconds, kNode, kCounter, "headrace_node_save_stall_seconds_total", "seconds",
     "Time for which saves of checkpoints held up these loops."},
    {M::kNodeCacheUsedBytes, kNode, kGauge, "headrace_node_cache_used_bytes", "bytes",
     "Bytes in the node's cache, all its directories together."},
    {M::kNodeCacheLimitBytes, kNode, kGauge, "headrace_node_cache_limit_bytes", "bytes",
     "What the cache's limit allows of that."},
}};

constexpr bool InOrder() {
  for (size_t i = 0; i < kMetrics.size(); ++i)
    if (static_cast<size_t>(kMetrics[i].metric) != i) return false;
  return true;
}
static_assert(InOrder(), "the table is in the order of the enumeration");

}  // namespace

const MetricInfo& InfoOf(Metric metric) { return kMetrics[static_cast<size_t>(metric)]; }

std::span<const MetricInfo> AllMetrics() { return kMetrics; }

std::optional<Metric> FindMetric(std::string_view name) {
  for (const MetricInfo& info : kMetrics)
    if (info.name == name) return info.metric;
  return std::nullopt;
}

}  // namespace headrace
