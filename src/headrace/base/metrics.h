// The registry of metrics: each is declared once, in metrics.cc, with unit, help and the values its
// label can have. From there come the Prometheus exposition (metrics_text.h) and
// docs/reference/metrics.md. Constant data: safe from any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace headrace {

enum class MetricKind : uint8_t {
  kCounter,  // only grows; its name ends in _total
  kGauge,    // now
  kHistogram,
};

// Where the values of a metric are found in a ProcessSnapshot, and so which labels it has.
enum class MetricScope : uint8_t {
  kValue,    // in `metrics`: at most one label, declared with its values
  kProcess,  // one of its members: no label
  kPool,     // label "pool"
  kStage,    // labels "pool" and "stage"
  kNode,     // in none: what the agent says of its node; labels as those of kValue
};

// In the order of the table in metrics.cc.
enum class Metric : uint16_t {
  // the training loop
  kInfo,
  kWindowSeconds,
  kLoopBatches,
  kInputWaitSeconds,
  kBetweenBatchesSeconds,
  kSaveStallSeconds,
  kModelStepFlops,
  kModelPeakFlops,
  // pools and stages
  kPoolThreads,
  kPoolThreadSeconds,
  kStageBusySeconds,
  kStageWaitSeconds,
  kStageIdleSeconds,
  kStageItems,
  kStageBytes,
  kStageItemSeconds,
  // loader
  kLoaderSamples,
  kLoaderBadSamples,
  kLoaderMemoryBytes,
  kLoaderMemoryLimitBytes,
  kLoaderReadyBatches,
  kLoaderFirstBatchSeconds,
  kLoaderDecodes,  // label "path": seek_points, or why not
  // cache of the node, as this process used it
  kCacheHits,  // label "tier": memory, disk
  kCacheMisses,
  kCacheReadBytes,  // label "tier"
  kCacheOriginBytes,
  kCacheOriginRequests,
  kCacheStreamedBytes,
  kCacheWaits,
  kCacheHedges,
  kCachePrefetchedBytes,
  kCacheUnusedBytes,
  kCacheRefusedBlocks,
  kCacheDroppedBlocks,
  kCacheDegraded,
  kCachePrefetchRequestLimit,
  kCachePrefetchOverloads,
  kCacheEpochBytes,
  kCacheEpochMissingBytes,
  kCacheLimitBytes,
  kCacheShareBytes,
  // object stores
  kStoreRequests,  // label "kind": get, head, list, write
  kStoreFailures,
  kStoreRetries,
  kStoreThrottled,
  kStoreBackOffSeconds,
  kStoreReadBytes,
  kStoreWrittenBytes,
  // checkpoints
  kCheckpointSaves,
  kCheckpointFailures,
  kCheckpointWrittenBytes,
  kCheckpointPendingSaves,
  // the process and its machine
  kProcessCpuSeconds,
  kProcessResidentBytes,
  kProcessOpenFiles,
  kProcessOpenFilesLimit,
  kProcessCpus,
  kProcessMemoryLimitBytes,
  kProcessMajorFaults,
  kProcessPreemptions,  // involuntary context switches
  kProcessRunDelaySeconds,
  kProcessDeviceReadBytes,
  kCgroupThrottledSeconds,
  // a node, as its agent sees it
  kNodeProcesses,  // label "state": live, silent, ended
  kNodeLooks,
  kNodeFailedLooks,
  kNodeLeftOut,
  kNodeBatches,
  kNodeSamples,
  kNodeInputWaitSeconds,
  kNodeBetweenBatchesSeconds,
  kNodeSaveStallSeconds,
  kNodeCacheUsedBytes,
  kNodeCacheLimitBytes,
};
inline constexpr size_t kNumMetrics = static_cast<size_t>(Metric::kNodeCacheLimitBytes) + 1;

struct MetricInfo {
  Metric metric;
  MetricScope scope;
  MetricKind kind;
  std::string_view name;  // headrace_cache_hits_total: the unit is in the name, as Prometheus wants
  std::string_view unit;  // "bytes", "seconds", or what is counted: "blocks"
  std::string_view help;  // one sentence
  std::string_view label = {};                          // empty: none
  std::span<const std::string_view> label_values = {};  // all it can have
};

const MetricInfo& InfoOf(Metric metric);
std::span<const MetricInfo> AllMetrics();
std::optional<Metric> FindMetric(std::string_view name);

}  // namespace headrace
